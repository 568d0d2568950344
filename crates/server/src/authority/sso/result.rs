//! What trying a connector has come to, as an administrator is told it and as it is kept until then.

use data_encoding::BASE64;
use serde_json::{Value, json};
use tonic::Status;

use super::claims::{Claims, Verdict, external_id, told};
use super::connector::Connector;
use super::connectors::Connectors;
use super::failure::Failure;
use super::people::Would;
use crate::ServerError;

/// What a login came to: everything that the provider said, each rule, and why it would not be taken.
pub(super) fn passed(
    connector: &Connector,
    said: &Claims,
    verdict: &Verdict,
    would_be: &Result<Would, Failure>,
) -> Value {
    let roles: Vec<String> = verdict.roles.iter().map(ToString::to_string).collect();
    json!({
        "issuer": said.identity.issuer,
        "subject": said.identity.subject,
        "id_token": said.token,
        "userinfo": said.userinfo,
        "fetched": said.fetched,
        "scim_groups": said.groups,
        "scim_external_id": external_id(connector, said),
        "trace": verdict.mapped.trace,
        "told": verdict.mapped.trace.iter().map(told).collect::<Vec<_>>(),
        "roles": roles,
        "unknown_roles": verdict.unknown_roles,
        "traits": verdict.traits,
        "user": would_be.as_ref().ok().map(|would| would.name.to_string()),
        "linked": would_be.as_ref().is_ok_and(|would| would.linked),
        "second_factor": verdict.second_factor,
        "refused": would_be.as_ref().err().map(refused),
    })
}

/// Why there is nothing to show.
pub(super) fn failed(failure: &Failure) -> Value {
    json!({ "refused": refused(failure) })
}

fn refused(failure: &Failure) -> Value {
    match failure {
        Failure::Sso(error) => {
            json!({ "reason": error.word(), "message": ServerError::chain(error.as_ref()) })
        }
        Failure::State(status) => json!({ "reason": "state", "message": status.message() }),
    }
}

fn label(key: &str) -> String {
    format!("sso_test/{key}")
}

impl Connectors {
    /// A result as it is kept in a challenge.
    pub(super) fn sealed(&self, key: &str, bytes: &[u8]) -> Result<String, Status> {
        let sealed =
            self.seal.seal(&label(key), bytes).map_err(|error| Status::internal(error.to_string()))?;
        Ok(BASE64.encode(&sealed))
    }

    pub(super) fn unsealed(&self, key: &str, sealed: &str) -> Result<String, Status> {
        let broken = || Status::internal("the result of the test cannot be read; test again");
        let sealed = BASE64.decode(sealed.as_bytes()).map_err(|_| broken())?;
        let bytes = self.seal.unseal(&label(key), &sealed).map_err(|_| broken())?;
        String::from_utf8(bytes.to_vec()).map_err(|_| broken())
    }
}
