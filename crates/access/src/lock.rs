//! Locks: keep a user, a host or a login out, at once, whatever certificates say.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::document::{metadata, read_document};
use crate::yaml::{Errors, Problems, Section};
use crate::{
    DatabaseName, DeviceId, HostId, Identity, Kind, Login, Nature, Node, Principal, ResourceName, RoleName,
    UserName,
};

/// One lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// Who or what is kept out.
    pub target: LockTarget,
    /// What the locked person reads; may be empty.
    pub message: String,
    /// When it ends by itself.
    pub expires: Option<OffsetDateTime>,
}

/// Who or what a lock keeps out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockTarget {
    /// A user, with every certificate.
    User(UserName),
    /// Every user whose certificate has this role.
    Role(RoleName),
    /// An OS login, everywhere.
    Login(Login),
    /// A resource, by its name among its kind; a node also by its id, and a lock takes its own rights away, too.
    Resource(Kind, String),
    /// All certificates of one login.
    LoginId(Uuid),
    /// All certificates of logins from one trusted device, and further logins from it.
    Device(DeviceId),
}

impl LockTarget {
    /// A node or another host, by its id.
    #[must_use]
    pub fn host(id: HostId) -> Self {
        Self::Resource(Kind::Node, id.to_string())
    }
}

impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Role(name) => write!(f, "role {name}"),
            Self::Login(login) => write!(f, "login {login}"),
            Self::Resource(kind, name) => write!(f, "{} {name}", kind.row().word),
            Self::LoginId(id) => write!(f, "login id {id}"),
            Self::Device(id) => write!(f, "device {id}"),
        }
    }
}

impl Lock {
    /// Reads a lock.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        read_document("lock", text, &["kind", "version", "metadata", "spec"], read)
    }

    /// The lock as YAML that [`Lock::parse`] reads back to the same lock.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let (key, value) = match &self.target {
            LockTarget::User(name) => ("user", name.to_string()),
            LockTarget::Role(name) => ("role", name.to_string()),
            LockTarget::Login(login) => ("login", login.to_string()),
            LockTarget::Resource(kind, name) => (kind.row().document, name.clone()),
            LockTarget::LoginId(id) => ("login_id", id.to_string()),
            LockTarget::Device(id) => ("device", id.to_string()),
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

    /// Whether it keeps out this identity, or every identity that wants this login or node.
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
            (LockTarget::Device(locked), _) => identity.device.is_some_and(|device| device.id == *locked),
            (LockTarget::Resource(Kind::Node, locked), principal) => {
                let is = |id: &HostId, name: &str| locked == name || *locked == id.to_string();
                let own = matches!(principal, Principal::Host { id, name, .. } if is(id, name.as_str()));
                own || node.is_some_and(|node| is(&node.id, node.name.as_str()))
            }
            (LockTarget::User(_) | LockTarget::Role(_), Principal::Host { .. })
            | (LockTarget::Resource(..), _) => false,
        }
    }

    /// Whether it keeps this identity out of a resource that has no more than a name.
    #[must_use]
    pub fn covers_resource(&self, identity: &Identity, kind: Kind, name: &str, now: OffsetDateTime) -> bool {
        let ended = self.expires.is_some_and(|expires| expires <= now);
        let locked =
            matches!(&self.target, LockTarget::Resource(of, locked) if *of == kind && locked == name);
        (locked && !ended) || self.covers(identity, None, None, now)
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

/// What a lock may be on.
fn targets() -> Vec<&'static str> {
    let resources = Kind::ALL.iter().map(|kind| kind.row().document);
    ["user", "role", "login"].into_iter().chain(resources).chain(["login_id", "device"]).collect()
}

/// A resource that a lock names.
fn resource(kind: Kind, target: &Section<'_>, fix: &str, problems: &mut Problems) -> Option<LockTarget> {
    let key = kind.row().document;
    let name = match kind.row().nature {
        Nature::Node => target.text(key, problems),
        Nature::Database => {
            target.parsed(key, fix, problems, |text| DatabaseName::new(text).map(String::from))
        }
        Nature::Listed => target.parsed(key, fix, problems, |text| ResourceName::new(text).map(String::from)),
    };
    name.map(|name| LockTarget::Resource(kind, name))
}

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<Lock> {
    let metadata = metadata(top, "lock", problems);
    let Some(spec) = top.section("spec", &["target", "message"], problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with target below it");
        return None;
    };
    let message = spec.parsed("message", "write text", problems, |text| Ok::<_, &str>(text.to_owned()));
    let known = targets();
    let Some(target) = spec.section("target", &known, problems) else {
        let (last, first) = known.split_last().unwrap_or((&"", &[]));
        let fix = format!("write target: with {} or {last} below it", first.join(", "));
        problems.push(spec.at(), "spec.target", "is missing", fix);
        return None;
    };
    let fix = "write the name of what is to be locked";
    let others = [
        target.parsed("user", fix, problems, |text| UserName::new(text).map(LockTarget::User)),
        target.parsed("role", fix, problems, |text| RoleName::new(text).map(LockTarget::Role)),
        target.parsed("login", fix, problems, |text| Login::new(text).map(LockTarget::Login)),
        target.parsed("login_id", fix, problems, |text| Uuid::try_parse(text).map(LockTarget::LoginId)),
        target.parsed("device", fix, problems, |text| text.parse().map(LockTarget::Device)),
    ];
    let resources = Kind::ALL.iter().map(|kind| resource(*kind, &target, fix, problems));
    let mut found: Vec<LockTarget> = others.into_iter().chain(resources).flatten().collect();
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
