//! What proxies and nodes follow of the state: policy, trust, nodes and databases, as each may see them.

use std::collections::HashSet;
use std::sync::Arc;

use sallyport_access::{HostId, HostRole, Kind, Listed, Lock, LockTarget, Nature, NodeName, Principal, Role};
use sallyport_store::{Change, Item, Store, StoreError, Stored, typed};
use sallyport_wire::v1;
use sallyport_wire::v1::watch_event::Event as WatchChange;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::{Caller, shown};
use crate::authority::catalogue::kept::{DatabaseRecord, Kept as _, ListedRecord, of_state, prefix};
use crate::authority::gate::calls::Gate;
use crate::authority::issuance::authorities::Authorities;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::records::{LockRecord, NodeRecord, RoleRecord, SessionPolicyRecord};
use crate::authority::resources::documents::{node_yaml, resource};
use crate::authority::storage::storage;
use crate::authority::streams::{Answers, Line, Over, Served, StreamPlace, Streams};

/// Changes that wait for a watcher.
const WATCH_QUEUE: usize = 1024;
/// Kinds in one watch. There are four, and those of resources.
const MOST_KINDS: usize = 16;

fn own_node_id(caller: &Caller) -> Option<HostId> {
    match caller.identity().map(|identity| &identity.principal) {
        Some(Principal::Host { id, role: HostRole::Node, .. }) => Some(*id),
        _ => None,
    }
}

/// The part of what is stored that a watcher sees: all of it, or for a node itself, the servers that it is the gateway
/// to, and what it serves.
struct Part {
    node: Option<(HostId, NodeName)>,
    /// Kinds of the catalogue that the watcher does not ask for. A host of an earlier release knows nothing of them, and would not
    /// understand a role or a lock that names one, which keeps it from all that follows.
    unknown: Vec<Kind>,
    /// Keys of what the watcher has been told of, among the kinds of which it is told only a part.
    told: HashSet<String>,
}

impl Part {
    fn of(caller: &Caller, kinds: &[String]) -> Self {
        let unknown = Kind::listed().filter(|kind| !kinds.iter().any(|asked| asked == kind.row().document));
        let node = match caller.identity().map(|identity| &identity.principal) {
            Some(Principal::Host { id, name, role: HostRole::Node }) => Some((*id, name.clone())),
            _ => None,
        };
        Self { node, unknown: unknown.collect(), told: HashSet::new() }
    }

    fn put(&mut self, item: Item) -> Result<Option<WatchChange>, Status> {
        if let Some((id, name)) = &self.node
            && let Some(is_for) = serves(&item, *id, name)?
        {
            if !is_for {
                return Ok(self.delete(&item.key));
            }
            self.told.insert(item.key.clone());
        }
        if !self.unknown.is_empty() && item.key.starts_with("role/") {
            return self.role(item).map(|resource| Some(WatchChange::Put(resource)));
        }
        if !self.unknown.is_empty() && item.key.starts_with("lock/") {
            if self.is_on_unknown(&item)? {
                // It may have been on something else until now.
                return Ok(self.delete(&item.key));
            }
            self.told.insert(item.key.clone());
        }
        let Some((id, name)) = self.node.as_ref().filter(|_| item.key.starts_with("node/")) else {
            return item_resource(item).map(|resource| Some(WatchChange::Put(resource)));
        };
        let key = item.key.clone();
        let stored = typed::decode::<NodeRecord>(item).map_err(|error| storage(&error))?;
        let server = stored.value.openssh.as_ref();
        if stored.value.id != *id && server.and_then(|server| server.via.as_ref()) != Some(name) {
            // It may have been this node's until now.
            return Ok(self.delete(&key));
        }
        self.told.insert(key);
        Ok(Some(WatchChange::Put(node_resource(&stored))))
    }

    /// A role without what it says of kinds that the watcher does not know.
    fn role(&self, item: Item) -> Result<v1::Resource, Status> {
        let told = item_resource(item)?;
        let less = Role::parse(&told.yaml).ok().and_then(|role| role.without(&self.unknown));
        Ok(match less {
            Some(role) => v1::Resource { yaml: role.to_yaml(), ..told },
            None => told,
        })
    }

    /// Whether a lock is on something of a kind that the watcher does not know.
    fn is_on_unknown(&self, item: &Item) -> Result<bool, Status> {
        let stored = typed::decode::<LockRecord>(item.clone()).map_err(|error| storage(&error))?;
        let lock = Lock::parse(&stored.value.yaml);
        Ok(lock.is_ok_and(
            |lock| matches!(&lock.target, LockTarget::Resource(kind, _) if self.unknown.contains(kind)),
        ))
    }

    fn delete(&mut self, key: &str) -> Option<WatchChange> {
        let (kind, name) = of_state(key)?;
        let in_part = match kind {
            "lock" => !self.unknown.is_empty(),
            _ => self.node.is_some() && Kind::of_document(kind).is_some(),
        };
        if in_part && !self.told.remove(key) {
            return None;
        }
        Some(WatchChange::Delete(v1::ResourceName { kind: kind.to_owned(), name: name.to_owned() }))
    }
}

/// Whether an item is for this agent, where it is something that agents serve.
fn serves(item: &Item, id: HostId, name: &NodeName) -> Result<Option<bool>, Status> {
    let broken = |error: StoreError| storage(&error);
    let Some(kind) = of_state(&item.key).and_then(|(kind, _)| Kind::of_document(kind)) else {
        return Ok(None);
    };
    Ok(match kind.row().nature {
        Nature::Node => None,
        Nature::Database => {
            let record = typed::decode::<DatabaseRecord>(item.clone()).map_err(broken)?.value;
            Some(record.is_for(kind, id, name))
        }
        Nature::Listed => {
            let record = typed::decode::<ListedRecord>(item.clone()).map_err(broken)?.value;
            Some(record.is_for(kind, id, name))
        }
    })
}

/// Serves what hosts follow.
#[derive(Debug)]
pub(crate) struct Watches {
    store: Store,
    gate: Arc<Gate>,
    issuance: Arc<Issuance>,
    streams: Arc<Streams>,
}

impl Watches {
    pub(crate) fn new(
        store: &Store,
        gate: &Arc<Gate>,
        issuance: &Arc<Issuance>,
        streams: &Arc<Streams>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            gate: Arc::clone(gate),
            issuance: Arc::clone(issuance),
            streams: Arc::clone(streams),
        })
    }

    /// Whether a caller may follow these kinds of state.
    pub(crate) fn may_watch(&self, caller: &Caller, kinds: &[String]) -> Result<(), Status> {
        if !matches!(caller, Caller::LocalAdmin) {
            self.gate.check_certified(caller)?;
        }
        if kinds.is_empty() || kinds.len() > MOST_KINDS {
            return Err(Status::invalid_argument(format!(
                "a watch is of 1 to {MOST_KINDS} kinds, got {}",
                kinds.len()
            )));
        }
        for kind in kinds {
            let resource = match kind.as_str() {
                "trust" => "ca",
                "role" | "lock" | "session_policy" => kind,
                _ if Kind::of_document(kind).is_some() => kind,
                _ => {
                    return Err(Status::invalid_argument(format!("{:?} cannot be watched", shown(kind))));
                }
            };
            // A node may see itself, which it needs to decide.
            let own_node = kind == "node" && own_node_id(caller).is_some();
            if !own_node {
                self.gate.check_follow(caller, resource)?;
            }
        }
        Ok(())
    }

    pub(crate) async fn watch(
        self: &Arc<Self>,
        caller: &Caller,
        (place, line): (StreamPlace, Line),
        kinds: Vec<String>,
    ) -> Result<Served<v1::WatchEvent>, Status> {
        let now = OffsetDateTime::now_utc();
        let stored: Vec<&String> = kinds.iter().filter(|kind| *kind != "trust").collect();
        let prefixes: Vec<String> = stored.iter().map(|kind| prefix(kind)).collect();
        let mut watch = self.store.backend().watch(prefixes, now).await.map_err(|error| storage(&error))?;
        let mut part = Part::of(caller, &kinds);
        let mut first = Vec::new();
        // Subscribed before it is read, so that no change is missed in between.
        let mut trust = kinds.iter().any(|kind| kind == "trust").then(|| self.issuance.follow());
        if let Some(trust) = &mut trust {
            trust.mark_unchanged();
            first.push(WatchChange::Put(trust_resource(&self.issuance)));
        }
        for item in watch.snapshot.drain(..) {
            if let Some(change) = part.put(item)? {
                first.push(change);
            }
        }
        first.push(WatchChange::SnapshotDone(v1::SnapshotDone {}));
        let (watched, watcher) = (Arc::clone(self), caller.clone());
        let issuance = Arc::clone(&self.issuance);
        let follow = |answers: Answers<v1::WatchEvent>| async move {
            for change in first {
                answers.send(event(change)).await?;
            }
            loop {
                let change = tokio::select! {
                    change = watch.changes.next() => change,
                    () = changed(&mut trust) => {
                        answers.send(event(WatchChange::Put(trust_resource(&issuance)))).await?;
                        continue;
                    }
                };
                let change = match change {
                    Ok(Change::Put(item)) => part.put(item)?,
                    Ok(Change::Delete { key, .. }) => part.delete(&key),
                    Err(error @ StoreError::Lagged { .. }) => {
                        return Err(Over::Refused(Status::aborted(error.to_string())));
                    }
                    Err(error) => return Err(Over::Refused(Status::unavailable(error.to_string()))),
                };
                if let Some(change) = change {
                    answers.send(event(change)).await?;
                }
            }
        };
        Ok(self.streams.stream(place, line, WATCH_QUEUE, move || watched.may_watch(&watcher, &kinds), follow))
    }
}

/// Waits for the authorities to be replaced; for ever where the watch is of other kinds.
async fn changed(trust: &mut Option<tokio::sync::watch::Receiver<Arc<Authorities>>>) {
    let Some(trust) = trust else { return std::future::pending().await };
    if trust.changed().await.is_err() {
        // The authority is going away, and the stream with it.
        std::future::pending().await
    }
}

fn event(change: WatchChange) -> v1::WatchEvent {
    v1::WatchEvent { event: Some(change) }
}

fn trust_resource(issuance: &Issuance) -> v1::Resource {
    v1::Resource {
        kind: "trust".to_owned(),
        name: "trust".to_owned(),
        revision: 1,
        expires: None,
        yaml: serde_json::to_string(&issuance.authorities().trust().to_bundle()).unwrap_or_default(),
    }
}

/// A stored item as watchers read it.
fn item_resource(item: Item) -> Result<v1::Resource, Status> {
    let kind = item.key.split('/').next().unwrap_or_default();
    let broken = |error: StoreError| storage(&error);
    let stored = match kind {
        "role" => {
            let stored = typed::decode::<RoleRecord>(item).map_err(broken)?;
            resource("role", &stored.name, stored.revision, stored.expires, stored.value.yaml)
        }
        "session_policy" => {
            let stored = typed::decode::<SessionPolicyRecord>(item).map_err(broken)?;
            resource("session_policy", &stored.name, stored.revision, None, stored.value.yaml)
        }
        "lock" => {
            let stored = typed::decode::<LockRecord>(item).map_err(broken)?;
            resource("lock", &stored.name, stored.revision, stored.expires, stored.value.yaml)
        }
        "db" => {
            let stored = typed::decode::<DatabaseRecord>(item).map_err(broken)?;
            resource("db", &stored.name, stored.revision, None, stored.value.yaml)
        }
        Listed::STORED => {
            let stored = typed::decode::<ListedRecord>(item).map_err(broken)?;
            let (kind, name) = stored.name.split_once('/').unwrap_or_default();
            resource(kind, name, stored.revision, None, stored.value.yaml)
        }
        _ => node_resource(&typed::decode::<NodeRecord>(item).map_err(broken)?),
    };
    Ok(stored)
}

fn node_resource(stored: &Stored<NodeRecord>) -> v1::Resource {
    let yaml = node_yaml(&stored.value);
    resource("node", &stored.name, stored.revision, stored.expires, yaml)
}
