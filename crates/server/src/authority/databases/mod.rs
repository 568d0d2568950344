//! The databases: documents that administrators write, and those that agents report of their own configuration.
//!
//! Which there are is in the state, so that proxies and agents hear of it as of everything else. How they are is in
//! memory only, as their agents said last.

mod certified;
mod documents;
mod holders;
mod opened;
mod reported;
mod service;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use sallyport_access::{Database, DatabaseName, HostId, NodeName};
use sallyport_store::{Kind, Store, StoreError};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tracing::error;

pub(super) use service::Service;

use super::fleet::OFFLINE_AFTER;
use super::view::{PAGE, Presence};

/// A database, under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DatabaseRecord {
    /// The document, in which `via` has the agents.
    pub(super) yaml: String,
    /// The agents that report it from their configuration; none for one that an administrator wrote.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) reporters: BTreeMap<HostId, NodeName>,
}

impl DatabaseRecord {
    /// Whether this agent serves it. Documents are read only where they name agents.
    pub(super) fn is_for(&self, id: HostId, name: &NodeName) -> bool {
        if !self.reporters.is_empty() {
            return self.reporters.contains_key(&id);
        }
        Database::parse(&self.yaml).is_ok_and(|database| database.agents.contains(name))
    }
}

impl Kind for DatabaseRecord {
    const KIND: &'static str = "db";
}

/// What an agent said last of a database that it serves.
#[derive(Debug, Clone)]
struct Health {
    healthy: bool,
    problem: String,
    at: OffsetDateTime,
}

/// A database as the authority knows it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) database: Arc<Database>,
    reporters: BTreeMap<HostId, NodeName>,
    health: BTreeMap<HostId, Health>,
}

impl Known {
    /// Whether it stands in agents' configurations.
    pub(super) fn is_static(&self) -> bool {
        !self.reporters.is_empty()
    }

    /// Whether this agent serves it. Names of nodes can be shared, so that a name alone is not enough for secrets; see
    /// [`super::Inner::served`].
    fn serves(&self, id: HostId, name: &NodeName) -> bool {
        if self.is_static() { self.reporters.contains_key(&id) } else { self.database.agents.contains(name) }
    }

    /// The agents that take connections as TLS from the user's program. A name that several have means none of them.
    fn end_to_end_agents(&self, presence: &Presence) -> Vec<HostId> {
        let found =
            self.database.agents.iter().filter_map(|agent| match presence.find(agent.as_str()).as_slice() {
                [one] if self.serves(one.node.id, agent) && one.databases_end_to_end => Some(one.node.id),
                _ => None,
            });
        found.collect()
    }

    /// Whether its agents are there and reach it, and what they say when not.
    fn health(&self, presence: &Presence, now: OffsetDateTime) -> (&'static str, String) {
        let agents = self.database.agents.iter().flat_map(|agent| presence.find(agent.as_str()));
        let online: Vec<HostId> = agents
            .filter(|known| known.last_seen.is_some_and(|seen| now - seen < OFFLINE_AFTER))
            .map(|known| known.node.id)
            .collect();
        if online.is_empty() {
            return ("offline", String::new());
        }
        let said = || {
            online.iter().filter_map(|id| self.health.get(id)).filter(|said| now - said.at < OFFLINE_AFTER)
        };
        if said().any(|said| said.healthy) {
            return ("healthy", String::new());
        }
        match said().next() {
            Some(said) => ("unhealthy", said.problem.clone()),
            None => ("unknown", String::new()),
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    known: BTreeMap<DatabaseName, Known>,
    /// What each agent reported last, as a hash, with the answer to it.
    answered: HashMap<HostId, Answered>,
    /// Counts changes of which databases there are: answers of before may no longer hold.
    version: u64,
}

#[derive(Debug)]
struct Answered {
    report: u64,
    version: u64,
    problems: Vec<String>,
}

/// Which databases there are, in memory.
#[derive(Debug, Default)]
pub(super) struct Databases {
    table: RwLock<Table>,
    /// Held while records change, so that two agents with one name do not overtake each other.
    changing: tokio::sync::Mutex<()>,
    makers: certified::Makers,
    holders: holders::Holders,
    openings: opened::Openings,
}

impl Databases {
    /// Reads what there is. One that this release cannot read is left out and stays in the state.
    pub(super) async fn load(store: &Store, now: OffsetDateTime) -> Result<Self, StoreError> {
        let mut known = BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<DatabaseRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for stored in page {
                match Database::parse(&stored.value.yaml) {
                    Ok(database) => {
                        let database = Arc::new(database);
                        let reporters = stored.value.reporters;
                        let one = Known { database, reporters, health: BTreeMap::new() };
                        known.insert(one.database.name.clone(), one);
                    }
                    Err(problem) => {
                        error!(database = stored.name, %problem, "a database cannot be understood and is left out");
                    }
                }
            }
        }
        Ok(Self { table: RwLock::new(Table { known, ..Table::default() }), ..Self::default() })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// One by its name.
    pub(super) fn find(&self, name: &str) -> Option<Known> {
        let name = DatabaseName::new(name).ok()?;
        self.read().known.get(&name).cloned()
    }

    /// Every one behind `after`, in the order of names.
    fn after(&self, after: Option<&DatabaseName>) -> Vec<Known> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.read()
            .known
            .range::<DatabaseName, _>((from, Unbounded))
            .map(|(_, known)| known.clone())
            .collect()
    }

    fn put(&self, database: Arc<Database>, reporters: BTreeMap<HostId, NodeName>) {
        let mut table = self.write();
        table.version += 1;
        let health = table.known.remove(&database.name).map(|before| before.health).unwrap_or_default();
        table.known.insert(database.name.clone(), Known { database, reporters, health });
    }

    fn remove(&self, name: &DatabaseName) {
        let mut table = self.write();
        table.version += 1;
        table.known.remove(name);
    }
}
