//! `/web/factors/…`: a user's own factors.

use sallyport_wire::convert::time_from_proto;
use sallyport_wire::v1;
use sallyport_wire::v1::web_client::WebClient;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::answer::Refused;
use super::calls::{Calls, Channel, heard};
use super::fields::{ById, Client, Nothing, Typed, WithCode, Word, expires_in};
use crate::routes::Routes;

pub(super) fn routes<S: Channel>(calls: &Calls<S>) -> Routes {
    Routes::default()
        .page("/web/factors/describe", calls.call("DescribeFactors", describe))
        .page("/web/factors/list", calls.call("ListFactors", list))
        .page("/web/factors/remove/begin", calls.call("BeginFactorRemoval", begin))
        .page("/web/factors/remove/finish", calls.call("FinishFactorRemoval", finish))
        .page("/web/factors/refuse", calls.call("RefuseApproval", refuse))
}

#[derive(Debug, Serialize)]
struct Description {
    cluster: String,
    user: String,
    client: Client,
    state: String,
    expires_in: u64,
}

async fn describe<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Description, Refused> {
    let page = heard(authority.describe_factors(asked.of(address)).await)?;
    Ok(Description {
        cluster: page.cluster,
        user: page.user,
        client: page.client.into(),
        state: page.state,
        expires_in: expires_in(page.expires.as_ref(), OffsetDateTime::now_utc()),
    })
}

#[derive(Debug, Serialize)]
struct Listed {
    factors: Vec<Factor>,
    recovery_codes: u32,
}

#[derive(Debug, Serialize)]
struct Factor {
    id: String,
    name: String,
    kind: String,
    created: Option<String>,
    last_used: Option<String>,
    backed_up: bool,
    counter_went_back: Option<String>,
}

impl From<v1::WebFactors> for Listed {
    fn from(v1::WebFactors { factors, recovery_codes }: v1::WebFactors) -> Self {
        let when = |time: Option<prost_types::Timestamp>| {
            time.as_ref().and_then(time_from_proto).and_then(|time| time.format(&Rfc3339).ok())
        };
        let factors = factors.into_iter().map(|factor| Factor {
            id: factor.id,
            name: factor.name,
            kind: factor.kind,
            created: when(factor.created),
            last_used: when(factor.last_used),
            backed_up: factor.backed_up,
            counter_went_back: when(factor.counter_went_back),
        });
        Self { factors: factors.collect(), recovery_codes }
    }
}

async fn list<S: Channel>(
    mut authority: WebClient<S>,
    asked: WithCode,
    address: String,
) -> Result<Listed, Refused> {
    let v1::WebBeginPasskeyRequest { id, address, code } = asked.of(address);
    heard(authority.list_factors(v1::WebFactorsRequest { id, address, code }).await).map(Listed::from)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Removal {
    id: Word,
    code: Typed<64>,
    factor: Word,
}

#[derive(Debug, Serialize)]
struct Begun {
    approval: String,
}

async fn begin<S: Channel>(
    mut authority: WebClient<S>,
    asked: Removal,
    address: String,
) -> Result<Begun, Refused> {
    let (id, code, factor) = (asked.id.into_inner(), asked.code.into_inner(), asked.factor.into_inner());
    let request = v1::WebFactorRemovalRequest { id, address, code, factor };
    heard(authority.begin_factor_removal(request).await).map(|begun| Begun { approval: begun.approval })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    id: Word,
    code: Typed<64>,
    factor: Word,
    approval: Word,
}

async fn finish<S: Channel>(
    mut authority: WebClient<S>,
    asked: Finish,
    address: String,
) -> Result<Listed, Refused> {
    let request = v1::WebFinishFactorRemovalRequest {
        id: asked.id.into_inner(),
        address,
        code: asked.code.into_inner(),
        factor: asked.factor.into_inner(),
        approval: asked.approval.into_inner(),
    };
    heard(authority.finish_factor_removal(request).await).map(Listed::from)
}

async fn refuse<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Nothing, Refused> {
    heard(authority.refuse_approval(asked.of(address)).await).map(|_| Nothing {})
}
