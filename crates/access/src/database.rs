//! The target of a database session, as the access decision sees it.

pub mod document;

use serde::{Deserialize, Serialize};

use crate::resource::Resource;
use crate::{DatabaseName, Kind, Labels, NodeName};

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
    /// Certificates in PEM of the CA that signs the server's; by default the cluster's `db` CA.
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
    /// Nothing: an attacker in between reads and changes everything. Written below `danger`.
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
    /// No person could read it, and a NUL ends it early on its way.
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

/// An account in a database server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseAccount {
    /// The user of the server.
    pub user: String,
    /// The database within the server.
    pub name: String,
}

impl DatabaseAccount {
    /// As this user, with this database.
    #[must_use]
    pub fn new(user: &str, name: &str) -> Self {
        Self { user: user.to_owned(), name: name.to_owned() }
    }
}

impl Resource for Database {
    type Id = DatabaseName;
    type Account = DatabaseAccount;
    type Options = DatabaseOptions;

    fn kind(&self) -> Kind {
        Kind::Database
    }

    fn id(&self) -> DatabaseName {
        self.name.clone()
    }

    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }
}

/// Limits of sessions with databases besides those of every kind: the most restrictive of what the granting roles say, else
/// what the cluster's session policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// Whether the values of parameters are on record. Default no: they are where the secrets are.
    pub record_parameters: bool,
    /// Longest part of one statement that is on record, in bytes; the whole is hashed. Default 4096.
    pub statement_bytes: usize,
    /// Whether the database user is made.
    pub user_mode: DatabaseUserMode,
    /// The server's roles that a user gets who is made: sorted, each once.
    pub roles: Vec<String>,
    /// Whether the session has to be TLS from the user's own program to the agent.
    pub end_to_end: bool,
    /// Whether the session is refused where its database user may run what is not in the record.
    pub refuse_unseen: bool,
    /// Sessions of the user with the database at a time, through one agent. Default 80.
    pub max_sessions: usize,
}
