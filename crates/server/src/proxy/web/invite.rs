//! `/web/invite/…`: an invitation that is accepted with a passkey in place of a password.

use sallyport_wire::v1;
use sallyport_wire::v1::web_client::WebClient;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::answer::Refused;
use super::calls::{Calls, Channel, heard};
use super::fields::{Begun, Response, Typed, Word, expires_in};
use crate::routes::Routes;

pub(super) fn routes<S: Channel>(calls: &Calls<S>) -> Routes {
    Routes::default()
        .page("/web/invite/describe", calls.call("DescribeInvite", describe))
        .page("/web/invite/begin", calls.call("BeginInvitePasskey", begin))
        .page("/web/invite/finish", calls.call("FinishInvitePasskey", finish))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByToken {
    token: Word,
}

impl ByToken {
    fn of(self, address: String) -> v1::WebInviteRequest {
        v1::WebInviteRequest { token: self.token.into_inner(), address }
    }
}

#[derive(Debug, Serialize)]
struct Description {
    cluster: String,
    user: String,
    methods: Methods,
    expires_in: u64,
}

#[derive(Debug, Serialize)]
struct Methods {
    passkey: bool,
    password: bool,
}

async fn describe<S: Channel>(
    mut authority: WebClient<S>,
    asked: ByToken,
    address: String,
) -> Result<Description, Refused> {
    let invite = heard(authority.describe_invite(asked.of(address)).await)?;
    let methods = invite.methods.unwrap_or_default();
    Ok(Description {
        cluster: invite.cluster,
        user: invite.user,
        methods: Methods { passkey: methods.passkey, password: methods.password },
        expires_in: expires_in(invite.expires.as_ref(), OffsetDateTime::now_utc()),
    })
}

async fn begin<S: Channel>(
    mut authority: WebClient<S>,
    asked: ByToken,
    address: String,
) -> Result<Begun, Refused> {
    let options = heard(authority.begin_invite_passkey(asked.of(address)).await)?;
    Begun::try_from(options).map_err(|_| Refused::Unreadable)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accept {
    token: Word,
    name: Typed<256>,
    response: Response,
}

#[derive(Debug, Serialize)]
struct Accepted {
    user: String,
}

async fn finish<S: Channel>(
    mut authority: WebClient<S>,
    asked: Accept,
    address: String,
) -> Result<Accepted, Refused> {
    let request = v1::WebFinishInviteRequest {
        token: asked.token.into_inner(),
        address,
        name: asked.name.into_inner(),
        response_json: asked.response.into_json(),
    };
    heard(authority.finish_invite_passkey(request).await).map(|invited| Accepted { user: invited.user })
}
