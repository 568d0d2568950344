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
    /// Whose certificates let a proxy in that records there.
    #[serde(default, skip_serializing_if = "ServerTrust::is_default")]
    pub trust: ServerTrust,
}

/// Whose certificates a stock OpenSSH server trusts, as far as a proxy that logs in there must know. Where SSH passes
/// through, the user's own certificate is shown in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerTrust {
    /// Those of the openssh CA: a proxy has its own for each login.
    #[default]
    Openssh,
    /// Those of the user CA alone: the user's own key signs, by the user's agent.
    User,
}

impl ServerTrust {
    /// As a registered server's document has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Openssh => "openssh",
            Self::User => "user",
        }
    }

    /// Whether it need not be written down.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl std::str::FromStr for ServerTrust {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Openssh, Self::User]
            .into_iter()
            .find(|trust| trust.name() == text)
            .ok_or_else(|| format!("{text:?} is not openssh or user"))
    }
}
