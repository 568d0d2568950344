//! What proxies and nodes follow of the state: policy, trust, nodes and databases, as each may see them.

use std::collections::HashSet;
use std::sync::Arc;

use sallyport_access::{HostId, HostRole, NodeName, Principal, Verb};
use sallyport_store::{Change, Item, Store, StoreError, Stored, typed};
use sallyport_wire::v1;
use sallyport_wire::v1::watch_event::Event as WatchChange;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::{Caller, shown};
use crate::authority::databases::table::DatabaseRecord;
use crate::authority::gate::calls::Gate;
use crate::authority::issuance::authorities::Authorities;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::records::{LockRecord, NodeRecord, RoleRecord, SessionPolicyRecord};
use crate::authority::resources::documents::{node_yaml, resource};
use crate::authority::storage::storage;
use crate::authority::streams::{Answers, Line, Over, Served, StreamPlace, Streams};

/// Changes that wait for a watcher.
const WATCH_QUEUE: usize = 1024;
/// Kinds in one watch. There are six.
const MOST_KINDS: usize = 16;

fn own_node_id(caller: &Caller) -> Option<HostId> {
    match caller.identity().map(|identity| &identity.principal) {
        Some(Principal::Host { id, role: HostRole::Node, .. }) => Some(*id),
        _ => None,
    }
}

/// The part of what is stored that a watcher sees: all of it, or for a node itself, the servers that it is the gateway
/// to, and the databases that it serves.
struct Part {
    node: Option<(HostId, NodeName)>,
    /// Keys of nodes and databases that a node has been told of.
    told: HashSet<String>,
}

impl Part {
    fn of(caller: &Caller) -> Self {
        let node = match caller.identity().map(|identity| &identity.principal) {
            Some(Principal::Host { id, name, role: HostRole::Node }) => Some((*id, name.clone())),
            _ => None,
        };
        Self { node, told: HashSet::new() }
    }

    fn put(&mut self, item: Item) -> Result<Option<WatchChange>, Status> {
        if let Some((id, name)) = self.node.as_ref().filter(|_| item.key.starts_with("db/")) {
            let (key, stored) = (item.key.clone(), item.clone());
            let record = typed::decode::<DatabaseRecord>(stored).map_err(|error| storage(&error))?.value;
            if !record.is_for(*id, name) {
                return Ok(self.delete(&key));
            }
            self.told.insert(key);
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

    fn delete(&mut self, key: &str) -> Option<WatchChange> {
        let (kind, name) = key.split_once('/')?;
        if self.node.is_some() && matches!(kind, "node" | "db") && !self.told.remove(key) {
            return None;
        }
        Some(WatchChange::Delete(v1::ResourceName { kind: kind.to_owned(), name: name.to_owned() }))
    }
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
                "role" | "lock" | "node" | "session_policy" | "db" => kind,
                _ => {
                    return Err(Status::invalid_argument(format!("{:?} cannot be watched", shown(kind))));
                }
            };
            // A node may see itself, which it needs to decide.
            let own_node = kind == "node" && own_node_id(caller).is_some();
            if !own_node {
                self.gate.check(caller, resource, Verb::List)?;
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
        let prefixes: Vec<String> = stored.iter().map(|kind| format!("{kind}/")).collect();
        let mut watch = self.store.backend().watch(prefixes, now).await.map_err(|error| storage(&error))?;
        let mut part = Part::of(caller);
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
        _ => node_resource(&typed::decode::<NodeRecord>(item).map_err(broken)?),
    };
    Ok(stored)
}

fn node_resource(stored: &Stored<NodeRecord>) -> v1::Resource {
    let yaml = node_yaml(&stored.value);
    resource("node", &stored.name, stored.revision, stored.expires, yaml)
}
