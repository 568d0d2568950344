//! The target of a database session, and the proof that somebody may use it so.

pub mod document;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::permit::RecordPolicy;
use crate::{DatabaseName, Labels, NodeName, UserName};

/// A database server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// What people type; no two databases share it.
    pub name: DatabaseName,
    /// What roles select by.
    pub labels: Labels,
    /// What it speaks.
    pub protocol: DatabaseProtocol,
    /// Where its agents find it: `host:port`, an IPv6 address in brackets.
    pub address: String,
    /// The agents that serve it, by name; any of them will do.
    pub agents: Vec<NodeName>,
    /// How an agent knows that it is the right one.
    pub tls: DatabaseTls,
    /// How an agent logs in to it.
    pub login: DatabaseLogin,
    /// The account with which users are made as they come; without one they are not.
    pub admin_user: Option<String>,
}

/// What a database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseProtocol {
    /// PostgreSQL's protocol, version 3.
    #[default]
    Postgres,
}

/// How an agent knows that it talks to the right server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatabaseTls {
    /// What is checked. Default everything.
    pub mode: DatabaseTlsMode,
    /// The name in the server's certificate, where it is not the host of the address.
    pub server_name: Option<String>,
    /// Certificates in PEM of whoever signs the server's; by default the cluster's `db` CA.
    pub ca_pem: Option<String>,
}

/// What is checked of a database server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DatabaseTlsMode {
    /// Who signed it, and the server's name in it.
    #[default]
    VerifyFull,
    /// Who signed it: any server of that CA will do.
    VerifyCa,
    /// Nothing: whoever is in between reads and changes everything. Written below `danger`.
    Insecure,
    /// No TLS at all, as on a Unix socket's machine. Written below `danger`.
    Disabled,
}

/// How an agent logs in to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseLogin {
    /// With a short-lived certificate of the `db_client` CA, whose common name is the database user.
    #[default]
    Certificate,
    /// With a password of the agent's password file (SCRAM-SHA-256; MD5 and plain text are refused).
    Password,
}

/// Longest name in a PostgreSQL server, in bytes (`NAMEDATALEN` less one).
pub const NAME_BYTES: usize = 63;

/// Why a text cannot name a user, database or role in a database server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is nothing.
    #[error("is empty")]
    Empty,
    /// A server would cut it, and then it could be another name than the one that was decided about.
    #[error("is longer than {NAME_BYTES} bytes, the longest name in a PostgreSQL server")]
    TooLong,
    /// Nobody could read it, and a NUL ends it early on its way.
    #[error("has a control character")]
    Control,
}

/// Checks a name of a user, database or role in a database server.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(text: &str) -> Result<(), NameError> {
    match text {
        "" => Err(NameError::Empty),
        long if long.len() > NAME_BYTES => Err(NameError::TooLong),
        odd if odd.chars().any(char::is_control) => Err(NameError::Control),
        _ => Ok(()),
    }
}

/// Whether database users are made as people come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseUserMode {
    /// They have to exist.
    #[default]
    Off,
    /// Made when they come, and dropped when their last session has ended; where that cannot be, closed to logins.
    BestEffortDrop,
    /// Made when they come, and closed to logins when their last session has ended.
    Keep,
}

impl DatabaseUserMode {
    /// Every mode, the strictest first.
    pub const ALL: [Self; 3] = [Self::Off, Self::BestEffortDrop, Self::Keep];

    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Keep => "keep",
            Self::BestEffortDrop => "best_effort_drop",
        }
    }
}

/// Limits of the database sessions of one permit: the most restrictive of what the granting roles say, else what the
/// cluster's session policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// What happens to a session that cannot be recorded.
    pub record_session: RecordPolicy,
    /// Whether it is recorded at all; the audit log has its statements in any case.
    pub record: bool,
    /// Whether the recording is kept in step with the authority.
    pub sync: bool,
    /// Whether the values of parameters are on record. Default no: they are where the secrets are.
    pub record_parameters: bool,
    /// Longest part of one statement that is on record, in bytes; the whole is hashed. Default 4096.
    pub statement_bytes: usize,
    /// Silence of the client after which it is disconnected.
    pub client_idle_timeout: Option<Duration>,
    /// Longest time that a connection lasts.
    pub max_session_duration: Option<Duration>,
    /// Whether a connection ends with the certificate that opened it.
    pub disconnect_expired_cert: bool,
    /// Whether the database user is made.
    pub user_mode: DatabaseUserMode,
    /// Whether the session has to be TLS from the user's own program to the agent.
    pub end_to_end: bool,
    /// Whether the session is refused where its database user may run what is not in the record.
    pub refuse_unseen: bool,
    /// Sessions of the user with the database at a time, through one agent. Default 80.
    pub max_sessions: usize,
}

/// The proof that one user of the cluster may use one database as one database user under one database name. Only
/// [`crate::Policies::decide_database`] makes it, and whatever opens a connection asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabasePermit {
    pub(crate) user: UserName,
    pub(crate) database: DatabaseName,
    pub(crate) db_user: String,
    pub(crate) db_name: String,
    pub(crate) roles: Vec<String>,
    pub(crate) options: DatabaseOptions,
    pub(crate) rule: String,
    pub(crate) valid_until: OffsetDateTime,
}

impl DatabasePermit {
    /// Who.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Which server.
    #[must_use]
    pub fn database(&self) -> &DatabaseName {
        &self.database
    }

    /// As which user of the server.
    #[must_use]
    pub fn db_user(&self) -> &str {
        &self.db_user
    }

    /// Which of the server's databases.
    #[must_use]
    pub fn db_name(&self) -> &str {
        &self.db_name
    }

    /// The server's roles that a user gets who is made: sorted, each once.
    #[must_use]
    pub fn roles(&self) -> &[String] {
        &self.roles
    }

    /// Within which limits.
    #[must_use]
    pub fn options(&self) -> &DatabaseOptions {
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
