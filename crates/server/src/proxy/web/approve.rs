//! `/web/approve/…`: what a user's own program asks a factor for.

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
        .page("/web/approve/describe", calls.call("DescribeApproval", describe))
        .page("/web/approve/passkey/begin", calls.call("BeginApprovalPasskey", begin))
        .page("/web/approve/passkey/finish", calls.call("FinishApprovalPasskey", finish))
        .page("/web/approve/otp", calls.call("ProveApprovalOtp", otp))
        .page("/web/approve/refuse", calls.call("RefuseApproval", refuse))
}

#[derive(Debug, Serialize)]
struct Description {
    cluster: String,
    user: String,
    purpose: String,
    details: Vec<Detail>,
    client: Client,
    state: String,
    methods: Methods,
    expires_in: u64,
}

#[derive(Debug, Serialize)]
struct Detail {
    label: String,
    value: String,
    /// A machine says so of itself.
    said: bool,
}

#[derive(Debug, Serialize)]
struct Methods {
    passkey: bool,
    otp: bool,
    /// Where a user who has no factor signs in again.
    sso: Vec<Connector>,
}

async fn describe<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Description, Refused> {
    let approval = heard(authority.describe_approval(asked.of(address)).await)?;
    let methods = approval.methods.unwrap_or_default();
    let details = approval.details.into_iter();
    let details = details.map(|v1::WebDetail { label, value, said }| Detail { label, value, said });
    Ok(Description {
        cluster: approval.cluster,
        user: approval.user,
        purpose: approval.purpose,
        details: details.collect(),
        client: approval.client.into(),
        state: approval.state,
        methods: Methods { passkey: methods.passkey, otp: methods.otp, sso: connectors(methods.sso) },
        expires_in: expires_in(approval.expires.as_ref(), OffsetDateTime::now_utc()),
    })
}

async fn begin<S: Channel>(
    mut authority: WebClient<S>,
    asked: WithCode,
    address: String,
) -> Result<Begun, Refused> {
    let options = heard(authority.begin_approval_passkey(asked.of(address)).await)?;
    Begun::try_from(options).map_err(|_| Refused::Unreadable)
}

async fn finish<S: Channel>(
    mut authority: WebClient<S>,
    asked: Proof,
    address: String,
) -> Result<Nothing, Refused> {
    let (id, response_json) = (asked.id.into_inner(), asked.response.into_json());
    let request = v1::WebFinishPasskeyRequest { id, address, response_json };
    heard(authority.finish_approval_passkey(request).await).map(|_| Nothing {})
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Otp {
    id: Word,
    otp: Typed<64>,
    #[serde(default)]
    code: Typed<64>,
}

async fn otp<S: Channel>(
    mut authority: WebClient<S>,
    asked: Otp,
    address: String,
) -> Result<Nothing, Refused> {
    let (id, otp, code) = (asked.id.into_inner(), asked.otp.into_inner(), asked.code.into_inner());
    let request = v1::WebOtpRequest { id, address, otp, code };
    heard(authority.prove_approval_otp(request).await).map(|_| Nothing {})
}

async fn refuse<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Nothing, Refused> {
    heard(authority.refuse_approval(asked.of(address)).await).map(|_| Nothing {})
}
