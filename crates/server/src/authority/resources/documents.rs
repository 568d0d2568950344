//! Resources as YAML documents: reading, writing, and what belongs together.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sallyport_access::yaml::{Errors, Problems, Section, Tree};
use sallyport_access::{
    Database, HostId, Kind, Labels, Listed, Lock, LoginRule, LoginRules, NodeName, Role, RoleName,
    SESSION_POLICY_NAME, SessionPolicy, Traits, UserName, read_document, yaml,
};
use sallyport_wire::{convert, v1};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::Status;

use crate::authority::caller::shown;
use crate::authority::catalogue::kept::Kept as _;
use crate::authority::hosts::server_document::document;
use crate::authority::hosts::server_document::{NodeDocument, SUB_KIND};
use crate::authority::records::{NodeRecord, Origin, TokenRecord, UserRecord};
use crate::authority::sso::connector::{Connector, KINDS as CONNECTORS};

/// Kinds that the API knows.
pub(crate) static KINDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let others =
        ["github", "gitlab", "lock", "login_rule", "oidc", "role", "session_policy", "token", "user"]
            .into_iter();
    let mut kinds: Vec<&str> = others.chain(Kind::ALL.iter().map(|kind| kind.row().document)).collect();
    kinds.sort_unstable();
    kinds
});

/// Kinds of documents, for a message; tokens are made without one.
fn written_kinds() -> String {
    let kinds: Vec<&str> = ["role", "user", "lock", "login_rule", "oidc", "github", "gitlab"]
        .into_iter()
        .chain(Kind::ALL.iter().map(|kind| kind.row().document))
        .collect();
    format!("{} or session_policy", kinds.join(", "))
}

/// A document that was read.
#[derive(Debug)]
pub(crate) enum Document {
    Role(Box<Role>),
    User(UserRecord),
    Lock(Lock),
    LoginRule(Box<LoginRule>),
    SessionPolicy(Box<SessionPolicy>),
    Connector(Box<Connector>),
    Node(Box<NodeDocument>),
    Database(Box<Database>),
    Listed(Box<Listed>),
}

impl Document {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Role(_) => "role",
            Self::User(_) => "user",
            Self::Lock(_) => "lock",
            Self::LoginRule(_) => "login_rule",
            Self::SessionPolicy(_) => "session_policy",
            Self::Connector(connector) => connector.protocol.kind(),
            Self::Node(_) => "node",
            Self::Database(_) => Kind::Database.row().document,
            Self::Listed(listed) => listed.kind.row().document,
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Role(role) => role.name.to_string(),
            Self::User(user) => user.name.to_string(),
            Self::Lock(lock) => lock.name.clone(),
            Self::LoginRule(rule) => rule.name.to_string(),
            Self::SessionPolicy(_) => SESSION_POLICY_NAME.to_owned(),
            Self::Connector(connector) => connector.name.to_string(),
            Self::Node(node) => node.name.to_string(),
            Self::Database(database) => database.name.to_string(),
            Self::Listed(listed) => listed.name.to_string(),
        }
    }
}

/// Longest document. The largest role of a cluster with thousands of labels is a tenth of it.
const LONGEST_DOCUMENT: usize = 64 * 1024;

/// A document that is longer than people write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the document has {got} bytes, at most {LONGEST_DOCUMENT} are allowed")]
pub(crate) struct TooLong {
    /// Its bytes.
    pub(crate) got: usize,
}

/// A document's text, which is no longer than people write. Only such a text is taken apart, and not on the threads that
/// serve connections.
#[derive(Debug, Clone)]
pub(crate) struct Text(String);

impl Text {
    /// Takes what a caller sent.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(crate) fn new(text: String) -> Result<Self, TooLong> {
        if text.len() <= LONGEST_DOCUMENT { Ok(Self(text)) } else { Err(TooLong { got: text.len() }) }
    }

    /// The document.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The kind in a line `kind: KIND`, which is enough to ask whether the caller may write such documents before the document is
/// taken apart. What it says is compared with what the document turns out to be.
pub(crate) fn claimed_kind(text: &str) -> Option<&'static str> {
    let said = text.lines().find_map(|line| line.strip_prefix("kind:"))?;
    let said = said.split(" #").next()?.trim().trim_matches(['"', '\'']);
    KINDS.iter().copied().find(|known| *known == said)
}

/// What kind of document a text says it is.
pub(crate) fn kind_of(text: &str) -> Result<String, Status> {
    let document = yaml::parse("document", text).map_err(wrong)?;
    let kind = match &document.value {
        Tree::Map(entries) => {
            entries.iter().find(|(key, _)| key.value == "kind").and_then(|(_, value)| value.value.scalar())
        }
        _ => None,
    };
    kind.ok_or_else(|| {
        Status::invalid_argument(format!("the document has no kind; begin it with kind: {}", written_kinds()))
    })
}

/// Reads a document; every mistake is in the answer.
pub(crate) fn read(kind: &str, text: &Text) -> Result<Document, Status> {
    let text = text.as_str();
    match kind {
        "role" => Role::parse(text).map(|role| Document::Role(Box::new(role))).map_err(wrong),
        "lock" => Lock::parse(text).map(Document::Lock).map_err(wrong),
        "login_rule" => {
            let rule = LoginRule::parse(text).map_err(wrong)?;
            LoginRules::compile(vec![rule.clone()])
                .map_err(|error| Status::invalid_argument(error.to_string()))?;
            Ok(Document::LoginRule(Box::new(rule)))
        }
        "user" => user(text).map(Document::User).map_err(wrong),
        "session_policy" => {
            SessionPolicy::parse(text).map(|policy| Document::SessionPolicy(Box::new(policy))).map_err(wrong)
        }
        _ if CONNECTORS.contains(&kind) => {
            Connector::parse(text).map(|connector| Document::Connector(Box::new(connector))).map_err(wrong)
        }
        "token" => Err(Status::invalid_argument("tokens are made with: sallyport admin tokens add")),
        "node" => document(text).map(|node| Document::Node(Box::new(node))).map_err(wrong),
        "db" => Database::parse(text).map(|database| Document::Database(Box::new(database))).map_err(wrong),
        other => match Kind::of_document(other).filter(|kind| kind.is_listed()) {
            Some(kind) => Listed::read(kind, text).map(|one| Document::Listed(Box::new(one))).map_err(wrong),
            None => Err(Status::invalid_argument(format!(
                "there is no kind {:?}; documents are of kind {}",
                shown(other),
                written_kinds()
            ))),
        },
    }
}

fn wrong(errors: Errors) -> Status {
    Status::invalid_argument(errors.to_string())
}

fn user(text: &str) -> Result<UserRecord, Errors> {
    read_document("user", text, &["kind", "version", "metadata", "spec"], user_of)
}

fn user_of(top: &Section<'_>, problems: &mut Problems) -> Option<UserRecord> {
    let metadata = top.section("metadata", &["name", "revision"], problems);
    let name = metadata.as_ref().and_then(|metadata| {
        metadata.parsed("name", "write the user's name", problems, |text| UserName::new(text))
    });
    if name.is_none() && metadata.is_none_or(|metadata| metadata.present("name").is_none()) {
        problems.push(top.at(), "metadata.name", "is missing", "write metadata: with name: below it");
    }
    let spec = top.section("spec", &["roles", "traits", "origin", "link"], problems);
    let Some(spec) = spec else {
        problems.push(top.at(), "spec", "is missing", "write spec: with roles: [...] below it");
        return None;
    };
    if spec.present("origin").is_some() {
        problems.push(
            spec.place("origin"),
            "spec.origin",
            "is of a user who comes by single sign-on, and is not written",
            "change the mapping of the connector; or leave it out, and choose another name, for a local user",
        );
    }
    let roles = spec.several("roles", "write names of roles", problems, |text| RoleName::new(text));
    let mut traits = Traits::new();
    if let Some(value) = spec.present("traits") {
        match &value.value {
            Tree::Map(entries) => {
                for (key, value) in entries {
                    let path = format!("spec.traits.{}", key.value);
                    let items: Vec<_> = match &value.value {
                        Tree::List(items) => items.iter().collect(),
                        _ => vec![value],
                    };
                    let mut values = Vec::new();
                    for item in items {
                        match item.value.scalar() {
                            Some(text) => values.push(text),
                            None => problems.push(
                                item.referenced,
                                &path,
                                "expected text",
                                "write one value or a list of them",
                            ),
                        }
                    }
                    traits.insert(key.value.clone(), values);
                }
            }
            other => problems.push(
                value.referenced,
                "spec.traits",
                format!("expected traits, got {}", other.kind()),
                "write NAME: [VALUE] below it",
            ),
        }
    }
    Some(UserRecord { name: name?, roles, traits, origin: None, link: link_of(&spec, problems) })
}

/// The link that a document names. It is taken only as it is already (`Accounts::write_user`), so that a document that was read can be
/// written again.
fn link_of(spec: &Section<'_>, problems: &mut Problems) -> Option<Origin> {
    let link = spec.section("link", &["connector", "issuer", "subject"], problems)?;
    let (connector, issuer) = (link.text("connector", problems), link.text("issuer", problems));
    let subject = link.text("subject", problems);
    if let (Some(connector), Some(issuer), Some(subject)) = (connector, issuer, subject) {
        return Some(Origin { connector, issuer, subject });
    }
    let fix = "leave link out, which keeps the link as it is; sallyport admin users link makes one";
    problems.push(link.at(), "spec.link", "is not whole", fix);
    None
}

pub(crate) fn resource(
    kind: &str,
    name: &str,
    revision: u64,
    expires: Option<OffsetDateTime>,
    yaml: String,
) -> v1::Resource {
    v1::Resource {
        kind: kind.to_owned(),
        name: name.to_owned(),
        revision,
        expires: expires.map(convert::time_to_proto),
        yaml,
    }
}

#[derive(Serialize)]
struct Written<M, S> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_kind: Option<&'static str>,
    version: &'static str,
    metadata: M,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<S>,
}

fn write<M: Serialize, S: Serialize>(kind: &'static str, metadata: M, spec: Option<S>) -> String {
    serde_saphyr::to_string(&Written { kind, sub_kind: None, version: "v1", metadata, spec })
        .unwrap_or_default()
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

pub(crate) fn user_yaml(user: &UserRecord) -> String {
    #[derive(Serialize)]
    struct Spec<'a> {
        roles: Vec<&'a str>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        traits: &'a Traits,
        #[serde(skip_serializing_if = "Option::is_none")]
        origin: Option<&'a Origin>,
        #[serde(skip_serializing_if = "Option::is_none")]
        link: Option<&'a Origin>,
    }
    let roles = user.roles.iter().map(RoleName::as_str).collect();
    write(
        "user",
        Named { name: user.name.as_str() },
        Some(Spec { roles, traits: &user.traits, origin: user.origin.as_ref(), link: user.link.as_ref() }),
    )
}

pub(crate) fn token_yaml(name: &str, token: &TokenRecord) -> String {
    #[derive(Serialize)]
    struct Spec<'a> {
        role: &'a str,
        uses_left: u32,
        expires: String,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        labels: &'a BTreeMap<String, String>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        names: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        own_labels: Option<&'a BTreeMap<String, String>>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        databases: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        replaces: Option<HostId>,
    }
    // A person reads it; the moment itself is in the record.
    let expires = token.expires.replace_nanosecond(0).unwrap_or(token.expires);
    let expires = expires.format(&Rfc3339).unwrap_or_default();
    let spec = Spec {
        role: token.role.name(),
        uses_left: token.uses_left,
        expires,
        labels: &token.labels,
        names: &token.bounds.names,
        own_labels: token.bounds.labels.as_ref(),
        databases: &token.bounds.databases,
        replaces: token.replaces,
    };
    write("token", Named { name }, Some(spec))
}

pub(crate) fn node_yaml(node: &NodeRecord) -> String {
    #[derive(Serialize)]
    struct Metadata<'a> {
        name: &'a str,
        id: HostId,
        labels: &'a Labels,
    }
    #[derive(Serialize)]
    struct Spec<'a> {
        version: &'a str,
        os_user: &'a str,
    }
    #[derive(Serialize)]
    struct Openssh<'a> {
        address: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        via: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        host_key: Option<&'a str>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        names: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        trust: Option<&'static str>,
    }
    let metadata = Metadata { name: node.name.as_str(), id: node.id, labels: &node.labels };
    let Some(server) = &node.openssh else {
        let spec = Spec { version: &node.version, os_user: &node.os_user };
        return write("node", metadata, Some(spec));
    };
    let spec = Openssh {
        address: &server.address,
        via: server.via.as_ref().map(NodeName::as_str),
        host_key: server.host_key.as_deref(),
        names: &server.names,
        trust: (!server.trust.is_default()).then(|| server.trust.name()),
    };
    let sub_kind = Some(SUB_KIND);
    let written = Written { kind: "node", sub_kind, version: "v1", metadata, spec: Some(spec) };
    serde_saphyr::to_string(&written).unwrap_or_default()
}
