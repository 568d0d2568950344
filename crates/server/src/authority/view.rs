//! What the authority keeps in memory so that no call has to ask the database for policy.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sallyport_access::{
    HostId, Lock, Node, NodeKind, NodeName, OpenSshServer, Policies, Role, SESSION_POLICY_NAME, SessionPolicy,
};
use sallyport_store::{Kind, Store, StoreError, Stored};
use time::OffsetDateTime;
use tracing::error;

use super::Inner;
use super::state::{LockRecord, NodeRecord, RoleRecord, SessionPolicyRecord};
use crate::ServerError;

/// Roles, locks and nodes as they are now. Replaced as a whole with every change.
#[derive(Debug)]
pub(super) struct View {
    pub(super) policies: Arc<Policies>,
    pub(super) roles: BTreeMap<String, Role>,
    pub(super) locks: Arc<[Lock]>,
}

/// Most that is read of one kind at a time. What needs all of a kind goes on behind the last of a page; unit tests have small
/// pages, so that each of them does.
pub(super) const PAGE: usize = if cfg!(test) { 3 } else { 10_000 };

/// The nodes, and when each was last heard of. Heartbeats change it without touching the database.
#[derive(Debug, Default)]
pub(super) struct Presence {
    nodes: RwLock<BTreeMap<HostId, Known>>,
    by_name: Mutex<HashMap<NodeName, Vec<HostId>>>,
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) node: Node,
    pub(super) version: String,
    pub(super) os_user: String,
    pub(super) fixed: BTreeMap<String, String>,
    pub(super) databases_end_to_end: bool,
    pub(super) last_seen: Option<OffsetDateTime>,
}

impl Known {
    /// How it is reached, when it is a stock OpenSSH server.
    pub(super) fn openssh(&self) -> Option<&OpenSshServer> {
        match &self.node.kind {
            NodeKind::OpenSsh(server) => Some(server),
            NodeKind::Sallyport => None,
        }
    }
}

impl Presence {
    pub(super) fn put(&self, record: NodeRecord) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let (id, last_seen) = (record.id, nodes.get(&record.id).and_then(|known| known.last_seen));
        let known = Known {
            node: record.node(),
            version: record.version,
            os_user: record.os_user,
            fixed: record.fixed,
            databases_end_to_end: record.databases_end_to_end,
            last_seen,
        };
        nodes.insert(id, known);
        self.index(&nodes);
    }

    pub(super) fn remove(&self, id: HostId) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.remove(&id);
        self.index(&nodes);
    }

    fn index(&self, nodes: &BTreeMap<HostId, Known>) {
        let mut by_name: HashMap<NodeName, Vec<HostId>> = HashMap::with_capacity(nodes.len());
        for known in nodes.values() {
            by_name.entry(known.node.name.clone()).or_default().push(known.node.id);
        }
        *self.by_name.lock().unwrap_or_else(PoisonError::into_inner) = by_name;
    }

    /// Loads many at once.
    pub(super) fn fill(&self, records: impl Iterator<Item = NodeRecord>) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            let known = Known {
                node: record.node(),
                version: record.version,
                os_user: record.os_user,
                fixed: record.fixed,
                databases_end_to_end: record.databases_end_to_end,
                last_seen: None,
            };
            nodes.insert(known.node.id, known);
        }
        self.index(&nodes);
    }

    pub(super) fn seen(&self, id: HostId, now: OffsetDateTime) -> Option<Known> {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let known = nodes.get_mut(&id)?;
        known.last_seen = Some(now);
        Some(known.clone())
    }

    pub(super) fn get(&self, id: HostId) -> Option<Known> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Every node, in the order of ids, behind `after`.
    pub(super) fn after(&self, after: Option<HostId>) -> Vec<Known> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        match after {
            Some(after) => {
                use std::ops::Bound::{Excluded, Unbounded};
                nodes.range((Excluded(after), Unbounded)).map(|(_, known)| known.clone()).collect()
            }
            None => nodes.values().cloned().collect(),
        }
    }

    /// The nodes that an id or name means.
    pub(super) fn find(&self, text: &str) -> Vec<Known> {
        if let Ok(id) = text.parse::<HostId>() {
            return self.get(id).into_iter().collect();
        }
        let Ok(name) = NodeName::new(text) else { return Vec::new() };
        let ids = self
            .by_name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&name)
            .cloned()
            .unwrap_or_default();
        ids.into_iter().filter_map(|id| self.get(id)).collect()
    }
}

impl Inner {
    /// Reads roles and locks anew; called after every change to them.
    pub(super) async fn refresh(&self) -> Result<(), ServerError> {
        // One after another: what was read before a lock came must not take the place of what was read after.
        let _alone = self.refreshing.lock().await;
        let view = load(&self.store).await?;
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        self.policy_changed();
        Ok(())
    }

    /// Keeps the view true when resources expire or another authority changes them.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            let now = OffsetDateTime::now_utc();
            let prefixes = ["role/", "lock/", "session_policy/"].map(str::to_owned).to_vec();
            let mut watch = match self.store.backend().watch(prefixes, now).await {
                Ok(watch) => watch,
                Err(StoreError::Closed) => return,
                Err(problem) => {
                    error!(%problem, "the policy cannot be followed; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(std::time::Duration::from_secs(5)) => continue,
                        () = self.stop.cancelled() => return,
                    }
                }
            };
            if let Err(problem) = self.refresh().await {
                error!(
                    problem = ServerError::chain(&problem),
                    "the policy could not be read; the earlier one stays"
                );
            }
            loop {
                let change = tokio::select! {
                    change = watch.changes.next() => change,
                    () = self.stop.cancelled() => return,
                };
                match change {
                    Ok(_) => {
                        if let Err(problem) = self.refresh().await {
                            error!(
                                problem = ServerError::chain(&problem),
                                "the policy could not be read; the earlier one stays"
                            );
                        }
                    }
                    Err(StoreError::Lagged { .. }) => break,
                    Err(_) => return,
                }
            }
        }
    }

    /// Removes what has expired, so that watchers hear of it.
    pub(super) async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_secs(2));
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            if let Err(problem) = self.store.backend().sweep(OffsetDateTime::now_utc()).await {
                error!(%problem, "expired state could not be removed");
            }
        }
    }
}

/// Everything of one kind: a lock that is not read would keep nobody out.
async fn all<T: Kind>(store: &Store, now: OffsetDateTime) -> Result<Vec<Stored<T>>, StoreError> {
    let mut found: Vec<Stored<T>> = Vec::new();
    loop {
        let page = store.list(found.last().map(|last| last.name.as_str()), PAGE, now).await?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page);
    }
}

/// Reads and compiles what there is.
pub(super) async fn load(store: &Store) -> Result<View, ServerError> {
    let now = OffsetDateTime::now_utc();
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ServerError::Authority {
        action: "read its policy".to_owned(),
        source,
    };
    let mut parsed = BTreeMap::new();
    for stored in all::<RoleRecord>(store, now).await.map_err(|error| failed(error.into()))? {
        let role = Role::parse(&stored.value.yaml).map_err(|error| failed(error.into()))?;
        parsed.insert(stored.name, role);
    }
    let roles: Vec<Role> = parsed.values().cloned().collect();
    let sessions = store
        .get::<SessionPolicyRecord>(SESSION_POLICY_NAME, now)
        .await
        .map_err(|error| failed(error.into()))?
        .map(|stored| SessionPolicy::parse(&stored.value.yaml))
        .transpose()
        .map_err(|error| failed(error.into()))?;
    let policies =
        Policies::compile_with(&roles, sessions.unwrap_or_default()).map_err(|error| failed(error.into()))?;
    let mut locks = Vec::new();
    for stored in all::<LockRecord>(store, now).await.map_err(|error| failed(error.into()))? {
        locks.push(Lock::parse(&stored.value.yaml).map_err(|error| failed(error.into()))?);
    }
    Ok(View { policies: Arc::new(policies), roles: parsed, locks: locks.into() })
}
