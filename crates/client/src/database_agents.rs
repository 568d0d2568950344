//! Which agents serve a database end to end, as the authority has said by TLS that ends there: so that connections to
//! databases need not ask each time, and a proxy has no say in where the user's own TLS goes, or whether there is any.
//!
//! ```text
//! PROFILE/agents.json   what was said last, for each database
//! ```

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_access::HostId;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::{DatabaseInfo, ListDatabasesRequest};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::connect;
use super::profile::{Stored, write_private};
use crate::error::{Doing, Error, Result};

const FILE: &str = "agents.json";
/// Databases that are remembered; those of which it was heard longest ago go first.
const MOST: usize = 1024;
/// So long an answer is not asked for again; and that no agent of a database takes TLS of the user's own counts no longer than this.
const FRESH: time::Duration = time::Duration::seconds(60);
/// So long an answer is used while the next is asked for beside. An agent that an administrator takes from a database is
/// believed so much longer, where a proxy that was taken over leads to it.
const USABLE: time::Duration = time::Duration::hours(1);
/// How long the authority may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was said of one database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    /// None: they are of an earlier release.
    agents: Vec<HostId>,
    /// In seconds since 1970.
    at: i64,
}

impl Said {
    fn is_younger(&self, age: time::Duration, now: OffsetDateTime) -> bool {
        (0..age.whole_seconds()).contains(&(now.unix_timestamp() - self.at))
    }
}

type All = BTreeMap<String, Said>;

fn read(stored: &Stored) -> All {
    let text = fs::read_to_string(stored.directory.join(FILE)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Notes what the authority has said. A memory that cannot be written costs time, and nothing else.
pub fn remember(stored: &Stored, databases: &[DatabaseInfo]) {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let mut all = read(stored);
    for database in databases {
        let agents = database.end_to_end_agents.iter().filter_map(|agent| agent.parse().ok()).collect();
        all.insert(database.name.clone(), Said { agents, at: now });
    }
    while all.len() > MOST {
        let Some(oldest) = all.iter().min_by_key(|(_, said)| said.at).map(|(name, _)| name.clone()) else {
            break;
        };
        all.remove(&oldest);
    }
    let written = serde_json::to_string(&all)
        .doing("encode the agents")
        .and_then(|text| write_private(&stored.directory.join(FILE), &text));
    if let Err(error) = written {
        tracing::debug!(error = error.told(), "agents of databases are not remembered");
    }
}

/// The agents to which a connection to a database is TLS of the user's own. None: the authority says that they are all of an
/// earlier release.
///
/// # Errors
/// When it is not known and the authority cannot be asked, or says that the user has no such database.
pub fn agents<'a>(stored: &'a Stored, database: &'a str) -> BoxFuture<'a, Result<Vec<HostId>>> {
    Box::pin(async move {
        let now = OffsetDateTime::now_utc();
        match read(stored).remove(database) {
            Some(said) if said.is_younger(FRESH, now) => Ok(said.agents),
            Some(said) if !said.agents.is_empty() && said.is_younger(USABLE, now) => {
                ask_beside(stored, database);
                Ok(said.agents)
            }
            _ => ask(stored, database).await,
        }
    })
}

/// Asks the authority now.
///
/// # Errors
/// As [`agents`].
pub fn ask<'a>(stored: &'a Stored, database: &'a str) -> BoxFuture<'a, Result<Vec<HostId>>> {
    Box::pin(async move {
        let unasked = |why: &str| Error::Unasked { database: database.to_owned(), why: why.to_owned() };
        let asking = async {
            let channel = connect::authority(stored).await.map_err(|error| unasked(&error.told()))?;
            let mut client = DatabasesClient::new(channel);
            let mut request =
                ListDatabasesRequest { search: database.to_owned(), ..ListDatabasesRequest::default() };
            loop {
                let answer = client.list_databases(request.clone()).await;
                let page = answer.map_err(|status| unasked(status.message()))?.into_inner();
                if let Some(found) = page.databases.into_iter().find(|one| one.name == database) {
                    return Ok(found);
                }
                if page.next.is_empty() {
                    return Err(Error::NoDatabase(database.to_owned()));
                }
                request.after = page.next;
            }
        };
        let late = |_| unasked(&format!("no answer within {} s", PATIENCE.as_secs()));
        let found = tokio::time::timeout(PATIENCE, asking).await.map_err(late)??;
        remember(stored, std::slice::from_ref(&found));
        Ok(found.end_to_end_agents.iter().filter_map(|agent| agent.parse().ok()).collect())
    })
}

/// What is being asked for beside connections that do not wait for it.
static ASKING: LazyLock<Mutex<HashSet<(PathBuf, String)>>> = LazyLock::new(Mutex::default);

fn asking() -> MutexGuard<'static, HashSet<(PathBuf, String)>> {
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask_beside(stored: &Stored, database: &str) {
    let key = (stored.directory.clone(), database.to_owned());
    if !asking().insert(key.clone()) {
        return;
    }
    let (stored, database) = (stored.clone(), database.to_owned());
    tokio::spawn(async move {
        if let Err(error) = ask(&stored, &database).await {
            tracing::debug!(error = error.told(), database, "what is known of the agents is not renewed");
        }
        asking().remove(&key);
    });
}

#[cfg(test)]
mod tests {
    use sallyport_access::{ClusterName, UserName};

    use super::*;
    use crate::profile::Profile;

    fn stored(directory: &std::path::Path) -> Stored {
        let profile = Profile {
            // Nothing listens there.
            proxy: "127.0.0.1:1".to_owned(),
            cluster: ClusterName::new("test.example").unwrap(),
            user: UserName::new("alice").unwrap(),
            roles: Vec::new(),
            logins: Vec::new(),
            valid_until: OffsetDateTime::UNIX_EPOCH,
        };
        Stored { profile, directory: directory.to_owned() }
    }

    fn info(name: &str, agents: &[HostId]) -> DatabaseInfo {
        let end_to_end_agents = agents.iter().map(ToString::to_string).collect();
        DatabaseInfo { name: name.to_owned(), end_to_end_agents, ..DatabaseInfo::default() }
    }

    fn age(stored: &Stored, by: time::Duration) {
        let mut all = read(stored);
        all.values_mut().for_each(|said| said.at -= by.whole_seconds());
        fs::write(stored.directory.join(FILE), serde_json::to_string(&all).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn that_there_is_no_way_end_to_end_is_believed_for_a_minute_and_the_authority_alone() {
        let directory = tempfile::tempdir().unwrap();
        let stored = stored(directory.path());
        let agent = HostId::new();
        assert!(agents(&stored, "prod").await.is_err(), "the authority was not asked yet");
        remember(&stored, &[info("prod", &[agent]), info("old", &[])]);
        assert_eq!(agents(&stored, "prod").await.unwrap(), [agent]);
        assert!(agents(&stored, "old").await.unwrap().is_empty());
        age(&stored, FRESH);
        // Where the user's TLS goes is known; that there is none has to be heard again.
        assert_eq!(agents(&stored, "prod").await.unwrap(), [agent]);
        assert!(agents(&stored, "old").await.is_err());
        age(&stored, USABLE);
        assert!(agents(&stored, "prod").await.is_err());
        // Nor does a file with a time to come stop the asking.
        age(&stored, -3 * USABLE);
        assert!(agents(&stored, "prod").await.is_err());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let stored = stored(directory.path());
        let many: Vec<_> = (0..=MOST).map(|number| info(&format!("db-{number}"), &[])).collect();
        remember(&stored, &many);
        assert_eq!(read(&stored).len(), MOST);
    }
}
