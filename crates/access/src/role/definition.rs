//! A role, as it is decided with.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::matchers::{LoginMatcher, NameMatcher, ValueMatcher};
use crate::RoleName;
use crate::join::JoinMode;
use crate::options::Options;

/// One role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: RoleName,
    /// For people; may be empty.
    pub description: String,
    /// When the role ends, if it does.
    pub expires: Option<OffsetDateTime>,
    /// What it grants.
    pub allow: Rules,
    /// What it takes away, whatever any role grants.
    pub deny: Rules,
    /// Limits of the sessions that it grants.
    pub options: Options,
}

/// One side of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// OS logins.
    pub logins: Vec<LoginMatcher>,
    /// For each label, the values of which one must match; every label listed must match. `'*': '*'` is every node.
    pub node_labels: BTreeMap<String, Vec<ValueMatcher>>,
    /// As `node_labels`, of databases.
    pub db_labels: BTreeMap<String, Vec<ValueMatcher>>,
    /// Databases within a database server.
    pub db_names: Vec<NameMatcher>,
    /// Users of a database server.
    pub db_users: Vec<NameMatcher>,
    /// Roles of a database server that a user gets who is made there.
    pub db_roles: Vec<NameMatcher>,
    /// Whose live sessions may be joined.
    pub join_sessions: Vec<JoinRule>,
    /// What of the API.
    pub rules: Vec<ApiRule>,
}

/// Whose live sessions may be joined, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRule {
    /// Roles of the sessions' owners, of which they have one, or `*`.
    pub roles: Vec<String>,
    /// In which modes.
    pub modes: Vec<JoinMode>,
}

/// A kind of resource and what may be done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRule {
    /// Kinds, or `*`.
    pub resources: Vec<String>,
    /// What may be done.
    pub verbs: Vec<Verb>,
}

/// What can be done with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the words say it")]
pub enum Verb {
    List,
    Read,
    Create,
    Update,
    Delete,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 5] = [Self::List, Self::Read, Self::Create, Self::Update, Self::Delete];

    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The kinds of resource that rules may name.
pub const RESOURCES: [&str; 14] = [
    "access",
    "ca",
    "certificate",
    "cluster",
    "db",
    "event",
    "lock",
    "node",
    "recording",
    "role",
    "session",
    "session_policy",
    "token",
    "user",
];

/// Every user's own logins, everywhere.
pub const PRESET_ACCESS: &str = "\
kind: role
version: v1
metadata:
  name: access
  description: Log in to every node and database with one's own logins
spec:
  allow:
    logins: ['{{internal.logins}}']
    node_labels:
      '*': '*'
    db_labels:
      '*': '*'
    db_names: ['{{internal.db_names}}']
    db_users: ['{{internal.db_users}}']
  options:
    forward_agent: true
";

/// Reads the audit log and recordings.
pub const PRESET_AUDITOR: &str = "\
kind: role
version: v1
metadata:
  name: auditor
  description: Read the audit log and every recording, see live sessions
spec:
  allow:
    rules:
      - resources: [event, recording, session]
        verbs: [list, read]
";

/// Administers the cluster.
pub const PRESET_EDITOR: &str = "\
kind: role
version: v1
metadata:
  name: editor
  description: Administer everything
spec:
  allow:
    rules:
      - resources: ['*']
        verbs: ['*']
";

impl Role {
    /// The labels of nodes that either side looks at.
    pub(crate) fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.allow.node_labels.keys().chain(self.deny.node_labels.keys()).map(String::as_str)
    }

    /// The labels of databases that either side looks at.
    pub(crate) fn db_label_keys(&self) -> impl Iterator<Item = &str> {
        self.allow.db_labels.keys().chain(self.deny.db_labels.keys()).map(String::as_str)
    }
}
