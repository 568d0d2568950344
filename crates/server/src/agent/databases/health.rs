//! Whether the databases that this agent serves answer.

use std::collections::BTreeMap;
use std::time::Duration;

use sallyport_access::{Database, DatabaseName, DatabaseTlsMode};
use sallyport_ca::Trust;
use sallyport_databases::service::{ConnectError, probe};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::AgentDatabases;
use super::credentials::settings;

/// How long each may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first pause after something was found that is not well.
const SOON: Duration = Duration::from_secs(5);
/// How many are asked at a time.
const AT_ONCE: usize = 16;

/// What was found, by name: nothing wrong, or what is.
pub(crate) type Found = BTreeMap<DatabaseName, Option<String>>;

/// Asks again and again until `stop`.
pub(crate) async fn run(databases: AgentDatabases, found: watch::Sender<Found>, stop: CancellationToken) {
    let mut changes = databases.known.view.changes();
    let forever = async {
        let mut pause = SOON;
        loop {
            let now = look(&databases).await;
            let is_well = now.values().all(Option::is_none);
            let has_changed = found.send_if_modified(|found| {
                let changed = *found != now;
                *found = now;
                changed
            });
            pause = next(pause, databases.check_interval, is_well, has_changed);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // There may be another one to be asked.
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    };
    tokio::select! {
        () = forever => {}
        () = stop.cancelled() => {}
    }
}

/// How long to wait: what is not well is asked again soon, and less and less often while it stays so.
fn next(pause: Duration, interval: Duration, is_well: bool, has_changed: bool) -> Duration {
    match (is_well, has_changed) {
        (true, _) => interval,
        (false, true) => SOON.min(interval),
        (false, false) => pause.saturating_mul(2).min(interval),
    }
}

async fn look(databases: &AgentDatabases) -> Found {
    let mut waiting = databases.served().into_iter();
    let mut asking = JoinSet::new();
    let mut found = Found::new();
    loop {
        while asking.len() < AT_ONCE
            && let Some(database) = waiting.next()
        {
            let trust = databases.known.view.trust();
            asking.spawn(async move {
                let problem = ask(&database, &trust).await.err().map(|error| error.to_string());
                (database.name.clone(), problem)
            });
        }
        match asking.join_next().await {
            Some(Ok((name, problem))) => drop(found.insert(name, problem)),
            Some(Err(_)) => {}
            None => return found,
        }
    }
}

/// Makes a connection as every session does, and ends it in order before it says who it is: the agent has credentials for
/// sessions of users alone.
async fn ask(database: &Database, trust: &Trust) -> Result<(), ConnectError> {
    let tls = match database.tls.mode {
        DatabaseTlsMode::Disabled => None,
        _ => Some(settings(database, trust, None)?),
    };
    probe(database, tls, PATIENCE).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_is_asked_again_soon_and_not_for_ever() {
        let minute = Duration::from_secs(60);
        let mut pause = next(minute, minute, false, true);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            pauses.push(pause.as_secs());
            pause = next(pause, minute, false, false);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
        assert_eq!(next(SOON, minute, true, true), minute);
        let second = Duration::from_secs(1);
        assert_eq!(next(second, second, false, true), second);
    }
}
