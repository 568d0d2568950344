//! Nodes as a proxy or an agent knows them: by id, and by the names that people type.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sallyport_access::{ClusterName, HostId, Labels, Node, NodeKind, NodeName, OpenSshServer, ServerTrust};
use serde::Deserialize;

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

/// Why the document of a node means nothing to this release.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadNode {
    /// Without the text, which may be long.
    #[error("{}", .0.without_snippet())]
    NotRead(Box<serde_saphyr::Error>),
    #[error("it has no address")]
    NoAddress,
    #[error("its sub_kind {0:?} is of a newer release")]
    NewerKind(String),
}

pub(super) fn parse_node(yaml: &str) -> Result<Node, BadNode> {
    let document: NodeDocument =
        serde_saphyr::from_str(yaml).map_err(|error| BadNode::NotRead(Box::new(error)))?;
    let NodeMetadata { id, name, labels } = document.metadata;
    let kind = match (document.sub_kind.as_str(), document.spec) {
        ("", _) => NodeKind::Sallyport,
        ("openssh", NodeSpec { address: Some(address), via, host_key, names, trust }) => {
            NodeKind::OpenSsh(OpenSshServer { address, via, host_key, names, trust })
        }
        ("openssh", _) => return Err(BadNode::NoAddress),
        (other, _) => return Err(BadNode::NewerKind(other.to_owned())),
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
    pub(super) fn insert(&mut self, node: Node) {
        self.remove(&node.id);
        self.by_name.entry(node.name.clone()).or_default().insert(node.id);
        self.by_id.insert(node.id, Arc::new(node));
    }

    pub(super) fn remove(&mut self, id: &HostId) {
        let Some(node) = self.by_id.remove(id) else { return };
        if let Some(ids) = self.by_name.get_mut(&node.name) {
            ids.remove(id);
            if ids.is_empty() {
                self.by_name.remove(&node.name);
            }
        }
    }

    pub(super) fn get(&self, id: &HostId) -> Option<Arc<Node>> {
        self.by_id.get(id).cloned()
    }

    fn named(&self, name: &str) -> Vec<Arc<Node>> {
        let Ok(name) = NodeName::new(name) else { return Vec::new() };
        let ids = self.by_name.get(&name).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id).cloned()).collect()
    }

    /// By id, by name, or by name with the cluster behind it.
    pub(super) fn resolve(&self, target: &str, cluster: &ClusterName) -> Resolved {
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

#[cfg(test)]
mod tests {
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
}
