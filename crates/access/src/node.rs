//! The target of an SSH session, as the access decision sees it.

use serde::{Deserialize, Serialize};

use crate::resource::Resource;
use crate::{HostId, Kind, Labels, Login, NodeName};

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

impl Resource for Node {
    type Id = HostId;
    type Account = Login;
    type Options = SshOptions;

    fn kind(&self) -> Kind {
        Kind::Node
    }

    fn id(&self) -> HostId {
        self.id
    }

    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }
}

/// Which directions of forwarding are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// From the client through the node: `ssh -L`, `-D`, `-W`.
    pub local: bool,
    /// From the node to the client: `ssh -R`.
    pub remote: bool,
}

impl Forwarding {
    /// Both directions.
    pub const BOTH: Self = Self { local: true, remote: true };
    /// Neither.
    pub const NONE: Self = Self { local: false, remote: false };

    pub(crate) fn and(self, other: Self) -> Self {
        Self { local: self.local && other.local, remote: self.remote && other.remote }
    }

    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match (self.local, self.remote) {
            (true, true) => "true",
            (false, false) => "false",
            (true, false) => "local",
            (false, true) => "remote",
        }
    }

    pub(crate) fn to_json(self) -> serde_json::Value {
        match self {
            Self::BOTH => true.into(),
            Self::NONE => false.into(),
            one => one.as_str().into(),
        }
    }
}

/// What is on record of what comes from the client of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RecordInput {
    /// Without a terminal how many bytes came and their SHA-256; at a terminal nothing, since passwords are typed there.
    #[default]
    Hash,
    /// All of it, passwords among it. Of SFTP there are the operations, as ever.
    Full,
}

impl RecordInput {
    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Full => "full",
        }
    }
}

/// Limits of SSH sessions besides those of every kind: the most restrictive of what the granting roles say, else what the
/// cluster's session policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshOptions {
    /// Whether the client's ssh-agent may be reached from the session.
    pub forward_agent: bool,
    /// Which TCP ports may be forwarded.
    pub port_forwarding: Forwarding,
    /// Which Unix sockets may be forwarded.
    pub stream_local_forwarding: Forwarding,
    /// Whether X11 may be forwarded.
    pub x11_forwarding: bool,
    /// Whether SFTP, scp and rsync may be used.
    pub ssh_file_copy: bool,
    /// What is on record of what comes from the client.
    pub record_input: RecordInput,
    /// Whether files that pass by SFTP are hashed for the recording.
    pub hash_files: bool,
    /// Sessions on one SSH connection.
    pub max_sessions: usize,
    /// Whether a proxy gets a certificate for this login at a registered server only by the user's own word.
    pub require_login_word: bool,
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
