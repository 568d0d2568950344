//! Which databases there are, in memory.
//!
//! Which there are is in the state, so that proxies and agents hear of it as of everything else. How they are is in
//! memory only, as their agents said last.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use sallyport_access::{Database, DatabaseName, HostId, NodeName};
use sallyport_store::{Kind, Store, StoreError};
use sallyport_wire::v1;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tracing::error;

use crate::authority::hosts::presence::{OFFLINE_AFTER, Presence};
use crate::authority::storage::PAGE;

/// Databases of a cluster.
pub(crate) const MOST_DATABASES: usize = 20_000;
/// Longest text of a problem that is kept.
const LONGEST_PROBLEM: usize = 256;

/// A database, under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatabaseRecord {
    /// The document, in which `via` has the agents.
    pub(crate) yaml: String,
    /// The agents that report it from their configuration; none for one that an administrator wrote.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) reporters: BTreeMap<HostId, NodeName>,
}

impl DatabaseRecord {
    /// Whether this agent serves it. Documents are read only where they name agents.
    pub(crate) fn is_for(&self, id: HostId, name: &NodeName) -> bool {
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
pub(crate) struct Health {
    healthy: bool,
    problem: String,
    at: OffsetDateTime,
}

/// A database as the authority knows it.
#[derive(Debug, Clone)]
pub(crate) struct KnownDatabase {
    pub(crate) database: Arc<Database>,
    pub(crate) reporters: BTreeMap<HostId, NodeName>,
    pub(crate) health: BTreeMap<HostId, Health>,
}

impl KnownDatabase {
    /// Whether it stands in agents' configurations.
    pub(crate) fn is_static(&self) -> bool {
        !self.reporters.is_empty()
    }

    /// Whether this agent serves it. Names of nodes can be shared, so that a name alone is not enough for secrets; see
    /// `DatabaseSessions::served`.
    pub(crate) fn serves(&self, id: HostId, name: &NodeName) -> bool {
        if self.is_static() { self.reporters.contains_key(&id) } else { self.database.agents.contains(name) }
    }

    /// The agents that take connections as TLS from the user's program. A name that several have means none of them.
    pub(crate) fn end_to_end_agents(&self, presence: &Presence) -> Vec<HostId> {
        let found =
            self.database.agents.iter().filter_map(|agent| match presence.find(agent.as_str()).as_slice() {
                [one] if self.serves(one.node.id, agent) && one.databases_end_to_end => Some(one.node.id),
                _ => None,
            });
        found.collect()
    }

    /// Whether its agents are there and reach it, and what they say when not.
    pub(crate) fn health(&self, presence: &Presence, now: OffsetDateTime) -> (&'static str, String) {
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
    known: BTreeMap<DatabaseName, KnownDatabase>,
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
pub(crate) struct DatabaseTable {
    table: RwLock<Table>,
}

impl DatabaseTable {
    /// Reads what there is. One that this release cannot read is left out and stays in the state.
    pub(crate) async fn load(store: &Store, now: OffsetDateTime) -> Result<Self, StoreError> {
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
                        let one = KnownDatabase { database, reporters, health: BTreeMap::new() };
                        known.insert(one.database.name.clone(), one);
                    }
                    Err(problem) => {
                        error!(database = stored.name, %problem, "a database cannot be understood and is left out");
                    }
                }
            }
        }
        Ok(Self { table: RwLock::new(Table { known, ..Table::default() }) })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at all of them at once.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&BTreeMap<DatabaseName, KnownDatabase>) -> T) -> T {
        look(&self.read().known)
    }

    /// Forgets what an agent was answered.
    pub(crate) fn forget_answer(&self, id: HostId) {
        self.write().answered.remove(&id);
    }

    /// One by its name.
    pub(crate) fn find(&self, name: &str) -> Option<KnownDatabase> {
        let name = DatabaseName::new(name).ok()?;
        self.read().known.get(&name).cloned()
    }

    /// Every one behind `after`, in the order of names.
    pub(crate) fn after(&self, after: Option<&DatabaseName>) -> Vec<KnownDatabase> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.read()
            .known
            .range::<DatabaseName, _>((from, Unbounded))
            .map(|(_, known)| known.clone())
            .collect()
    }

    pub(crate) fn put(&self, database: Arc<Database>, reporters: BTreeMap<HostId, NodeName>) {
        let mut table = self.write();
        table.version += 1;
        let health = table.known.remove(&database.name).map(|before| before.health).unwrap_or_default();
        table.known.insert(database.name.clone(), KnownDatabase { database, reporters, health });
    }

    pub(crate) fn remove(&self, name: &DatabaseName) {
        let mut table = self.write();
        table.version += 1;
        table.known.remove(name);
    }
}

impl DatabaseTable {
    /// The answer to a report that says what the last one said.
    pub(crate) fn answered(&self, id: HostId, report: u64) -> Option<Vec<String>> {
        let table = self.read();
        let last = table.answered.get(&id)?;
        (last.report == report && last.version == table.version).then(|| last.problems.clone())
    }

    /// Notes an answer; says whether its problems are news.
    pub(crate) fn answer(&self, id: HostId, report: u64, problems: &[String]) -> bool {
        let mut table = self.write();
        let version = table.version;
        let last = table.answered.insert(id, Answered { report, version, problems: problems.to_vec() });
        !problems.is_empty() && last.is_none_or(|last| last.problems != problems)
    }

    /// Takes what an agent says of the health of what it serves.
    pub(crate) fn take_health(
        &self,
        id: HostId,
        name: &NodeName,
        said: Vec<v1::DatabaseHealth>,
        now: OffsetDateTime,
    ) {
        if said.is_empty() {
            return;
        }
        let mut table = self.write();
        for one in said.into_iter().take(MOST_DATABASES) {
            let Ok(database) = DatabaseName::new(one.name) else { continue };
            let Some(known) = table.known.get_mut(&database).filter(|known| known.serves(id, name)) else {
                continue;
            };
            let text = one.problem.chars().map(|c| if c.is_control() { ' ' } else { c });
            let problem = if one.healthy { String::new() } else { text.take(LONGEST_PROBLEM).collect() };
            known.health.insert(id, Health { healthy: one.healthy, problem, at: now });
            if known.health.len() > known.database.agents.len() {
                let KnownDatabase { database, reporters, health } = known;
                // Of agents that no longer serve it; those of a written one are known by name alone, so the oldest goes.
                health.retain(|id, _| reporters.is_empty() || reporters.contains_key(id));
                if health.len() > database.agents.len()
                    && let Some(oldest) = health.iter().min_by_key(|(_, said)| said.at).map(|(id, _)| *id)
                {
                    health.remove(&oldest);
                }
            }
        }
    }
}
