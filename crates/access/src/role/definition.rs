//! A role, as it is decided with.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::matchers::{LoginMatcher, NameMatcher, ValueMatcher};
use crate::join::JoinMode;
use crate::options::Options;
use crate::{Kind, RoleName};

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
    /// The labels of each kind of resource.
    pub labels: KindLabels,
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

/// For each label, the values of which one must match; every label listed must match. `'*': '*'` is every resource.
pub type LabelRules = BTreeMap<String, Vec<ValueMatcher>>;

/// The labels that one side of a role looks at, of each kind of resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindLabels(BTreeMap<Kind, LabelRules>);

impl KindLabels {
    /// Those of these kinds; what says nothing is left out.
    pub(crate) fn new(rules: impl IntoIterator<Item = (Kind, LabelRules)>) -> Self {
        Self(rules.into_iter().filter(|(_, rules)| !rules.is_empty()).collect())
    }

    /// Every resource of these kinds as well.
    pub(crate) fn and_all(&mut self, kinds: impl Iterator<Item = Kind>) {
        let every = LabelRules::from([("*".to_owned(), vec![ValueMatcher::Glob("*".to_owned())])]);
        self.0.extend(kinds.map(|kind| (kind, every.clone())));
    }

    /// Those of one kind; none where nothing is said.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &LabelRules {
        const NONE: &LabelRules = &LabelRules::new();
        self.0.get(&kind).unwrap_or(NONE)
    }

    /// Every kind of which something is said.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &LabelRules)> {
        self.0.iter().map(|(kind, rules)| (*kind, rules))
    }
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

/// What rules of the API may name besides the kinds of resource that sessions are with.
const OTHER_RESOURCES: [&str; 17] = [
    "access",
    "ca",
    "certificate",
    "cluster",
    "device",
    "event",
    "github",
    "gitlab",
    "lock",
    "login_rule",
    "oidc",
    "recording",
    "role",
    "session",
    "session_policy",
    "token",
    "user",
];

/// What rules of the API may name, in the order of the alphabet.
pub const RESOURCES: [&str; OTHER_RESOURCES.len() + Kind::ALL.len()] = resources();

#[allow(
    clippy::indexing_slicing,
    reason = "the compiler runs it, and refuses an index that is out of bounds"
)]
const fn resources() -> [&'static str; OTHER_RESOURCES.len() + Kind::ALL.len()] {
    let mut sorted = [""; OTHER_RESOURCES.len() + Kind::ALL.len()];
    let mut count = 0;
    while count < sorted.len() {
        let next = match count < OTHER_RESOURCES.len() {
            true => OTHER_RESOURCES[count],
            false => Kind::ALL[count - OTHER_RESOURCES.len()].row().document,
        };
        let mut place = count;
        while place > 0 && is_before(next, sorted[place - 1]) {
            sorted[place] = sorted[place - 1];
            place -= 1;
        }
        sorted[place] = next;
        count += 1;
    }
    sorted
}

#[allow(
    clippy::indexing_slicing,
    reason = "the compiler runs it, and refuses an index that is out of bounds"
)]
const fn is_before(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return one[at] < other[at];
        }
        at += 1;
    }
    one.len() < other.len()
}

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
    /// What of it a host knows that has no resources of some kinds, such as one of an earlier release: nothing of these. None where
    /// the role says nothing of them.
    #[must_use]
    pub fn without(&self, kinds: &[Kind]) -> Option<Self> {
        let documents: Vec<&str> = kinds.iter().map(|kind| kind.row().document).collect();
        let mut left = self.clone();
        for side in [&mut left.allow, &mut left.deny] {
            side.labels.0.retain(|kind, _| !kinds.contains(kind));
            for rule in &mut side.rules {
                rule.resources.retain(|resource| !documents.contains(&resource.as_str()));
            }
            side.rules.retain(|rule| !rule.resources.is_empty());
        }
        (left != *self).then_some(left)
    }

    /// The labels of resources of this kind that either side looks at.
    pub(crate) fn label_keys(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let sides = [&self.allow, &self.deny].into_iter();
        sides.flat_map(move |side| side.labels.of(kind).keys()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_every_kind_in_order() {
        assert!(RESOURCES.is_sorted(), "{RESOURCES:?}");
        for kind in Kind::ALL {
            assert!(RESOURCES.contains(&kind.row().document), "{kind:?}");
        }
    }
}
