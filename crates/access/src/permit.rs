//! What the decision gives: a permit that only this crate can make, or a refusal that says why.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{HostId, Login, UserName};

/// What happens to a session that cannot be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordPolicy {
    /// It goes on, and the audit log says so.
    BestEffort,
    /// It ends.
    Strict,
}

impl RecordPolicy {
    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "best_effort",
            Self::Strict => "strict",
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

/// Who records a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RecordAt {
    /// Nobody: the audit log has its events, and no more.
    Off,
    /// The node that it runs on; end to end, the proxy sees ciphertext.
    #[default]
    Node,
    /// The proxy, which ends SSH: for servers that cannot record.
    Proxy,
}

/// Where a session is recorded, and whether the authority has to keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordingMode {
    /// Where.
    pub at: RecordAt,
    /// The session goes on only while the authority has what is older than a moment. Otherwise what is recorded may
    /// wait on the disk of whoever records.
    pub sync: bool,
}

impl RecordingMode {
    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        crate::options::mode_name(self)
    }
}

/// How somebody takes part in somebody else's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinMode {
    /// Watches.
    Observer,
    /// Watches and types.
    Peer,
    /// Watches and may end it.
    Moderator,
}

impl JoinMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Observer, Self::Peer, Self::Moderator];

    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Peer => "peer",
            Self::Moderator => "moderator",
        }
    }
}

/// Limits of the sessions of one permit: the most restrictive of what the granting roles say, else what the cluster's
/// session policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
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
    /// What happens to a session that cannot be recorded.
    pub record_session: RecordPolicy,
    /// Where sessions are recorded.
    pub recording: RecordingMode,
    /// What is on record of what comes from the client.
    pub record_input: RecordInput,
    /// Whether files that pass by SFTP are hashed for the recording.
    pub hash_files: bool,
    /// Silence after which the client is disconnected.
    pub client_idle_timeout: Option<Duration>,
    /// Longest time that a connection lasts.
    pub max_session_duration: Option<Duration>,
    /// Whether a connection ends with the certificate that opened it.
    pub disconnect_expired_cert: bool,
    /// Sessions on one SSH connection.
    pub max_sessions: usize,
    /// Whether a proxy gets a certificate for this login at a registered server only by the user's own word.
    pub require_login_word: bool,
}

/// The proof that one user may log in to one node as one account. Only [`crate::Policies::decide`] makes it, and
/// whatever opens a connection asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub(crate) user: UserName,
    pub(crate) node: HostId,
    pub(crate) login: Login,
    pub(crate) options: SessionOptions,
    pub(crate) rule: String,
    pub(crate) valid_until: OffsetDateTime,
}

impl Permit {
    /// Who.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Where.
    #[must_use]
    pub fn node(&self) -> HostId {
        self.node
    }

    /// As which account.
    #[must_use]
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// Within which limits.
    #[must_use]
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// By which rule, such as `role "dev" allow`.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Until the certificate behind it ends.
    #[must_use]
    pub fn valid_until(&self) -> OffsetDateTime {
        self.valid_until
    }
}

/// The proof that somebody may take part in sessions of others on one node. Only [`crate::Policies`] makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinPermit {
    pub(crate) user: UserName,
    pub(crate) node: HostId,
    pub(crate) rule: String,
    pub(crate) valid_until: OffsetDateTime,
}

impl JoinPermit {
    /// Who.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Where.
    #[must_use]
    pub fn node(&self) -> HostId {
        self.node
    }

    /// By which rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Until the certificate behind it ends.
    #[must_use]
    pub fn valid_until(&self) -> OffsetDateTime {
        self.valid_until
    }
}

/// The proof that a caller may use one kind of resource in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiPermit {
    pub(crate) rule: String,
}

impl ApiPermit {
    /// By which rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// For a caller who has proven to be the operator of the authority's own machine, by the mode of its socket.
    #[must_use]
    pub fn local_admin() -> Self {
        Self { rule: "local administrator".to_owned() }
    }
}

/// Why something is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) rule: Option<String>,
    pub(crate) hint: Option<String>,
}

impl Refusal {
    /// The deciding rule, such as `role "dev" deny.logins[0]`; none when nothing allows it.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The reason without what was asked for.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.why
    }

    /// What the refused person may read: what, why, and what they could do instead.
    #[must_use]
    pub fn public_message(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.rule {
            Some(rule) => write!(f, " ({rule})"),
            None => Ok(()),
        }
    }
}
