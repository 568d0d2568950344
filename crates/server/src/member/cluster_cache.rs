//! What a proxy or node knows of the cluster: trust, policies, locks and nodes, as last heard from the authority.
//!
//! Readers take cheap snapshots and never wait. Roles are compiled once per change. A change that cannot be
//! understood (a role from a newer release, say) keeps the last good state of its kind and is logged: forgetting a
//! deny rule would open a door.

mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use sallyport_access::{
    ClusterName, Database, DatabaseName, HostId, Identity, Kind, Listed, ListedId, Lock, Nature, Node,
    NodeName, Policies, PolicyError, Resource as _, ResourceName, Role, SessionPolicy,
};
use sallyport_ca::{CaError, Trust, TrustBundle};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::{error, warn};

pub(crate) use self::nodes::Resolved;
use self::nodes::{Nodes, parse_node};
use crate::ServerError;
use sallyport_protocols::spec;

/// One watched resource as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) yaml: String,
}

struct State {
    held: BTreeMap<(String, String), String>,
    trust: Arc<Trust>,
    bundle: TrustBundle,
    policies: Arc<Policies>,
    locks: Arc<[Lock]>,
    nodes: Nodes,
    databases: BTreeMap<DatabaseName, Arc<Database>>,
    listed: BTreeMap<ListedId, Arc<Listed>>,
}

/// The live view.
pub(crate) struct ClusterCache {
    cluster: ClusterName,
    state: RwLock<State>,
    changed: watch::Sender<u64>,
}

impl std::fmt::Debug for ClusterCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterCache").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// One change as the watch tells it.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Put(Held),
    Delete { kind: String, name: String },
}

impl ClusterCache {
    /// A cache that trusts `bundle` and has no role, so that it allows nothing.
    pub(crate) fn new(cluster: ClusterName, bundle: TrustBundle, trust: Trust) -> Result<Self, PolicyError> {
        let policies = Policies::compile(&[])?;
        Ok(Self {
            cluster,
            state: RwLock::new(State {
                held: BTreeMap::new(),
                trust: Arc::new(trust),
                bundle,
                policies: Arc::new(policies),
                locks: Arc::from([]),
                nodes: Nodes::default(),
                databases: BTreeMap::new(),
                listed: BTreeMap::new(),
            }),
            changed: watch::channel(0).0,
        })
    }

    /// The cluster's name.
    pub(crate) fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.read().trust)
    }

    pub(crate) fn bundle(&self) -> TrustBundle {
        self.read().bundle.clone()
    }

    pub(crate) fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.read().policies)
    }

    pub(crate) fn locks(&self) -> Arc<[Lock]> {
        Arc::clone(&self.read().locks)
    }

    pub(crate) fn node(&self, id: &HostId) -> Option<Arc<Node>> {
        self.read().nodes.get(id)
    }

    pub(crate) fn resolve(&self, target: &str) -> Resolved {
        self.read().nodes.resolve(target, &self.cluster)
    }

    /// A database by its name.
    pub(crate) fn database(&self, name: &DatabaseName) -> Option<Arc<Database>> {
        self.read().databases.get(name).cloned()
    }

    /// Every database that this host is told of: all for a proxy, those that it serves for an agent.
    pub(crate) fn databases(&self) -> Vec<Arc<Database>> {
        self.read().databases.values().cloned().collect()
    }

    /// A resource of the catalogue by its name among its kind. An agent is told of those that it serves.
    pub(crate) fn listed(&self, kind: Kind, name: &str) -> Option<Arc<Listed>> {
        let id = ListedId { kind, name: ResourceName::new(name).ok()? };
        self.read().listed.get(&id).cloned()
    }

    /// Every resource of a kind of the catalogue that this host is told of, in the order of names.
    pub(crate) fn listed_of(&self, kind: Kind) -> Vec<Arc<Listed>> {
        self.read().listed.values().filter(|listed| listed.kind == kind).cloned().collect()
    }

    /// Wakes whenever anything but a node changed, and when a node is called otherwise: what agents serve names them.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Looks now and after each change, until something is found. Subscribed before the first look, so that no change falls in
    /// between; where the view is gone with its service, nothing will change any more, and this waits for ever.
    pub(crate) async fn when<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The lock that keeps a host or a user out now, if there is one, in words for a log.
    pub(crate) fn locked(&self, identity: &Identity) -> Option<String> {
        let locked = self.policies().locked_out(identity, &self.locks(), OffsetDateTime::now_utc());
        locked.map(|refusal| refusal.to_string())
    }

    /// Everything held, to be kept on disk.
    pub(crate) fn held(&self) -> Vec<Held> {
        let state = self.read();
        let held = state.held.iter();
        held.map(|((kind, name), yaml)| Held { kind: kind.clone(), name: name.clone(), yaml: yaml.clone() })
            .collect()
    }

    /// Replaces everything by a complete snapshot.
    pub(crate) fn replace(&self, snapshot: Vec<Held>) {
        let mut state = self.write();
        let kinds = ["role", "lock", "session_policy", "trust"].map(str::to_owned).into();
        let held = snapshot.into_iter().map(|h| ((h.kind, h.name), h.yaml)).collect();
        let before = std::mem::replace(&mut state.held, held);
        state.nodes = Nodes::default();
        state.keep_same(&before);
        for kind in Kind::ALL {
            for (name, yaml) in state.of_kind(kind.row().document) {
                state.put(*kind, &name, &yaml);
            }
        }
        state.rebuild(&self.cluster, &kinds);
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Forgets the roles, so that nothing is permitted until a snapshot brings them again. Locks stay. Says whether there were any.
    pub(crate) fn forget_roles(&self) -> bool {
        let held = self.held();
        let (roles, rest): (Vec<_>, Vec<_>) = held.into_iter().partition(|held| held.kind == "role");
        if !roles.is_empty() {
            self.replace(rest);
        }
        !roles.is_empty()
    }

    /// Applies one live change; says whether there is one of which [`ClusterCache::changes`] tells.
    pub(crate) fn apply(&self, change: Change) -> bool {
        let mut state = self.write();
        let mut is_renamed = false;
        let kind = match change {
            Change::Put(Held { kind, name, yaml }) => {
                if let Some(kind) = Kind::of_document(&kind) {
                    let before = state.name_of_node(kind, &name);
                    state.put(kind, &name, &yaml);
                    is_renamed = before.is_some() && before != state.name_of_node(kind, &name);
                }
                state.held.insert((kind.clone(), name), yaml);
                kind
            }
            Change::Delete { kind, name } => {
                if let Some(kind) = Kind::of_document(&kind) {
                    state.remove(kind, &name);
                }
                state.held.remove(&(kind.clone(), name));
                kind
            }
        };
        if kind == "node" && !is_renamed {
            return false;
        }
        state.rebuild(&self.cluster, &BTreeSet::from([kind]));
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        true
    }

    /// Applies a trust that came by another way than the watch.
    pub(crate) fn trust_in(&self, bundle: &TrustBundle) {
        let yaml = serde_json::to_string(bundle).unwrap_or_default();
        self.apply(Change::Put(Held { kind: "trust".to_owned(), name: "trust".to_owned(), yaml }));
    }

    /// Applies locks that came by another way than the watch, in the place of all that were there.
    pub(crate) fn locks_in(&self, locks: &[Lock]) {
        let mut state = self.write();
        state.held.retain(|(kind, _), _| kind != "lock");
        let named = locks.iter().map(|lock| (("lock".to_owned(), lock.name.clone()), lock.to_yaml()));
        state.held.extend(named);
        state.rebuild(&self.cluster, &BTreeSet::from(["lock".to_owned()]));
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    fn read(&self) -> parking_lot::RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, State> {
        self.state.write()
    }
}

impl State {
    fn of_kind(&self, kind: &str) -> Vec<(String, String)> {
        let held = self.held.iter().filter(|((of, _), _)| of == kind);
        held.map(|((_, name), yaml)| (name.clone(), yaml.clone())).collect()
    }

    /// Of resources that users have sessions with, keeps those whose documents are as before: what goes by them goes on, and is not
    /// begun anew each time that the authority tells everything again.
    fn keep_same(&mut self, before: &BTreeMap<(String, String), String>) {
        let held = &self.held;
        let is_same = |kind: Kind, name: &str| {
            let key = (kind.row().document.to_owned(), name.to_owned());
            held.get(&key).is_some_and(|yaml| before.get(&key) == Some(yaml))
        };
        self.databases.retain(|name, _| is_same(Kind::Database, name.as_str()));
        self.listed.retain(|id, _| is_same(id.kind, id.name.as_str()));
    }

    /// Whether the resource of this document is there already.
    fn has(&self, kind: Kind, name: &str, yaml: &str) -> bool {
        let is_there = match kind.row().nature {
            Nature::Node => false,
            Nature::Database => DatabaseName::new(name).is_ok_and(|name| self.databases.contains_key(&name)),
            Nature::Listed => {
                ResourceName::new(name).is_ok_and(|name| self.listed.contains_key(&ListedId { kind, name }))
            }
        };
        let key = || (kind.row().document.to_owned(), name.to_owned());
        is_there && self.held.get(&key()).is_some_and(|held| held == yaml)
    }

    fn name_of_node(&self, kind: Kind, id: &str) -> Option<NodeName> {
        let id = id.parse().ok().filter(|_| kind == Kind::Node)?;
        self.nodes.get(&id).map(|node| node.name.clone())
    }

    fn put(&mut self, kind: Kind, name: &str, yaml: &str) {
        if self.has(kind, name, yaml) {
            return;
        }
        match kind.row().nature {
            Nature::Node => self.put_node(name, yaml),
            Nature::Database => self.put_database(name, yaml),
            Nature::Listed => self.put_listed(kind, name, yaml),
        }
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        match kind.row().nature {
            Nature::Node => {
                if let Ok(id) = name.parse() {
                    self.nodes.remove(&id);
                }
            }
            Nature::Database => self.remove_database(name),
            Nature::Listed => {
                if let Ok(name) = ResourceName::new(name) {
                    self.listed.remove(&ListedId { kind, name });
                }
            }
        }
    }

    fn put_listed(&mut self, kind: Kind, name: &str, yaml: &str) {
        let Some(spec) = spec(kind) else { return };
        match Listed::parse(kind, yaml, spec) {
            Ok(listed) => drop(self.listed.insert(listed.id(), Arc::new(listed))),
            Err(problem) => {
                self.remove(kind, name);
                warn!(kind = kind.row().document, name, %problem, "a resource cannot be understood and is left out");
            }
        }
    }

    fn put_node(&mut self, name: &str, yaml: &str) {
        match parse_node(yaml) {
            Ok(node) => self.nodes.insert(node),
            Err(problem) => {
                warn!(node = name, %problem, "a node resource cannot be understood and is left out")
            }
        }
    }

    fn rebuild(&mut self, cluster: &ClusterName, kinds: &BTreeSet<String>) {
        if kinds.contains("role") || kinds.contains("session_policy") {
            self.rebuild_policies();
        }
        if kinds.contains("lock") {
            self.rebuild_locks();
        }
        if kinds.contains("trust") {
            self.rebuild_trust(cluster);
        }
    }

    fn rebuild_policies(&mut self) {
        let mut roles = Vec::new();
        for (name, yaml) in self.of_kind("role") {
            match Role::parse(&yaml) {
                Ok(role) => roles.push(role),
                Err(problem) => {
                    error!(role = name, %problem, "a role cannot be understood; the roles known before stay in force");
                    return;
                }
            }
        }
        let sessions = match self
            .of_kind("session_policy")
            .first()
            .map(|(_, yaml)| SessionPolicy::parse(yaml))
        {
            None => SessionPolicy::default(),
            Some(Ok(sessions)) => sessions,
            Some(Err(problem)) => {
                error!(%problem, "the session policy cannot be understood; the one known before stays in force");
                return;
            }
        };
        match Policies::compile_with(&roles, sessions) {
            Ok(policies) => self.policies = Arc::new(policies),
            Err(problem) => {
                let problem = ServerError::chain(&problem);
                error!(problem, "the roles do not compile; the roles known before stay in force");
            }
        }
    }

    fn rebuild_locks(&mut self) {
        let mut locks = Vec::new();
        for (name, yaml) in self.of_kind("lock") {
            match Lock::parse(&yaml) {
                Ok(lock) => locks.push(lock),
                Err(problem) => {
                    error!(lock = name, %problem, "a lock cannot be understood; the locks known before stay in force");
                    return;
                }
            }
        }
        // The same locks go on, with what was given out under them.
        if *self.locks != *locks {
            self.locks = Arc::from(locks);
        }
    }

    fn put_database(&mut self, name: &str, yaml: &str) {
        match Database::parse(yaml) {
            Ok(database) => drop(self.databases.insert(database.name.clone(), Arc::new(database))),
            Err(problem) => {
                self.remove_database(name);
                warn!(database = name, %problem, "a database cannot be understood and is left out");
            }
        }
    }

    fn remove_database(&mut self, name: &str) {
        if let Ok(name) = DatabaseName::new(name) {
            self.databases.remove(&name);
        }
    }

    fn rebuild_trust(&mut self, cluster: &ClusterName) {
        let Some((_, text)) = self.of_kind("trust").into_iter().next() else {
            // A snapshot without trust leaves the trust as it is. Without authorities no certificate would verify any
            // more.
            return;
        };
        match read_trust(&text, cluster, &self.bundle) {
            Ok(Some((bundle, trust))) => {
                self.trust = Arc::new(trust);
                self.bundle = bundle;
            }
            // The same trust goes on, with the sessions and chains that it remembers.
            Ok(None) => {}
            Err(problem) => error!(%problem, "the trust bundle cannot be used; the one known before stays"),
        }
    }
}

/// Why the trust that the authority tells is not taken.
#[derive(Debug, thiserror::Error)]
enum BadTrust {
    #[error(transparent)]
    NotRead(#[from] serde_json::Error),
    #[error("it is of another cluster, {0}")]
    OtherCluster(String),
    /// An authority in it cannot be used.
    #[error(transparent)]
    Authority(#[from] CaError),
}

/// The trust in a document, where it differs from the one in force.
fn read_trust(
    text: &str,
    cluster: &ClusterName,
    in_force: &TrustBundle,
) -> Result<Option<(TrustBundle, Trust)>, BadTrust> {
    let bundle: TrustBundle = serde_json::from_str(text)?;
    if bundle == *in_force {
        return Ok(None);
    }
    let trust = Trust::from_bundle(&bundle)?;
    if bundle.cluster != cluster.as_str() {
        return Err(BadTrust::OtherCluster(bundle.cluster));
    }
    Ok(Some((bundle, trust)))
}

#[cfg(test)]
mod tests {
    use sallyport_ca::{Authority, CaKind};
    use sallyport_sal::Suite;
    use sallyport_sal::custody::{SealedCustody, SealingKey};

    use super::*;

    fn empty() -> ClusterCache {
        let directory = tempfile::tempdir().unwrap();
        let sealing = SealingKey::create(&directory.path().join("seal")).unwrap();
        let custody = SealedCustody::new(Arc::new(sealing));
        let (cluster, now) = (ClusterName::new("test.example").unwrap(), time::OffsetDateTime::now_utc());
        let make = |kind| Authority::generate(kind, &cluster, &custody, Suite::BalancedV1, now).unwrap();
        let trust = Trust::from_authorities(&[&make(CaKind::User), &make(CaKind::Host)], None).unwrap();
        ClusterCache::new(cluster, trust.to_bundle(), trust).unwrap()
    }

    fn held(kind: &str, name: &str, spec: &str) -> Held {
        let yaml = format!("kind: {kind}\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n");
        Held { kind: kind.to_owned(), name: name.to_owned(), yaml }
    }

    #[test]
    fn without_roles_nothing_is_permitted_and_locks_stay() {
        let view = empty();
        let role = held("role", "dev", "{allow: {logins: [root]}}");
        view.replace(vec![role, held("lock", "stolen", "{target: {user: alice}, message: x}")]);
        let dev = sallyport_access::RoleName::new("dev").unwrap();
        assert!(view.policies().role(&dev).is_some() && view.locks().len() == 1);
        assert!(view.forget_roles());
        assert!(view.policies().role(&dev).is_none() && view.locks().len() == 1);
        assert!(!view.forget_roles());
    }

    #[test]
    fn a_document_that_is_told_again_goes_on() {
        let view = empty();
        let app = |name: &str, port: u16| {
            held("app", name, &format!("{{uri: 'tcp://10.0.0.7:{port}', via: web-1}}"))
        };
        let db = |name: &str, port: u16| {
            let address = format!("10.0.0.7:{port}");
            held("db", name, &format!("{{protocol: postgres, address: '{address}', via: web-1}}"))
        };
        let all = |port| vec![app("wiki", 80), app("shop", port), db("prod", 5432), db("test", port)];
        let now = || {
            let (apps, databases) = (view.listed_of(Kind::App), view.databases());
            assert_eq!((apps.len(), databases.len()), (2, 2));
            (apps, databases)
        };
        view.replace(all(1));
        let (apps, databases) = now();
        // As each time that an agent is in touch again.
        view.replace(all(1));
        let again = now();
        assert!(apps.iter().zip(&again.0).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert!(databases.iter().zip(&again.1).all(|(one, other)| Arc::ptr_eq(one, other)));
        view.apply(Change::Put(app("shop", 1)));
        view.apply(Change::Put(db("test", 1)));
        assert!(Arc::ptr_eq(&apps[0], &now().0[0]) && Arc::ptr_eq(&databases[1], &now().1[1]));
        // What differs is read, and what is not told any more is gone.
        view.replace(all(2));
        let (other_apps, other_databases) = now();
        for (listed, other) in apps.iter().zip(&other_apps) {
            assert_eq!(Arc::ptr_eq(listed, other), listed.name.as_str() == "wiki");
        }
        for (database, other) in databases.iter().zip(&other_databases) {
            assert_eq!(Arc::ptr_eq(database, other), database.name.as_str() == "prod");
        }
        assert_eq!(other_databases[1].address, "10.0.0.7:2");
        view.replace(vec![app("wiki", 80)]);
        assert!(view.databases().is_empty() && view.listed_of(Kind::App).len() == 1);
        // A document that was not understood is read each time.
        view.replace(vec![held("app", "wiki", "{uri: 7}")]);
        assert!(view.listed_of(Kind::App).is_empty());
        view.replace(vec![app("wiki", 80)]);
        assert_eq!(view.listed_of(Kind::App).len(), 1);
    }

    #[test]
    fn a_node_that_is_called_otherwise_wakes_and_other_labels_do_not() {
        let (view, id) = (empty(), HostId::new());
        let node = |name: &str, label: &str| Held {
            kind: "node".to_owned(),
            name: id.to_string(),
            yaml: format!(
                "kind: node\nversion: v1\nmetadata: {{id: {id}, name: {name}, labels: {{env: {label}}}}}\n"
            ),
        };
        view.replace(vec![node("web-1", "dev")]);
        let mut changes = view.changes();
        assert!(!view.apply(Change::Put(node("web-1", "prod"))) && !changes.has_changed().unwrap());
        assert!(view.apply(Change::Put(node("web-2", "prod"))) && changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert!(!view.apply(Change::Put(node("web-2", "prod"))) && !changes.has_changed().unwrap());
        assert_eq!(view.node(&id).unwrap().name.as_str(), "web-2");
    }
}
