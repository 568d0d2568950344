//! Saying that the node is there, and what it is.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use sallyport_access::{Kind, Listed};
use sallyport_wire::convert::duration_from_proto;
use sallyport_wire::v1::{DatabaseHealth, DatabaseReport, HeartbeatRequest, ResourceHealth, ResourceReport};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::health::Found;
use super::labels::OwnLabels;
use crate::backoff::{Backoff, chance};
use crate::member::authority_client::AuthorityClient;

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// When the authority does not say.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Longest text of a problem, in characters: the authority keeps no more.
const LONGEST_PROBLEM: usize = 256;

/// What the node says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) labels: Arc<OwnLabels>,
    pub(crate) os_user: String,
    pub(crate) address: String,
    /// The databases of its configuration, as documents.
    pub(crate) databases: Vec<String>,
    /// What else stands in its configuration.
    pub(crate) resources: Vec<Listed>,
    /// How what it serves is.
    pub(crate) health: watch::Receiver<Found>,
}

/// Repeats the description until `stop`.
pub(crate) async fn run(client: AuthorityClient, description: Description, stop: CancellationToken) {
    tokio::select! {
        () = forever(client, description) => {}
        () = stop.cancelled() => {}
    }
}

async fn forever(client: AuthorityClient, mut description: Description) {
    let mut changes = description.labels.changes();
    let mut told = Vec::new();
    let request = |description: &Description| {
        let (database_health, resource_health) = health(&description.health.borrow());
        HeartbeatRequest {
            labels: description.labels.now().into_iter().collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            os_user: description.os_user.clone(),
            address: description.address.clone(),
            databases: description
                .databases
                .iter()
                .map(|yaml| DatabaseReport { yaml: yaml.clone() })
                .collect(),
            database_health,
            databases_end_to_end: true,
            resources: description
                .resources
                .iter()
                .map(|listed| ResourceReport {
                    kind: listed.kind.row().document.to_owned(),
                    yaml: listed.to_yaml(),
                })
                .collect(),
            resource_health,
            kinds: Kind::listed().map(|kind| kind.row().document.to_owned()).collect(),
        }
    };
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let mut fleet = client.fleet();
        changes.mark_unchanged();
        description.health.mark_unchanged();
        let request = request(&description);
        let answer = tokio::time::timeout(CALL_TIMEOUT, fleet.heartbeat(request)).await;
        let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
        counter!("sallyport_authority_calls_total", "method" => "Heartbeat", "result" => outcome)
            .increment(1);
        match answer {
            Ok(Ok(answer)) => {
                backoff.reset();
                let answer = answer.into_inner();
                let within = answer.next_within.as_ref().and_then(duration_from_proto);
                if told != answer.problems {
                    told = answer.problems;
                    told.iter().for_each(|problem| {
                        warn!(problem, "the authority does not take all that is reported")
                    });
                }
                let interval = within.unwrap_or(DEFAULT_INTERVAL).max(SHORTEST_INTERVAL);
                // Well before it is due, and not all agents at once.
                let due = tokio::time::sleep(interval.mul_f64(0.4 + 0.2 * chance()));
                tokio::select! {
                    () = due => {}
                    // Another label counts at once, and several that change together are told together.
                    Ok(()) = changes.changed() => tokio::time::sleep(SHORTEST_INTERVAL).await,
                    Ok(()) = description.health.changed() => tokio::time::sleep(SHORTEST_INTERVAL).await,
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

/// What was found, as the two messages in which a heartbeat says it: databases have one of their own.
fn health(found: &Found) -> (Vec<DatabaseHealth>, Vec<ResourceHealth>) {
    let (mut databases, mut resources) = (Vec::new(), Vec::new());
    for ((kind, name), problem) in found {
        let (name, healthy) = (name.clone(), problem.is_none());
        let problem = problem.iter().flat_map(|problem| problem.chars()).take(LONGEST_PROBLEM).collect();
        match kind {
            Kind::Database => databases.push(DatabaseHealth { name, healthy, problem }),
            kind => {
                let kind = kind.row().document.to_owned();
                resources.push(ResourceHealth { kind, name, healthy, problem });
            }
        }
    }
    (databases, resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_told_no_longer_than_the_authority_keeps_it() {
        let long = Some("ü".repeat(10_000));
        let found = [Kind::Database, Kind::App].map(|kind| ((kind, "x".to_owned()), long.clone()));
        let (databases, resources) = health(&found.into());
        for problem in [&databases[0].problem, &resources[0].problem] {
            assert_eq!(problem, &"ü".repeat(LONGEST_PROBLEM));
        }
        assert!(!databases[0].healthy && !resources[0].healthy);
    }
}
