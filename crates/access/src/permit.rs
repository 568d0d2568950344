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

/// Limits of the sessions of one permit: the most restrictive of what the granting roles say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Whether the client's ssh-agent may be reached from the session.
    pub forward_agent: bool,
    /// Whether ports may be forwarded.
    pub port_forwarding: bool,
    /// Whether SFTP, scp and rsync may be used.
    pub ssh_file_copy: bool,
    /// What happens to a session that cannot be recorded.
    pub record_session: RecordPolicy,
    /// Silence after which the client is disconnected.
    pub client_idle_timeout: Option<Duration>,
    /// Sessions on one SSH connection.
    pub max_sessions: usize,
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
