//! Telling the authority which trust is in force in this process: no rotation goes on before every host has.
//!
//! The trust that the watch brought is in force at once. Before it is confirmed it is stored beside the host's
//! identity, so that not even a crash brings back a trust from before.

use std::time::Duration;

use metrics::counter;
use sallyport_ca::TrustBundle;
use sallyport_wire::convert::duration_from_proto;
use sallyport_wire::v1;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::ServerError;
use crate::backoff::{Backoff, chance};
use crate::member::authority_client::AuthorityClient;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::Credentials;
use crate::member::joining::Spread;

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// When the authority does not say.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why the authority has not taken a confirmation.
#[derive(Debug, thiserror::Error)]
enum NotConfirmed {
    #[error("it cannot be stored")]
    NotStored,
    #[error("{0}")]
    Refused(String),
    #[error("no answer")]
    NoAnswer,
}

/// Confirms for as long as the process runs.
pub(crate) struct Confirming {
    pub(crate) credentials: Credentials,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) client: AuthorityClient,
    pub(crate) spread: Spread,
}

impl Confirming {
    /// Runs until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.forever() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn forever(&self) {
        let mut trusted = self.view.changes();
        let mut renewed = self.credentials.changes();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            trusted.mark_unchanged();
            renewed.mark_unchanged();
            let told = self.request();
            let interval = match self.confirm(&told).await {
                Ok(interval) => {
                    backoff.reset();
                    interval
                }
                Err(problem) => {
                    debug!(%problem, "the trust in force was not confirmed; trying again");
                    backoff.wait().await;
                    continue;
                }
            };
            // Well before it is due, and not all hosts at once.
            let again = tokio::time::sleep(interval.mul_f64(0.4 + 0.2 * chance()));
            tokio::pin!(again);
            loop {
                tokio::select! {
                    () = &mut again => break,
                    changed = trusted.changed() => if changed.is_err() { return },
                    changed = renewed.changed() => if changed.is_err() { return },
                }
                if self.request() != told {
                    break;
                }
            }
        }
    }

    fn request(&self) -> v1::ConfirmRequest {
        request(&self.view.bundle(), self.credentials.presented())
    }

    async fn confirm(&self, request: &v1::ConfirmRequest) -> Result<Duration, NotConfirmed> {
        let bundle = self.view.bundle();
        if let Err(error) = self.credentials.adopt(bundle) {
            warn!(error = %ServerError::chain(&error), "a changed trust cannot be stored, so it is not confirmed");
            return Err(NotConfirmed::NotStored);
        }
        let mut rotation = self.client.rotation();
        let answer = tokio::time::timeout(CALL_TIMEOUT, rotation.confirm(request.clone())).await;
        let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
        counter!("sallyport_authority_calls_total", "method" => "Confirm", "result" => outcome).increment(1);
        match answer {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                self.spread.set(answer.spread.as_ref().and_then(duration_from_proto).unwrap_or_default());
                let within = answer.next_within.as_ref().and_then(duration_from_proto);
                Ok(within.unwrap_or(DEFAULT_INTERVAL).max(SHORTEST_INTERVAL))
            }
            Ok(Err(status)) => Err(NotConfirmed::Refused(status.message().to_owned())),
            Err(_) => Err(NotConfirmed::NoAnswer),
        }
    }
}

/// What a host that has applied `bundle` and presents a certificate of this CA says.
pub(crate) fn request(bundle: &TrustBundle, signed_by: Option<String>) -> v1::ConfirmRequest {
    let applied = bundle.rotations.iter().map(|(kind, status)| {
        let said = v1::CaRotation { generation: status.generation, phase: status.phase.name().to_owned() };
        (kind.name().to_owned(), said)
    });
    v1::ConfirmRequest {
        applied: applied.collect(),
        signed_by: signed_by.unwrap_or_default(),
        takes_own_logins: false,
    }
}
