//! What is kept: the resources of a kind as they are in the state, and what differs between them.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::marker::PhantomData;

use sallyport_access::yaml::Errors;
use sallyport_access::{
    Database, DatabaseName, HostId, Kind, Labels, Listed, ListedId, NodeName, Resource, ResourceName,
};
use sallyport_audit::Code;
use serde::{Deserialize, Serialize};

use sallyport_protocols::spec;

/// How events about changes of what is kept are called.
#[derive(Debug, Clone)]
pub(crate) struct Codes {
    pub(crate) created: Code,
    pub(crate) updated: Code,
    pub(crate) deleted: Code,
    pub(crate) report_refused: Code,
}

/// A resource that the authority keeps with the agents that serve it.
pub(crate) trait Kept:
    Resource<Id: Ord + Display + Send + Sync> + Clone + PartialEq + Debug + Send + Sync + Sized + 'static
{
    /// What its keys in the state begin with.
    const STORED: &'static str;

    /// The id of one of this kind, if that can be its name.
    fn id_of(kind: Kind, name: &str) -> Option<Self::Id>;

    /// The kind and the name of one, by its key in the state without [`Kept::STORED`].
    fn of_key(key: &str) -> Option<(Kind, &str)>;

    /// Whether resources of this kind are kept so.
    fn takes(kind: Kind) -> bool;

    /// Reads a document of this kind.
    fn read(kind: Kind, text: &str) -> Result<Self, Errors>;

    /// The document.
    fn yaml(&self) -> String;

    fn agents(&self) -> &[NodeName];

    fn agents_mut(&mut self) -> &mut Vec<NodeName>;

    fn labels_mut(&mut self) -> &mut Labels;

    /// Takes out what an agent may not say of it; gives what that is called.
    fn reserved(&mut self) -> Option<&'static str> {
        None
    }

    /// The switch of a join token that lets an agent serve it.
    fn token_switch(&self) -> String;

    fn codes() -> Codes;

    /// What messages call it: "the database prod".
    fn title(&self) -> String {
        format!("the {} {}", self.kind().row().word, self.name())
    }

    /// What people type for it: `db/prod`.
    fn path(&self) -> String {
        format!("{}/{}", self.kind().row().document, self.name())
    }
}

impl Kept for Database {
    const STORED: &'static str = "db";

    fn id_of(_: Kind, name: &str) -> Option<DatabaseName> {
        DatabaseName::new(name).ok()
    }

    fn of_key(key: &str) -> Option<(Kind, &str)> {
        Some((Kind::Database, key))
    }

    fn takes(kind: Kind) -> bool {
        kind == Kind::Database
    }

    fn read(_: Kind, text: &str) -> Result<Self, Errors> {
        Self::parse(text)
    }

    fn yaml(&self) -> String {
        self.to_yaml()
    }

    fn agents(&self) -> &[NodeName] {
        &self.agents
    }

    fn agents_mut(&mut self) -> &mut Vec<NodeName> {
        &mut self.agents
    }

    fn labels_mut(&mut self) -> &mut Labels {
        &mut self.labels
    }

    /// With it an agent gets certificates for an account that makes users.
    fn reserved(&mut self) -> Option<&'static str> {
        self.admin_user.take().map(|_| "admin_user")
    }

    fn token_switch(&self) -> String {
        format!("--databases {}", self.name)
    }

    fn codes() -> Codes {
        Codes {
            created: Code::DatabaseCreated,
            updated: Code::DatabaseUpdated,
            deleted: Code::DatabaseDeleted,
            report_refused: Code::DatabaseReportRefused,
        }
    }
}

impl Kept for Listed {
    const STORED: &'static str = "listed";

    fn id_of(kind: Kind, name: &str) -> Option<ListedId> {
        ResourceName::new(name).ok().map(|name| ListedId { kind, name })
    }

    fn of_key(key: &str) -> Option<(Kind, &str)> {
        let (document, name) = key.split_once('/')?;
        Some((Kind::of_document(document)?, name))
    }

    fn takes(kind: Kind) -> bool {
        kind.is_listed()
    }

    fn read(kind: Kind, text: &str) -> Result<Self, Errors> {
        match spec(kind) {
            Some(spec) => Self::parse(kind, text, spec),
            None => Err(Errors { file: kind.row().document.to_owned(), problems: Vec::new() }),
        }
    }

    fn yaml(&self) -> String {
        self.to_yaml()
    }

    fn agents(&self) -> &[NodeName] {
        &self.agents
    }

    fn agents_mut(&mut self) -> &mut Vec<NodeName> {
        &mut self.agents
    }

    fn labels_mut(&mut self) -> &mut Labels {
        &mut self.labels
    }

    fn token_switch(&self) -> String {
        format!("--resources {}", self.path())
    }

    fn codes() -> Codes {
        Codes {
            created: Code::ResourceCreated,
            updated: Code::ResourceUpdated,
            deleted: Code::ResourceDeleted,
            report_refused: Code::ResourceReportRefused,
        }
    }
}

/// One in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptRecord<R> {
    /// The document, in which `via` has the agents.
    pub(crate) yaml: String,
    /// The agents that report it from their configuration; none for one that an administrator wrote.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) reporters: BTreeMap<HostId, NodeName>,
    #[serde(skip)]
    of: PhantomData<R>,
}

/// A database, under its name.
pub(crate) type DatabaseRecord = KeptRecord<Database>;
/// A resource of the catalogue, under its kind and its name.
pub(crate) type ListedRecord = KeptRecord<Listed>;

impl<R: Kept> KeptRecord<R> {
    pub(crate) fn new(yaml: String, reporters: BTreeMap<HostId, NodeName>) -> Self {
        Self { yaml, reporters, of: PhantomData }
    }

    /// Whether this agent serves it. Documents are read only where they name agents.
    pub(crate) fn is_for(&self, kind: Kind, id: HostId, name: &NodeName) -> bool {
        if !self.reporters.is_empty() {
            return self.reporters.contains_key(&id);
        }
        R::read(kind, &self.yaml).is_ok_and(|resource| resource.agents().contains(name))
    }
}

impl<R: Kept> sallyport_store::Kind for KeptRecord<R> {
    const KIND: &'static str = R::STORED;
}

/// The kind that people know and the name of what has this key in the state.
pub(crate) fn of_state(key: &str) -> Option<(&str, &str)> {
    let key = key.strip_prefix(Listed::STORED).and_then(|rest| rest.strip_prefix('/')).unwrap_or(key);
    key.split_once('/')
}

/// What the keys of a kind begin with in the state.
pub(crate) fn prefix(document: &str) -> String {
    match Kind::of_document(document) {
        Some(kind) if kind.is_listed() => format!("{}/{document}/", Listed::STORED),
        _ => format!("{document}/"),
    }
}
