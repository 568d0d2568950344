//! Which second factors are proven for sessions, as this host asks the authority: of sessions whose permit demands one, and of no
//! others.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use sallyport_access::{
    FactorDemand, Identity, Kind, Login, Node, Permit, Principal, SessionFactor, SessionTarget,
};
use sallyport_ca::{Trust, keys};
use sallyport_session::factor::{Answer, Factors, Missing, Proven, Shown, Wanted};
use sallyport_wire::{SESSION_FACTOR_HEADER, v1};
use time::OffsetDateTime;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::member::authority_client::AuthorityClient;
use crate::member::cluster_cache::ClusterCache;

/// How long a session waits for the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The authority, as far as it knows what is proven.
#[derive(Debug, Clone)]
pub(crate) struct AuthorityFactors {
    client: AuthorityClient,
    view: Arc<ClusterCache>,
}

impl AuthorityFactors {
    pub(crate) fn new(client: AuthorityClient, view: &Arc<ClusterCache>) -> Self {
        Self { client, view: Arc::clone(view) }
    }
}

/// What the certificate itself says, by this host's own trust. One that says nothing of this session is no reason to refuse it.
fn certified(trust: &Trust, wanted: &Wanted, now: OffsetDateTime) -> Option<Proven> {
    let said = match &wanted.certificate {
        Shown::Ssh(line) => {
            keys::certificate(line).and_then(|certificate| trust.session_proof_ssh(&certificate, now))
        }
        Shown::Tls(der) => trust.session_proof_tls(der, now),
    };
    let proof = said.ok()??;
    proof.serves(&wanted.demand, wanted.client?.ip()).then_some(Proven { factor: proof.name })
}

/// What is demanded of a session with a node. Where the protocol does not tell the login beforehand, what the strictest of the user's
/// roles demands, for any login.
pub(crate) fn demand_of(
    view: &ClusterCache,
    identity: &Identity,
    node: &Node,
    (permit, login): (&Permit, Option<&Login>),
) -> Option<FactorDemand> {
    if login.is_some() {
        return permit.factor().cloned();
    }
    let Principal::User { roles, .. } = &identity.principal else { return None };
    let rule = view.policies().strictest_factor(roles);
    let target = || SessionTarget::any(Kind::Node, node.id.to_string());
    (rule.factor != SessionFactor::No).then(|| FactorDemand { rule, target: target() })
}

/// A refusal, with what would let the session begin.
pub(crate) fn wanting(mut status: Status, factor: Option<SessionFactor>) -> Status {
    if let Some(factor) = factor {
        let said = MetadataValue::from_static(factor.as_str());
        status.metadata_mut().insert(SESSION_FACTOR_HEADER, said);
    }
    status
}

/// What a user's program is told whose session needs a factor.
pub(crate) fn of_factor(missing: &Missing) -> Status {
    let status = match missing {
        Missing::Unproven(_) | Missing::Elsewhere(_) => Status::permission_denied(missing.to_string()),
        Missing::Unasked(_) => Status::unavailable(missing.to_string()),
    };
    wanting(status, missing.demanded())
}

/// A certificate as calls carry it.
pub(crate) fn shown(certificate: Shown) -> v1::ShownCertificate {
    use v1::shown_certificate::Certificate;
    let certificate = match certificate {
        Shown::Ssh(line) => Certificate::Ssh(line),
        Shown::Tls(der) => Certificate::Tls(der),
    };
    v1::ShownCertificate { certificate: Some(certificate) }
}

/// A session as calls name it.
pub(crate) fn target(target: &SessionTarget) -> v1::SessionTarget {
    v1::SessionTarget {
        kind: target.kind.row().document.to_owned(),
        resource: target.resource.clone(),
        account: target.account.clone().unwrap_or_default(),
        db_name: target.db_name.clone().unwrap_or_default(),
    }
}

impl Factors for AuthorityFactors {
    fn proven(&self, wanted: Wanted) -> Answer<'_> {
        Box::pin(async move {
            if let Some(proven) = certified(&self.view.trust(), &wanted, OffsetDateTime::now_utc()) {
                return Ok(proven);
            }
            let Wanted { demand, certificate, client } = wanted;
            let client =
                client.ok_or_else(|| Missing::Unasked("the client's address is not known".to_owned()))?;
            let request = v1::CheckSessionFactorRequest {
                certificate: Some(shown(certificate)),
                address: client.ip().to_string(),
                target: Some(target(&demand.target)),
            };
            let mut authority = self.client.session_factors();
            let answer = tokio::time::timeout(PATIENCE, authority.check(request)).await;
            let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
            counter!("sallyport_authority_calls_total", "method" => "CheckSessionFactor", "result" => outcome)
                .increment(1);
            let answer = answer
                .map_err(|_| {
                    Missing::Unasked(format!("the authority has not answered within {} s", PATIENCE.as_secs()))
                })?
                .map_err(|status| match status.code() {
                    Code::Unimplemented => Missing::Unasked(
                        "the authority is of an earlier release than this host and knows no factors for sessions; update it first"
                            .to_owned(),
                    ),
                    _ => Missing::Unasked(status.message().to_owned()),
                })?
                .into_inner();
            match answer.satisfied {
                true => Ok(Proven { factor: answer.factor }),
                // The stricter of what both know.
                false => {
                    let said = SessionFactor::ALL
                        .into_iter()
                        .find(|factor| factor.as_str() == answer.demand)
                        .unwrap_or_default();
                    Err(Missing::Unproven(said.max(demand.rule.factor)))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
