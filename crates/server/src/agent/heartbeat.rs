//! Saying that the node is there, and what it is.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use sallyport_wire::convert::duration_from_proto;
use sallyport_wire::v1::HeartbeatRequest;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::labels::OwnLabels;
use crate::authority_client::AuthorityClient;
use crate::backoff::{Backoff, chance};

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// When the authority does not say.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the node says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) labels: Arc<OwnLabels>,
    pub(crate) os_user: String,
    pub(crate) address: String,
}

/// Repeats the description until `stop`.
pub(crate) async fn run(client: AuthorityClient, description: Description, stop: CancellationToken) {
    tokio::select! {
        () = forever(client, description) => {}
        () = stop.cancelled() => {}
    }
}

async fn forever(client: AuthorityClient, description: Description) {
    let mut changes = description.labels.changes();
    let request = || HeartbeatRequest {
        labels: description.labels.now().into_iter().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        os_user: description.os_user.clone(),
        address: description.address.clone(),
        ..HeartbeatRequest::default()
    };
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let mut fleet = client.fleet();
        changes.mark_unchanged();
        let answer = tokio::time::timeout(CALL_TIMEOUT, fleet.heartbeat(request())).await;
        let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
        counter!("sallyport_authority_calls_total", "method" => "Heartbeat", "result" => outcome)
            .increment(1);
        match answer {
            Ok(Ok(answer)) => {
                backoff.reset();
                let within = answer.into_inner().next_within.as_ref().and_then(duration_from_proto);
                let interval = within.unwrap_or(DEFAULT_INTERVAL).max(SHORTEST_INTERVAL);
                // Well before it is due, and not all agents at once.
                let due = tokio::time::sleep(interval.mul_f64(0.4 + 0.2 * chance()));
                tokio::select! {
                    () = due => {}
                    // Another label counts at once, and several that change together are told together.
                    Ok(()) = changes.changed() => tokio::time::sleep(SHORTEST_INTERVAL).await,
                }
            }
            Ok(Err(status)) => {
                warn!(message = status.message(), "the heartbeat was not taken");
                backoff.wait().await;
            }
            Err(_) => {
                debug!("no answer to the heartbeat");
                backoff.wait().await;
            }
        }
    }
}
