//! The target of an SSH session, as the access decision sees it.

use serde::{Deserialize, Serialize};

use crate::{HostId, Labels, NodeName};

/// A server that sessions run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Stays the same when the node is renamed.
    pub id: HostId,
    /// What people type. Two nodes may share it; then the id decides.
    pub name: NodeName,
    /// What roles select by.
    #[serde(default)]
    pub labels: Labels,
    /// What serves SSH there.
    #[serde(default, skip_serializing_if = "NodeKind::is_own")]
    pub kind: NodeKind,
}

/// What serves SSH on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// An agent of this cluster, through the tunnel that it dialled.
    #[default]
    Sallyport,
    /// A stock OpenSSH server that is registered by its address.
    OpenSsh(OpenSshServer),
}

impl NodeKind {
    fn is_own(&self) -> bool {
        *self == Self::Sallyport
    }
}

/// A stock OpenSSH server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSshServer {
    /// Where it listens: `host:port`, an IPv6 address in brackets.
    pub address: String,
    /// The agent that dials it; a proxy does when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<NodeName>,
    /// Its host key as one OpenSSH line, where it has no certificate of this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// Names that its host certificate has besides its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}
