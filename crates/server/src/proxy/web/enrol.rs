//! `/web/enrol/…`: a passkey that a user adds.

use sallyport_wire::v1;
use sallyport_wire::v1::web_client::WebClient;
use serde::Serialize;
use time::OffsetDateTime;

use super::answer::Refused;
use super::calls::{Calls, Channel, heard};
use super::fields::{Begun, ById, Nothing, Proof, WithCode, expires_in};
use crate::routes::Routes;

pub(super) fn routes<S: Channel>(calls: &Calls<S>) -> Routes {
    Routes::default()
        .page("/web/enrol/describe", calls.call("DescribeEnrolment", describe))
        .page("/web/enrol/begin", calls.call("BeginEnrolment", begin))
        .page("/web/enrol/finish", calls.call("FinishEnrolment", finish))
        .page("/web/enrol/refuse", calls.call("RefuseEnrolment", refuse))
}

#[derive(Debug, Serialize)]
struct Description {
    cluster: String,
    user: String,
    name: String,
    state: String,
    expires_in: u64,
}

async fn describe<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Description, Refused> {
    let enrolment = heard(authority.describe_enrolment(asked.of(address)).await)?;
    Ok(Description {
        cluster: enrolment.cluster,
        user: enrolment.user,
        name: enrolment.name,
        state: enrolment.state,
        expires_in: expires_in(enrolment.expires.as_ref(), OffsetDateTime::now_utc()),
    })
}

async fn begin<S: Channel>(
    mut authority: WebClient<S>,
    asked: WithCode,
    address: String,
) -> Result<Begun, Refused> {
    let options = heard(authority.begin_enrolment(asked.of(address)).await)?;
    Begun::try_from(options).map_err(|_| Refused::Unreadable)
}

#[derive(Debug, Serialize)]
struct Enrolled {
    name: String,
}

async fn finish<S: Channel>(
    mut authority: WebClient<S>,
    asked: Proof,
    address: String,
) -> Result<Enrolled, Refused> {
    let (id, response_json) = (asked.id.into_inner(), asked.response.into_json());
    let request = v1::WebFinishEnrolmentRequest { id, address, response_json };
    heard(authority.finish_enrolment(request).await).map(|enrolled| Enrolled { name: enrolled.name })
}

async fn refuse<S: Channel>(
    mut authority: WebClient<S>,
    asked: ById,
    address: String,
) -> Result<Nothing, Refused> {
    heard(authority.refuse_enrolment(asked.of(address)).await).map(|_| Nothing {})
}
