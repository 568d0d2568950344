//! Locks: keep somebody or something out, at once, whatever certificates say.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::document::metadata;
use crate::yaml::{self, Errors, Problems, Section};
use crate::{DatabaseName, Identity, Login, Node, Principal, RoleName, UserName};

/// One lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// Who or what is kept out.
    pub target: LockTarget,
    /// What the locked person reads; may be empty.
    pub message: String,
    /// When it ends by itself.
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires: Option<OffsetDateTime>,
}

/// Who or what a lock keeps out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockTarget {
    /// A user, with every certificate.
    User(UserName),
    /// Everybody whose certificate has this role.
    Role(RoleName),
    /// An OS login, everywhere.
    Login(Login),
    /// A node, by name or id; also takes its own rights away.
    Node(String),
    /// A database, by name.
    Db(DatabaseName),
    /// All certificates of one login.
    LoginId(Uuid),
}

impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Role(name) => write!(f, "role {name}"),
            Self::Login(login) => write!(f, "login {login}"),
            Self::Node(node) => write!(f, "node {node}"),
            Self::Db(database) => write!(f, "database {database}"),
            Self::LoginId(id) => write!(f, "login id {id}"),
        }
    }
}

impl Lock {
    /// Reads a lock.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        let document = yaml::parse("lock", text)?;
        let mut problems = Problems::new();
        let lock = Section::read(&document, "", &["kind", "version", "metadata", "spec"], &mut problems)
            .and_then(|top| read(&top, &mut problems));
        problems.finish("lock")?;
        lock.ok_or_else(|| Errors { file: "lock".to_owned(), problems: Vec::new() })
    }

    /// The lock as YAML that [`Lock::parse`] reads back to the same lock.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let (key, value) = match &self.target {
            LockTarget::User(name) => ("user", name.to_string()),
            LockTarget::Role(name) => ("role", name.to_string()),
            LockTarget::Login(login) => ("login", login.to_string()),
            LockTarget::Node(node) => ("node", node.clone()),
            LockTarget::Db(database) => ("db", database.to_string()),
            LockTarget::LoginId(id) => ("login_id", id.to_string()),
        };
        let mut metadata = BTreeMap::from([("name", self.name.clone())]);
        if let Some(expires) = self.expires.and_then(|expires| expires.format(&Rfc3339).ok()) {
            metadata.insert("expires", expires);
        }
        let document = Document {
            kind: "lock",
            version: "v1",
            metadata,
            spec: Spec { target: BTreeMap::from([(key, value)]), message: &self.message },
        };
        serde_saphyr::to_string(&document).unwrap_or_default()
    }

    /// Whether it keeps out this identity, or whoever wants this login or node.
    #[must_use]
    pub fn covers(
        &self,
        identity: &Identity,
        node: Option<&Node>,
        login: Option<&Login>,
        now: OffsetDateTime,
    ) -> bool {
        if self.expires.is_some_and(|expires| expires <= now) {
            return false;
        }
        match (&self.target, &identity.principal) {
            (LockTarget::User(locked), Principal::User { name, .. }) => locked == name,
            (LockTarget::Role(locked), Principal::User { roles, .. }) => roles.contains(locked),
            (LockTarget::Login(locked), _) => login == Some(locked),
            (LockTarget::LoginId(locked), _) => *locked == identity.login_id,
            (LockTarget::Node(locked), principal) => {
                let is = |id: &crate::HostId, name: &str| locked == name || *locked == id.to_string();
                let own = matches!(principal, Principal::Host { id, name, .. } if is(id, name.as_str()));
                own || node.is_some_and(|node| is(&node.id, node.name.as_str()))
            }
            (LockTarget::User(_) | LockTarget::Role(_), Principal::Host { .. }) | (LockTarget::Db(_), _) => {
                false
            }
        }
    }

    /// Whether it keeps this identity out of a database.
    #[must_use]
    pub fn covers_database(&self, identity: &Identity, database: &DatabaseName, now: OffsetDateTime) -> bool {
        match &self.target {
            LockTarget::Db(locked) => locked == database && self.expires.is_none_or(|expires| expires > now),
            _ => self.covers(identity, None, None, now),
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: BTreeMap<&'static str, String>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    target: BTreeMap<&'static str, String>,
    message: &'a str,
}

const TARGETS: &[&str] = &["user", "role", "login", "node", "db", "login_id"];

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<Lock> {
    let metadata = metadata(top, "lock", problems);
    let Some(spec) = top.section("spec", &["target", "message"], problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with target below it");
        return None;
    };
    let message = spec.parsed("message", "write text", problems, |text| Ok::<_, &str>(text.to_owned()));
    let Some(target) = spec.section("target", TARGETS, problems) else {
        problems.push(
            spec.at(),
            "spec.target",
            "is missing",
            "write target: with user, role, login, node, db or login_id below it",
        );
        return None;
    };
    let fix = "write the name of what is to be locked";
    let targets = [
        target.parsed("user", fix, problems, |text| UserName::new(text).map(LockTarget::User)),
        target.parsed("role", fix, problems, |text| RoleName::new(text).map(LockTarget::Role)),
        target.parsed("login", fix, problems, |text| Login::new(text).map(LockTarget::Login)),
        target.text("node", problems).map(LockTarget::Node),
        target.parsed("db", fix, problems, |text| DatabaseName::new(text).map(LockTarget::Db)),
        target.parsed("login_id", fix, problems, |text| Uuid::try_parse(text).map(LockTarget::LoginId)),
    ];
    let mut found: Vec<LockTarget> = targets.into_iter().flatten().collect();
    if found.len() != 1 || target.entries().len() > 1 {
        problems.push(
            target.at(),
            "spec.target",
            format!("expected one target, got {}", target.entries().len()),
            "make one lock for each target",
        );
        return None;
    }
    Some(Lock {
        name: metadata.name?,
        target: found.pop()?,
        message: message.unwrap_or_default(),
        expires: metadata.expires,
    })
}
