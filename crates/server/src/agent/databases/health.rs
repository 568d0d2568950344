//! Whether the databases that this agent serves answer.

use std::collections::BTreeMap;
use std::time::Duration;

use sallyport_access::{Database, DatabaseName, DatabaseTlsMode};
use sallyport_databases::postgres::startup;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::AgentDatabases;
use crate::config::HostPort;

/// How often each is asked.
const INTERVAL: Duration = Duration::from_secs(20);
/// How long each may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many are asked at a time.
const AT_ONCE: usize = 16;

/// What was found, by name: nothing wrong, or what is.
pub(crate) type Found = BTreeMap<DatabaseName, Option<String>>;

/// Asks again and again until `stop`.
pub(crate) async fn run(databases: AgentDatabases, found: watch::Sender<Found>, stop: CancellationToken) {
    let mut changes = databases.known.view.changes();
    let forever = async {
        loop {
            let now = look(&databases).await;
            found.send_if_modified(|found| {
                let changed = *found != now;
                *found = now;
                changed
            });
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
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

async fn look(databases: &AgentDatabases) -> Found {
    let mut waiting = databases.served().into_iter();
    let mut asking = JoinSet::new();
    let mut found = Found::new();
    loop {
        while asking.len() < AT_ONCE
            && let Some(database) = waiting.next()
        {
            asking.spawn(async move { (database.name.clone(), probe(&database).await.err()) });
        }
        match asking.join_next().await {
            Some(Ok((name, problem))) => drop(found.insert(name, problem)),
            Some(Err(_)) => {}
            None => return found,
        }
    }
}

/// Asks for TLS, as every session does, and goes away.
async fn probe(database: &Database) -> Result<(), String> {
    let asking = async {
        let address: HostPort =
            database.address.parse().map_err(|problem| format!("the address {problem}"))?;
        let mut stream = TcpStream::connect((address.host.as_str(), address.port))
            .await
            .map_err(|error| error.to_string())?;
        stream.write_all(&startup::ask_for_tls()).await.map_err(|error| error.to_string())?;
        let answer =
            stream.read_u8().await.map_err(|_| "it closed the connection without a word".to_owned())?;
        match answer {
            startup::ACCEPTED => Ok(()),
            startup::DECLINED if database.tls.mode == DatabaseTlsMode::Disabled => Ok(()),
            startup::DECLINED => Err("it does not speak TLS (ssl = off in its configuration)".to_owned()),
            _ => Err("what answers there is not PostgreSQL".to_owned()),
        }
    };
    let answered = tokio::time::timeout(PATIENCE, asking).await;
    answered
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
        .map_err(|problem| format!("{}: {problem}", database.address))
}
