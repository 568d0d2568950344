//! A resource of the catalogue: what the authority keeps, and hosts know, of every kind that has no more than a name, labels,
//! agents and a specification which its kind alone understands.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Number, Value, json};

use crate::document::{Metadata, metadata, metadata_labels, read_document};
use crate::resource::Resource;
use crate::yaml::{Errors, Problems, Section, Tree};
use crate::{Kind, Labels, NodeName, ResourceName};

const TOP: &[&str] = &["kind", "version", "metadata", "spec"];
/// The key of a specification that names the agents, in documents of every kind.
const VIA: &str = "via";
/// Agents of one resource.
const MOST_AGENTS: usize = 64;

/// What a kind says of its specifications.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// The keys that it may have, besides `via`.
    pub keys: &'static [&'static str],
    /// Those of the keys whose texts users may know who may use the resource, such as its address.
    pub shown: &'static [&'static str],
    /// Finds what is wrong with one.
    pub check: fn(&Section<'_>, &mut Problems),
}

/// One resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What it is.
    pub kind: Kind,
    /// What people type; no two of a kind share it.
    pub name: ResourceName,
    /// For people; may be empty.
    pub description: String,
    /// What roles select by.
    pub labels: Labels,
    /// The agents that serve it, by name; any of them will do.
    pub agents: Vec<NodeName>,
    /// What its kind has to know, as [`Spec::check`] accepts it.
    pub spec: Map<String, Value>,
}

/// Which one of which kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListedId {
    /// The kind.
    pub kind: Kind,
    /// Its name among its kind.
    pub name: ResourceName,
}

impl std::fmt::Display for ListedId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.row().document, self.name)
    }
}

impl Resource for Listed {
    type Id = ListedId;
    type Account = ();
    type Options = ();

    fn kind(&self) -> Kind {
        self.kind
    }

    fn id(&self) -> ListedId {
        ListedId { kind: self.kind, name: self.name.clone() }
    }

    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }
}

impl Listed {
    /// Reads a document of this kind.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub fn parse(kind: Kind, text: &str, spec: &Spec) -> Result<Self, Errors> {
        read_document(kind.row().document, text, TOP, |top, problems| Self::read(kind, top, spec, problems))
    }

    /// Reads what a specification says, of a document or of an item in an agent's configuration; `known` are the keys that the
    /// item has besides. `None` where something that is needed is missing; then `problems` has it.
    pub fn read_settings(
        kind: Kind,
        name: Option<ResourceName>,
        labels: Labels,
        section: &Section<'_>,
        spec: &Spec,
        problems: &mut Problems,
    ) -> Option<Self> {
        let agents =
            section.several(VIA, "write the name of an agent's node, or a list of them", problems, |text| {
                NodeName::new(text)
            });
        if agents.len() > MOST_AGENTS {
            let message = format!("{} agents, at most {MOST_AGENTS} are allowed", agents.len());
            problems.push(section.place(VIA), &section.name(VIA), message, "name fewer");
        }
        (spec.check)(section, problems);
        let mut kept = Map::new();
        for (key, value) in
            section.entries().iter().filter(|(key, _)| spec.keys.contains(&key.value.as_str()))
        {
            match json_of(&value.value) {
                Some(json) => drop(kept.insert(key.value.clone(), json)),
                None => problems.push(
                    value.referenced,
                    &section.name(&key.value),
                    "has a number that is out of range",
                    "write another",
                ),
            }
        }
        Some(Self { kind, name: name?, description: String::new(), labels, agents, spec: kept })
    }

    fn read(kind: Kind, top: &Section<'_>, spec: &Spec, problems: &mut Problems) -> Option<Self> {
        let document = kind.row().document;
        let Metadata { name, description, expires, place } = metadata(top, document, problems);
        if expires.is_some() {
            let message = format!("what is of kind {document} has no end");
            problems.push(
                place,
                "metadata.expires",
                message,
                "leave it away, and remove the resource when it ends",
            );
        }
        let name = name.and_then(|name| match ResourceName::new(name) {
            Ok(name) => Some(name),
            Err(error) => {
                problems.push(place, "metadata.name", error.to_string(), "choose another name");
                None
            }
        });
        let labels = metadata_labels(top, problems);
        let keys: Vec<&str> = spec.keys.iter().copied().chain([VIA]).collect();
        let Some(section) = top.section("spec", &keys, problems) else {
            let keys = keys.join(", ");
            problems.push(
                top.at(),
                "spec",
                "is missing",
                format!("write spec: with some of {keys} below it"),
            );
            return None;
        };
        let listed = Self::read_settings(kind, name, labels, &section, spec, problems)?;
        Some(Self { description, ..listed })
    }

    /// The resource as YAML that [`Listed::parse`] reads back to the same resource.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut metadata = BTreeMap::from([("name", json!(self.name.as_str()))]);
        if !self.description.is_empty() {
            metadata.insert("description", json!(self.description));
        }
        let labels: BTreeMap<&str, &str> = self.labels.iter().collect();
        if !labels.is_empty() {
            metadata.insert("labels", json!(labels));
        }
        let mut spec: BTreeMap<&str, Value> =
            self.spec.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        if !self.agents.is_empty() {
            let agents: Vec<&str> = self.agents.iter().map(NodeName::as_str).collect();
            spec.insert(VIA, json!(agents));
        }
        let document = Document { kind: self.kind.row().document, version: "v1", metadata, spec };
        serde_saphyr::to_string(&document).unwrap_or_default()
    }

    /// A text of its specification.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.spec.get(key).and_then(Value::as_str)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: BTreeMap<&'static str, Value>,
    spec: BTreeMap<&'a str, Value>,
}

/// A value as JSON; none for a number that JSON does not have.
fn json_of(tree: &Tree) -> Option<Value> {
    Some(match tree {
        Tree::Null => Value::Null,
        Tree::Bool(value) => Value::Bool(*value),
        Tree::Integer(value) => Value::Number(Number::from_i128(*value)?),
        Tree::Float(value) => Value::Number(Number::from_f64(*value)?),
        Tree::Text(value) => Value::String(value.clone()),
        Tree::List(items) => {
            Value::Array(items.iter().map(|item| json_of(&item.value)).collect::<Option<_>>()?)
        }
        Tree::Map(entries) => {
            let pairs = entries.iter().map(|(key, value)| Some((key.value.clone(), json_of(&value.value)?)));
            Value::Object(pairs.collect::<Option<_>>()?)
        }
    })
}
