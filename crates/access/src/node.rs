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
}
