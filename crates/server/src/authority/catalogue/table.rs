//! Which resources there are, in memory.
//!
//! Which there are is in the state, so that proxies and agents hear of it as of everything else. How they are is in
//! memory only, as their agents said last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use sallyport_access::text::Foreign;
use sallyport_access::{Database, HostId, Kind, NodeName};
use sallyport_store::{Store, StoreError};
use time::OffsetDateTime;
use tracing::error;

use crate::authority::catalogue::kept::{Kept, KeptRecord};
use crate::authority::hosts::presence::{OFFLINE_AFTER, Presence};
use crate::authority::storage::PAGE;

/// Databases of a cluster, and resources of the catalogue.
pub(crate) const MOST: usize = 20_000;
/// Longest text of a problem that is kept, in characters; agents tell no longer one.
const LONGEST_PROBLEM: usize = 256;

/// What an agent said last of a resource that it serves.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    healthy: bool,
    problem: String,
    at: OffsetDateTime,
}

/// What an agent says now of one.
#[derive(Debug)]
pub(crate) struct SaidHealth<R: Kept> {
    pub(crate) id: R::Id,
    pub(crate) healthy: bool,
    pub(crate) problem: String,
}

/// A resource as the authority knows it.
#[derive(Debug, Clone)]
pub(crate) struct Known<R> {
    pub(crate) resource: Arc<R>,
    pub(crate) reporters: BTreeMap<HostId, NodeName>,
    pub(crate) health: BTreeMap<HostId, Health>,
}

/// A database as the authority knows it.
pub(crate) type KnownDatabase = Known<Database>;

impl<R: Kept> Known<R> {
    /// Whether it stands in agents' configurations.
    pub(crate) fn is_static(&self) -> bool {
        !self.reporters.is_empty()
    }

    /// Whether this agent serves it. Names of nodes can be shared, so that a name alone is not enough for secrets; see
    /// `DatabaseSessions::served`.
    pub(crate) fn serves(&self, id: HostId, name: &NodeName) -> bool {
        if self.is_static() {
            self.reporters.contains_key(&id)
        } else {
            self.resource.agents().contains(name)
        }
    }

    /// The agents that take connections as TLS from the user's program, those that reach the resource before those that say nothing, and
    /// those that say that they do not reach it last: in this order proxies try them. A name that several have means none of them.
    pub(crate) fn end_to_end_agents(&self, presence: &Presence, now: OffsetDateTime) -> Vec<HostId> {
        let kind = self.resource.kind();
        let found = self.resource.agents().iter().filter_map(|agent| {
            match presence.find(agent.as_str()).as_slice() {
                [one] if self.serves(one.node.id, agent) && one.takes_end_to_end(kind) => Some(one.node.id),
                _ => None,
            }
        });
        let mut agents: Vec<HostId> = found.collect();
        agents.sort_by_key(|id| match self.said(*id, now) {
            Some(said) if said.healthy => 0,
            None => 1,
            Some(_) => 2,
        });
        agents
    }

    /// What an agent has said lately.
    fn said(&self, id: HostId, now: OffsetDateTime) -> Option<&Health> {
        self.health.get(&id).filter(|said| now - said.at < OFFLINE_AFTER)
    }

    /// Whether its agents are there and reach it, and what they say when not.
    pub(crate) fn health(&self, presence: &Presence, now: OffsetDateTime) -> (&'static str, String) {
        let agents = self.resource.agents().iter().flat_map(|agent| presence.find(agent.as_str()));
        let online: Vec<HostId> = agents
            .filter(|known| known.last_seen.is_some_and(|seen| now - seen < OFFLINE_AFTER))
            .map(|known| known.node.id)
            .collect();
        if online.is_empty() {
            return ("offline", String::new());
        }
        let said = || online.iter().filter_map(|id| self.said(*id, now));
        if said().any(|said| said.healthy) {
            return ("healthy", String::new());
        }
        match said().next() {
            Some(said) => ("unhealthy", said.problem.clone()),
            None => ("unknown", String::new()),
        }
    }
}

/// What is kept of a problem's text.
fn cut(text: Foreign) -> String {
    text.as_str().chars().take(LONGEST_PROBLEM).collect()
}

#[derive(Debug)]
struct State<R: Kept> {
    known: BTreeMap<R::Id, Known<R>>,
    /// What each agent reported last, as a hash, with the answer to it.
    answered: HashMap<HostId, Answered>,
    /// Counts changes of which there are: answers of before may no longer hold.
    version: u64,
}

#[derive(Debug)]
struct Answered {
    report: u64,
    version: u64,
    problems: Vec<String>,
}

/// Which there are, in memory.
#[derive(Debug)]
pub(crate) struct Table<R: Kept> {
    state: RwLock<State<R>>,
}

impl<R: Kept> Table<R> {
    /// Reads what there is. One that this release cannot read is left out and stays in the state.
    pub(crate) async fn load(store: &Store, now: OffsetDateTime) -> Result<Self, StoreError> {
        let mut known = BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<KeptRecord<R>>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for stored in page {
                let kind = R::of_key(&stored.name).map(|(kind, _)| kind);
                let read = kind.map(|kind| R::read(kind, &stored.value.yaml));
                match read {
                    Some(Ok(resource)) => {
                        let reporters = stored.value.reporters;
                        let resource = Arc::new(resource);
                        known.insert(resource.id(), Known { resource, reporters, health: BTreeMap::new() });
                    }
                    Some(Err(problem)) => {
                        error!(of = R::STORED, name = stored.name, %problem, "a resource cannot be understood and is left out");
                    }
                    None => error!(
                        of = R::STORED,
                        name = stored.name,
                        "a resource of an unknown kind is left out"
                    ),
                }
            }
        }
        Ok(Self { state: RwLock::new(State { known, answered: HashMap::new(), version: 0 }) })
    }

    fn read(&self) -> parking_lot::RwLockReadGuard<'_, State<R>> {
        self.state.read()
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, State<R>> {
        self.state.write()
    }

    /// Looks at all of them at once.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&BTreeMap<R::Id, Known<R>>) -> T) -> T {
        look(&self.read().known)
    }

    /// Forgets what an agent was answered.
    pub(crate) fn forget_answer(&self, id: HostId) {
        self.write().answered.remove(&id);
    }

    /// One by its name among its kind.
    pub(crate) fn find(&self, kind: Kind, name: &str) -> Option<Known<R>> {
        let id = R::id_of(kind, name)?;
        self.read().known.get(&id).cloned()
    }

    /// Every one behind `after`, in the order of names.
    pub(crate) fn after(&self, after: Option<&R::Id>) -> Vec<Known<R>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.read().known.range::<R::Id, _>((from, Unbounded)).map(|(_, known)| known.clone()).collect()
    }

    pub(crate) fn put(&self, resource: Arc<R>, reporters: BTreeMap<HostId, NodeName>) {
        let mut table = self.write();
        table.version += 1;
        let health = table.known.remove(&resource.id()).map(|before| before.health).unwrap_or_default();
        table.known.insert(resource.id(), Known { resource, reporters, health });
    }

    pub(crate) fn remove(&self, id: &R::Id) {
        let mut table = self.write();
        table.version += 1;
        table.known.remove(id);
    }
}

impl<R: Kept> Table<R> {
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
        said: Vec<SaidHealth<R>>,
        now: OffsetDateTime,
    ) {
        if said.is_empty() {
            return;
        }
        let mut table = self.write();
        for one in said.into_iter().take(MOST) {
            let Some(known) = table.known.get_mut(&one.id).filter(|known| known.serves(id, name)) else {
                continue;
            };
            let problem = if one.healthy { String::new() } else { cut(Foreign::new(&one.problem)) };
            known.health.insert(id, Health { healthy: one.healthy, problem, at: now });
            if known.health.len() > known.resource.agents().len() {
                let Known { resource, reporters, health } = known;
                // Of agents that no longer serve it; those of a written one are known by name alone, so the oldest goes.
                health.retain(|id, _| reporters.is_empty() || reporters.contains_key(id));
                if health.len() > resource.agents().len()
                    && let Some(oldest) = health.iter().min_by_key(|(_, said)| said.at).map(|(id, _)| *id)
                {
                    health.remove(&oldest);
                }
            }
        }
    }
}
