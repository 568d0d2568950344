//! `/web/login/…`: a program's login, proven in the browser.

use sallyport_wire::v1;
use sallyport_wire::v1::web_client::WebClient;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::answer::Refused;
use super::calls::{Calls, Channel, heard};
use super::fields::{
    Begun, ById, Client, Connector, Nothing, Proof, Typed, WithCode, Word, connectors, expires_in,
};
use crate::routes::Routes;

pub(super) fn routes<S: Channel>(calls: &Calls<S>) -> Routes {
    Routes::default()
        .page("/web/login/describe", calls.call("DescribeLogin", describe))
        .page("/web/login/passkey/begin", calls.call("BeginLoginPasskey", begin))
        .page("/web/login/passkey/finish", calls.call("FinishLoginPasskey", finish))
        .page("/web/login/password", calls.call("ProveLoginPassword", password))
        .page("/web/login/refuse", calls.call("RefuseLogin", refuse))
}

#[derive(Debug, Serialize)]
struct Description {
    cluster: String,
    state: String,
    client: Client,
    redirect: String,
    methods: Methods,
    user: Option<String>,
    /// The page asks for the code that the terminal shows.
    code: bool,
    expires_in: u64,
}

#[derive(Debug, Serialize)]
struct Methods {
    passkey: bool,
    password: bool,
    sso: Vec<Connector>,
}

async fn describe<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Description, Refused> {
    let login = heard(authority.describe_login(asked.of(address)).await)?;
    let methods = login.methods.unwrap_or_default();
    Ok(Description {
        cluster: login.cluster,
        state: login.state,
        client: login.client.into(),
        redirect: login.redirect,
        methods: Methods {
            passkey: methods.passkey,
            password: methods.password,
            sso: connectors(methods.sso),
        },
        user: Some(login.user).filter(|user| !user.is_empty()),
        code: login.code,
        expires_in: expires_in(login.expires.as_ref(), OffsetDateTime::now_utc()),
    })
}

async fn begin<S: Channel>(
    mut authority: WebClient<S>,
    asked: WithCode,
    address: String,
) -> Result<Begun, Refused> {
    let options = heard(authority.begin_login_passkey(asked.of(address)).await)?;
    Begun::try_from(options).map_err(|_| Refused::Unreadable)
}

/// Where the browser goes; nowhere, where the program asks by itself.
#[derive(Debug, Serialize)]
pub(super) struct Proven {
    redirect: Option<String>,
}

impl From<v1::WebProven> for Proven {
    fn from(proven: v1::WebProven) -> Self {
        Self { redirect: Some(proven.redirect).filter(|redirect| !redirect.is_empty()) }
    }
}

async fn finish<S: Channel>(
    mut authority: WebClient<S>,
    asked: Proof,
    address: String,
) -> Result<Proven, Refused> {
    let (id, response_json) = (asked.id.into_inner(), asked.response.into_json());
    let request = v1::WebFinishPasskeyRequest { id, address, response_json };
    heard(authority.finish_login_passkey(request).await).map(Proven::from)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Password {
    id: Word,
    #[serde(default)]
    code: Typed<64>,
    user: Typed<256>,
    password: Typed<4096>,
    #[serde(default)]
    otp: Typed<64>,
}

async fn password<S: Channel>(
    mut authority: WebClient<S>,
    asked: Password,
    address: String,
) -> Result<Proven, Refused> {
    let request = v1::WebPasswordRequest {
        id: asked.id.into_inner(),
        address,
        code: asked.code.into_inner(),
        user: asked.user.into_inner(),
        password: asked.password.into_inner(),
        otp: asked.otp.into_inner(),
    };
    heard(authority.prove_login_password(request).await).map(Proven::from)
}

async fn refuse<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Nothing, Refused> {
    heard(authority.refuse_login(asked.of(address)).await).map(|_| Nothing {})
}
