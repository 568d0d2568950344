//! Which agents serve a resource end to end, as the authority has said by TLS that ends there: so that connections need not
//! ask each time, and a proxy has no say in where the user's own TLS goes, or whether there is any.
//!
//! ```text
//! PROFILE/agents.json   what was said last: of a database by its name, of anything else by KIND/NAME
//! ```

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use sallyport_access::HostId;
use sallyport_wire::v1::catalogue_client::CatalogueClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::{CatalogueItem, DatabaseInfo, ListCatalogueRequest, ListDatabasesRequest};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tonic::{Code, Status};

use super::channel::Channel;
use super::connect;
use super::profile::{Stored, write_private};
use crate::error::{Doing, Error, Result};

const FILE: &str = "agents.json";
/// Resources that are remembered; those of which it was heard longest ago go first.
const MOST: usize = 1024;
/// So long an answer is not asked for again; and that no agent takes TLS of the user's own counts no longer than this.
const FRESH: time::Duration = time::Duration::seconds(60);
/// So long an answer is used while the next is asked for beside. An agent that an administrator takes from a resource is
/// believed so much longer, where a proxy that was taken over leads to it.
const USABLE: time::Duration = time::Duration::hours(1);
/// How long the authority may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was said of one resource.
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

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A database.
    Database(&'a str),
    /// A resource of the catalogue.
    Resource {
        /// Its kind, as documents have it.
        kind: &'a str,
        /// Its name.
        name: &'a str,
    },
}

impl Asked<'_> {
    /// By what it is remembered. Names of databases have no slash.
    fn key(self) -> String {
        match self {
            Self::Database(name) => name.to_owned(),
            Self::Resource { kind, name } => format!("{kind}/{name}"),
        }
    }

    fn shown(self) -> String {
        match self {
            Self::Database(name) => name.to_owned(),
            Self::Resource { kind, name } => format!("{kind} {name}"),
        }
    }

    /// An authority that says no is not one that is away: what is known of before would not do, either.
    fn answered(self, status: Status) -> Error {
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded => {
                Error::Unasked { about: self.shown(), why: status.message().to_owned() }
            }
            _ => Error::answered(format!("ask which agents serve {}", self.shown()), status),
        }
    }
}

/// Notes what the authority has said of databases.
pub fn remember(stored: &Stored, databases: &[DatabaseInfo]) {
    note(stored, databases.iter().map(|one| (one.name.clone(), one.end_to_end_agents.as_slice())));
}

/// Notes what the authority has said of resources of the catalogue.
pub fn remember_listed(stored: &Stored, resources: &[CatalogueItem]) {
    let key = |one: &CatalogueItem| Asked::Resource { kind: &one.kind, name: &one.name }.key();
    note(stored, resources.iter().map(|one| (key(one), one.end_to_end_agents.as_slice())));
}

/// A memory that cannot be written costs time, and nothing else.
fn note<'a>(stored: &Stored, said: impl Iterator<Item = (String, &'a [String])>) {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let mut all = read(stored);
    for (key, agents) in said {
        all.insert(key, Said { agents: ids(agents), at: now });
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
        tracing::debug!(error = error.told(), "agents are not remembered");
    }
}

fn ids(agents: &[String]) -> Vec<HostId> {
    agents.iter().filter_map(|agent| agent.parse().ok()).collect()
}

/// The agents to which a connection is TLS of the user's own. None: the authority says that none is known that takes it.
///
/// # Errors
/// When it is not known and the authority cannot be asked, or says that the user has no such resource.
pub fn agents<'a>(stored: &'a Stored, asked: Asked<'a>) -> BoxFuture<'a, Result<Vec<HostId>>> {
    Box::pin(async move {
        let now = OffsetDateTime::now_utc();
        match read(stored).remove(&asked.key()) {
            Some(said) if said.is_younger(FRESH, now) => Ok(said.agents),
            Some(said) if !said.agents.is_empty() && said.is_younger(USABLE, now) => {
                ask_beside(stored, asked);
                Ok(said.agents)
            }
            _ => ask(stored, asked).await,
        }
    })
}

/// Asks the authority now.
///
/// # Errors
/// As [`agents`].
pub fn ask<'a>(stored: &'a Stored, asked: Asked<'a>) -> BoxFuture<'a, Result<Vec<HostId>>> {
    Box::pin(async move {
        let unasked = |why: &str| Error::Unasked { about: asked.shown(), why: why.to_owned() };
        let answer = |status| asked.answered(status);
        let asking = async {
            let channel = connect::authority(stored).await.map_err(|error| unasked(&error.told()))?;
            match asked {
                Asked::Database(name) => {
                    let found = database(channel, name).await.map_err(answer)?;
                    let found = found.ok_or_else(|| Error::NoDatabase(name.to_owned()))?;
                    remember(stored, std::slice::from_ref(&found));
                    Ok(ids(&found.end_to_end_agents))
                }
                Asked::Resource { kind, name } => {
                    let found = listed(channel, kind, name).await.map_err(answer)?;
                    let none = || Error::NoResource { kind: kind.to_owned(), name: name.to_owned() };
                    let found = found.ok_or_else(none)?;
                    remember_listed(stored, std::slice::from_ref(&found));
                    Ok(ids(&found.end_to_end_agents))
                }
            }
        };
        let late = |_| unasked(&format!("no answer within {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, asking).await.map_err(late)?
    })
}

async fn database(channel: Channel, name: &str) -> Result<Option<DatabaseInfo>, Status> {
    let mut client = DatabasesClient::new(channel);
    let mut request = ListDatabasesRequest { search: name.to_owned(), ..ListDatabasesRequest::default() };
    loop {
        let page = client.list_databases(request.clone()).await?.into_inner();
        if let Some(found) = page.databases.into_iter().find(|one| one.name == name) {
            return Ok(Some(found));
        }
        if page.next.is_empty() {
            return Ok(None);
        }
        request.after = page.next;
    }
}

async fn listed(channel: Channel, kind: &str, name: &str) -> Result<Option<CatalogueItem>, Status> {
    let mut client = CatalogueClient::new(channel);
    let mut request = ListCatalogueRequest {
        kind: kind.to_owned(),
        search: name.to_owned(),
        ..ListCatalogueRequest::default()
    };
    loop {
        let page = client.list(request.clone()).await?.into_inner();
        if let Some(found) = page.items.into_iter().find(|one| one.name == name) {
            return Ok(Some(found));
        }
        if page.next.is_empty() {
            return Ok(None);
        }
        request.after = page.next;
    }
}

/// What is being asked for beside connections that do not wait for it.
static ASKING: LazyLock<Mutex<HashSet<(PathBuf, String)>>> = LazyLock::new(Mutex::default);

fn asking() -> MutexGuard<'static, HashSet<(PathBuf, String)>> {
    ASKING.lock()
}

fn ask_beside(stored: &Stored, asked: Asked<'_>) {
    let key = (stored.directory.clone(), asked.key());
    if !asking().insert(key.clone()) {
        return;
    }
    let stored = stored.clone();
    let (kind, name) = match asked {
        Asked::Database(name) => (None, name.to_owned()),
        Asked::Resource { kind, name } => (Some(kind.to_owned()), name.to_owned()),
    };
    tokio::spawn(async move {
        let asked = match &kind {
            None => Asked::Database(&name),
            Some(kind) => Asked::Resource { kind, name: &name },
        };
        if let Err(error) = ask(&stored, asked).await {
            tracing::debug!(error = error.told(), name, "what is known of the agents is not renewed");
        }
        asking().remove(&key);
    });
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::error::Kind;

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
        let stored = Stored::of_test(directory.path());
        let agent = HostId::new();
        assert!(agents(&stored, Asked::Database("prod")).await.is_err(), "the authority was not asked yet");
        remember(&stored, &[info("prod", &[agent]), info("old", &[])]);
        assert_eq!(agents(&stored, Asked::Database("prod")).await.unwrap(), [agent]);
        assert!(agents(&stored, Asked::Database("old")).await.unwrap().is_empty());
        age(&stored, FRESH);
        // Where the user's TLS goes is known; that there is none has to be heard again.
        assert_eq!(agents(&stored, Asked::Database("prod")).await.unwrap(), [agent]);
        assert!(agents(&stored, Asked::Database("old")).await.is_err());
        age(&stored, USABLE);
        assert!(agents(&stored, Asked::Database("prod")).await.is_err());
        // Nor does a file with a time to come stop the asking.
        age(&stored, -3 * USABLE);
        assert!(agents(&stored, Asked::Database("prod")).await.is_err());
    }

    #[test]
    fn an_authority_that_says_no_is_not_one_that_is_away() {
        let asked = Asked::Resource { kind: "app", name: "wiki" };
        let kind = |code| asked.answered(Status::new(code, "alice is locked")).kind();
        assert_eq!(kind(Code::Unavailable), Kind::Connection);
        assert_eq!(kind(Code::DeadlineExceeded), Kind::Connection);
        assert_eq!(kind(Code::PermissionDenied), Kind::Refused);
        assert_eq!(kind(Code::Unauthenticated), Kind::NotLoggedIn);
        assert_eq!(kind(Code::Unimplemented), Kind::Failed);
        let told = asked.answered(Status::unimplemented("")).told();
        assert_eq!(told, "cannot ask which agents serve app wiki: the cluster does not know this request");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let stored = Stored::of_test(directory.path());
        let many: Vec<_> = (0..=MOST).map(|number| info(&format!("db-{number}"), &[])).collect();
        remember(&stored, &many);
        assert_eq!(read(&stored).len(), MOST);
    }
}
