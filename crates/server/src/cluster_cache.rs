//! What a proxy or node knows of the cluster: trust, policies, locks and nodes, as last heard from the authority.
//!
//! Readers take cheap snapshots and never wait. Roles are compiled once per change. A change that cannot be
//! understood (a role from a newer release, say) keeps the last good state of its kind and is logged: forgetting a
//! deny rule would open a door.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use sallyport_access::{
    ClusterName, Database, DatabaseName, HostId, Identity, Labels, Lock, Node, NodeKind, NodeName,
    OpenSshServer, Policies, Role, ServerTrust, SessionPolicy,
};
use sallyport_ca::{Trust, TrustBundle};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::{error, warn};

/// One watched resource as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) yaml: String,
}

/// The document of a node resource.
#[derive(Debug, Deserialize)]
struct NodeDocument {
    #[serde(default)]
    sub_kind: String,
    metadata: NodeMetadata,
    #[serde(default)]
    spec: NodeSpec,
}

/// Of the specification, what a stock server has. Nodes with an agent have none of it.
#[derive(Debug, Default, Deserialize)]
struct NodeSpec {
    address: Option<String>,
    via: Option<NodeName>,
    host_key: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    trust: ServerTrust,
}

#[derive(Debug, Deserialize)]
struct NodeMetadata {
    id: HostId,
    name: NodeName,
    #[serde(default)]
    labels: Labels,
}

fn parse_node(yaml: &str) -> Result<Node, String> {
    let document: NodeDocument =
        serde_saphyr::from_str(yaml).map_err(|error| error.without_snippet().to_string())?;
    let NodeMetadata { id, name, labels } = document.metadata;
    let kind = match (document.sub_kind.as_str(), document.spec) {
        ("", _) => NodeKind::Sallyport,
        ("openssh", NodeSpec { address: Some(address), via, host_key, names, trust }) => {
            NodeKind::OpenSsh(OpenSshServer { address, via, host_key, names, trust })
        }
        ("openssh", _) => return Err("it has no address".to_owned()),
        (other, _) => return Err(format!("its sub_kind {other:?} is of a newer release")),
    };
    Ok(Node { id, name, labels, kind })
}

/// Nodes by id and by name.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    by_id: HashMap<HostId, Arc<Node>>,
    by_name: HashMap<NodeName, BTreeSet<HostId>>,
}

/// What a name that a person typed stands for.
#[derive(Debug, Clone)]
pub(crate) enum Resolved {
    /// One node.
    One(Arc<Node>),
    /// No node.
    Unknown,
    /// Several nodes share the name.
    Several(Vec<Arc<Node>>),
}

impl Nodes {
    fn insert(&mut self, node: Node) {
        self.remove(&node.id);
        self.by_name.entry(node.name.clone()).or_default().insert(node.id);
        self.by_id.insert(node.id, Arc::new(node));
    }

    fn remove(&mut self, id: &HostId) {
        let Some(node) = self.by_id.remove(id) else { return };
        if let Some(ids) = self.by_name.get_mut(&node.name) {
            ids.remove(id);
            if ids.is_empty() {
                self.by_name.remove(&node.name);
            }
        }
    }

    fn named(&self, name: &str) -> Vec<Arc<Node>> {
        let Ok(name) = NodeName::new(name) else { return Vec::new() };
        let ids = self.by_name.get(&name).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id).cloned()).collect()
    }

    /// By id, by name, or by name with the cluster behind it.
    fn resolve(&self, target: &str, cluster: &ClusterName) -> Resolved {
        if let Ok(id) = target.parse::<HostId>() {
            return self.by_id.get(&id).cloned().map_or(Resolved::Unknown, Resolved::One);
        }
        let target = target.to_ascii_lowercase();
        let target = target.strip_suffix('.').unwrap_or(&target);
        let mut found = Vec::new();
        // What stands before the cluster's name is meant first: stock clients put the cluster behind every name, and a node
        // that had all of it for its name would get what is meant for another.
        if let Some(name) = target.strip_suffix(cluster.as_str()).and_then(|name| name.strip_suffix('.')) {
            // The id in front of the cluster's name is how a host certificate spells it.
            if let Ok(id) = name.parse::<HostId>() {
                return self.by_id.get(&id).cloned().map_or(Resolved::Unknown, Resolved::One);
            }
            found = self.named(name);
        }
        if found.is_empty() {
            found = self.named(target);
        }
        match found.len() {
            0 => Resolved::Unknown,
            1 => found.pop().map_or(Resolved::Unknown, Resolved::One),
            _ => Resolved::Several(found),
        }
    }
}

struct State {
    held: BTreeMap<(String, String), String>,
    trust: Arc<Trust>,
    bundle: TrustBundle,
    policies: Arc<Policies>,
    locks: Arc<[Lock]>,
    nodes: Nodes,
    databases: BTreeMap<DatabaseName, Arc<Database>>,
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
    /// A view that trusts `bundle` and allows nobody anything.
    pub(crate) fn new(cluster: ClusterName, bundle: TrustBundle, trust: Trust) -> Result<Self, String> {
        let policies = Policies::compile(&[]).map_err(|error| error.to_string())?;
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
        self.read().nodes.by_id.get(id).cloned()
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

    /// Wakes whenever trust, roles, locks or databases changed.
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
        let mut kinds: BTreeSet<String> =
            ["role", "lock", "node", "session_policy", "db"].map(str::to_owned).into();
        state.held = snapshot.into_iter().map(|h| ((h.kind, h.name), h.yaml)).collect();
        kinds.insert("trust".to_owned());
        state.nodes = Nodes::default();
        let nodes: Vec<(String, String)> = state.of_kind("node");
        for (name, yaml) in nodes {
            state.put_node(&name, &yaml);
        }
        state.databases = BTreeMap::new();
        for (name, yaml) in state.of_kind("db") {
            state.put_database(&name, &yaml);
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

    /// Applies one live change; says whether anything but a node changed.
    pub(crate) fn apply(&self, change: Change) -> bool {
        let mut state = self.write();
        let kind = match change {
            Change::Put(Held { kind, name, yaml }) => {
                if kind == "node" {
                    state.put_node(&name, &yaml);
                }
                if kind == "db" {
                    state.put_database(&name, &yaml);
                }
                state.held.insert((kind.clone(), name), yaml);
                kind
            }
            Change::Delete { kind, name } => {
                if kind == "node"
                    && let Ok(id) = name.parse::<HostId>()
                {
                    state.nodes.remove(&id);
                }
                if kind == "db" {
                    state.remove_database(&name);
                }
                state.held.remove(&(kind.clone(), name));
                kind
            }
        };
        if kind == "node" {
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

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of_kind(&self, kind: &str) -> Vec<(String, String)> {
        let held = self.held.iter().filter(|((of, _), _)| of == kind);
        held.map(|((_, name), yaml)| (name.clone(), yaml.clone())).collect()
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
                error!(%problem, "the roles do not compile; the roles known before stay in force");
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
            // A snapshot without trust is no reason to trust nobody: certificates would stop verifying.
            return;
        };
        let parsed = serde_json::from_str::<TrustBundle>(&text).map_err(|problem| problem.to_string());
        if parsed.as_ref().is_ok_and(|bundle| *bundle == self.bundle) {
            // The same trust goes on, with the sessions and chains that it remembers.
            return;
        }
        let parsed = parsed.and_then(|bundle| match Trust::from_bundle(&bundle) {
            Ok(trust) if bundle.cluster == cluster.as_str() => Ok((bundle, trust)),
            Ok(_) => Err(format!("it is of another cluster, {}", bundle.cluster)),
            Err(problem) => Err(problem.to_string()),
        });
        match parsed {
            Ok((bundle, trust)) => {
                self.trust = Arc::new(trust);
                self.bundle = bundle;
            }
            Err(problem) => error!(%problem, "the trust bundle cannot be used; the one known before stays"),
        }
    }
}

#[cfg(test)]
mod tests {
    use sallyport_ca::{Authority, CaKind};
    use sallyport_sal::Suite;
    use sallyport_sal::custody::{SealedCustody, SealingKey};

    use super::*;

    fn node(id: u128, name: &str) -> Node {
        let id = format!("00000000-0000-4000-8000-{id:012}");
        Node {
            id: id.parse().unwrap(),
            name: NodeName::new(name).unwrap(),
            labels: Labels::default(),
            kind: NodeKind::Sallyport,
        }
    }

    #[test]
    fn nodes_are_found_by_name_id_and_full_name() {
        let cluster = ClusterName::new("example.com").unwrap();
        let mut nodes = Nodes::default();
        nodes.insert(node(1, "web-1"));
        nodes.insert(node(2, "db"));
        nodes.insert(node(3, "db"));
        let one = |target: &str| match nodes.resolve(target, &cluster) {
            Resolved::One(node) => Some(node.id.to_string()),
            _ => None,
        };
        let id = "00000000-0000-4000-8000-000000000001".to_owned();
        for target in ["web-1", "WEB-1", "web-1.example.com", &id, &format!("{id}.example.com")] {
            assert_eq!(one(target), Some(id.clone()), "{target}");
        }
        for target in ["web-2", "web-1.other.com", "", "00000000-0000-4000-8000-000000000009"] {
            assert!(matches!(nodes.resolve(target, &cluster), Resolved::Unknown), "{target}");
        }
        assert!(matches!(nodes.resolve("db", &cluster), Resolved::Several(found) if found.len() == 2));
    }

    #[test]
    fn the_cluster_behind_a_name_is_taken_off_first() {
        let cluster = ClusterName::new("example.com").unwrap();
        let mut nodes = Nodes::default();
        nodes.insert(node(1, "web-1"));
        nodes.insert(node(2, "web-1.example.com"));
        nodes.insert(node(3, "db.example.com"));
        for (target, id) in [
            ("web-1.example.com", 1),
            ("WEB-1.example.com.", 1),
            ("web-1.", 1),
            ("web-1.example.com.example.com", 2),
            ("db.example.com", 3),
        ] {
            let Resolved::One(found) = nodes.resolve(target, &cluster) else { panic!("{target}") };
            assert_eq!(found.id, node(id, "x").id, "{target}");
        }
    }

    #[test]
    fn a_renamed_node_leaves_its_old_name() {
        let cluster = ClusterName::new("c").unwrap();
        let mut nodes = Nodes::default();
        nodes.insert(node(1, "old"));
        nodes.insert(node(1, "new"));
        assert!(matches!(nodes.resolve("old", &cluster), Resolved::Unknown));
        assert!(matches!(nodes.resolve("new", &cluster), Resolved::One(_)));
        nodes.remove(&node(1, "x").id);
        assert!(matches!(nodes.resolve("new", &cluster), Resolved::Unknown));
        assert!(nodes.by_name.is_empty());
    }

    #[test]
    fn node_documents_are_read() {
        let yaml = "kind: node\nversion: v1\nmetadata:\n  id: 00000000-0000-4000-8000-000000000001\n  name: web-1\n  labels: {env: prod}\nspec: {}\n";
        let node = parse_node(yaml).unwrap();
        assert_eq!(node.labels.value("env"), Some("prod"));
        assert!(parse_node("kind: node\n").is_err());
        let head =
            "kind: node\nsub_kind: openssh\nmetadata: {id: 00000000-0000-4000-8000-000000000001, name: db}\n";
        let node = parse_node(&format!("{head}spec: {{address: '10.0.0.5:22', via: gate}}\n")).unwrap();
        let NodeKind::OpenSsh(server) = node.kind else { panic!("an OpenSSH server") };
        assert_eq!((server.address.as_str(), server.via.unwrap().as_str()), ("10.0.0.5:22", "gate"));
        assert!(parse_node(head).is_err());
        assert!(parse_node(&head.replace("openssh", "mainframe")).is_err());
    }

    #[test]
    fn without_roles_nothing_is_permitted_and_locks_stay() {
        let directory = tempfile::tempdir().unwrap();
        let sealing = SealingKey::create(&directory.path().join("seal")).unwrap();
        let custody = SealedCustody::new(Arc::new(sealing));
        let (cluster, now) = (ClusterName::new("test.example").unwrap(), time::OffsetDateTime::now_utc());
        let make = |kind| Authority::generate(kind, &cluster, &custody, Suite::BalancedV1, now).unwrap();
        let trust = Trust::from_authorities(&[&make(CaKind::User), &make(CaKind::Host)], None).unwrap();
        let view = ClusterCache::new(cluster, trust.to_bundle(), trust).unwrap();
        let held = |kind: &str, name: &str, spec: &str| Held {
            kind: kind.to_owned(),
            name: name.to_owned(),
            yaml: format!("kind: {kind}\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n"),
        };
        let role = held("role", "dev", "{allow: {logins: [root]}}");
        view.replace(vec![role, held("lock", "stolen", "{target: {user: alice}, message: x}")]);
        let dev = sallyport_access::RoleName::new("dev").unwrap();
        assert!(view.policies().role(&dev).is_some() && view.locks().len() == 1);
        assert!(view.forget_roles());
        assert!(view.policies().role(&dev).is_none() && view.locks().len() == 1);
        assert!(!view.forget_roles());
    }
}
