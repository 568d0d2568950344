//! The nodes, and when each was last heard of.

use std::collections::{BTreeMap, HashMap};

use parking_lot::{Mutex, RwLock};
use sallyport_access::{HostId, Kind, Nature, Node, NodeKind, NodeName, OpenSshServer};
use sallyport_store::{Store, StoreError};
use time::OffsetDateTime;

use crate::authority::records::NodeRecord;
use crate::authority::storage::PAGE;

/// and is taken for gone after this silence.
pub(crate) const OFFLINE_AFTER: time::Duration = time::Duration::seconds(40);

/// The nodes, and when each was last heard of. Heartbeats change it without touching the database.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    nodes: RwLock<BTreeMap<HostId, KnownNode>>,
    by_name: Mutex<HashMap<NodeName, Vec<HostId>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct KnownNode {
    pub(crate) node: Node,
    pub(crate) version: String,
    pub(crate) os_user: String,
    pub(crate) fixed: BTreeMap<String, String>,
    pub(crate) databases_end_to_end: bool,
    /// The kinds of the catalogue that its agent can serve.
    pub(crate) kinds: Vec<String>,
    pub(crate) last_seen: Option<OffsetDateTime>,
}

impl KnownNode {
    /// Whether its agent takes connections to resources of this kind as TLS from the user's program. What the catalogue keeps is
    /// served in no other way.
    pub(crate) fn takes_end_to_end(&self, kind: Kind) -> bool {
        match kind.row().nature {
            Nature::Node => false,
            Nature::Database => self.databases_end_to_end,
            Nature::Listed => self.kinds.iter().any(|known| known == kind.row().document),
        }
    }

    /// How it is reached, when it is a stock OpenSSH server.
    pub(crate) fn openssh(&self) -> Option<&OpenSshServer> {
        match &self.node.kind {
            NodeKind::OpenSsh(server) => Some(server),
            NodeKind::Sallyport => None,
        }
    }
}

impl Presence {
    /// Reads the nodes of the state.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    pub(crate) async fn load(store: &Store, now: OffsetDateTime) -> Result<Self, StoreError> {
        let presence = Self::default();
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<NodeRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { return Ok(presence) };
            after = Some(last.name.clone());
            presence.fill(page.into_iter().map(|stored| stored.value));
        }
    }

    pub(crate) fn put(&self, record: NodeRecord) {
        let mut nodes = self.nodes.write();
        let (id, last_seen) = (record.id, nodes.get(&record.id).and_then(|known| known.last_seen));
        let known = KnownNode {
            node: record.node(),
            version: record.version,
            os_user: record.os_user,
            fixed: record.fixed,
            databases_end_to_end: record.databases_end_to_end,
            kinds: record.kinds,
            last_seen,
        };
        nodes.insert(id, known);
        self.index(&nodes);
    }

    pub(crate) fn remove(&self, id: HostId) {
        let mut nodes = self.nodes.write();
        nodes.remove(&id);
        self.index(&nodes);
    }

    fn index(&self, nodes: &BTreeMap<HostId, KnownNode>) {
        let mut by_name: HashMap<NodeName, Vec<HostId>> = HashMap::with_capacity(nodes.len());
        for known in nodes.values() {
            by_name.entry(known.node.name.clone()).or_default().push(known.node.id);
        }
        *self.by_name.lock() = by_name;
    }

    /// Loads many at once.
    pub(crate) fn fill(&self, records: impl Iterator<Item = NodeRecord>) {
        let mut nodes = self.nodes.write();
        for record in records {
            let known = KnownNode {
                node: record.node(),
                version: record.version,
                os_user: record.os_user,
                fixed: record.fixed,
                databases_end_to_end: record.databases_end_to_end,
                kinds: record.kinds,
                last_seen: None,
            };
            nodes.insert(known.node.id, known);
        }
        self.index(&nodes);
    }

    pub(crate) fn seen(&self, id: HostId, now: OffsetDateTime) -> Option<KnownNode> {
        let mut nodes = self.nodes.write();
        let known = nodes.get_mut(&id)?;
        known.last_seen = Some(now);
        Some(known.clone())
    }

    pub(crate) fn get(&self, id: HostId) -> Option<KnownNode> {
        self.nodes.read().get(&id).cloned()
    }

    /// Every node, in the order of ids, behind `after`.
    pub(crate) fn after(&self, after: Option<HostId>) -> Vec<KnownNode> {
        let nodes = self.nodes.read();
        match after {
            Some(after) => {
                use std::ops::Bound::{Excluded, Unbounded};
                nodes.range((Excluded(after), Unbounded)).map(|(_, known)| known.clone()).collect()
            }
            None => nodes.values().cloned().collect(),
        }
    }

    /// The nodes that an id or name means.
    pub(crate) fn find(&self, text: &str) -> Vec<KnownNode> {
        if let Ok(id) = text.parse::<HostId>() {
            return self.get(id).into_iter().collect();
        }
        let Ok(name) = NodeName::new(text) else { return Vec::new() };
        let ids = self.by_name.lock().get(&name).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| self.get(id)).collect()
    }
}

pub(crate) fn is_online(known: &KnownNode, now: OffsetDateTime) -> bool {
    known.last_seen.is_some_and(|seen| now - seen < OFFLINE_AFTER)
}
