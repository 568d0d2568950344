//! Resources as clients see them (RFC 7643 §3.1): all that is known of one, or the attributes that were asked for
//! (RFC 7644 §3.9).

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::ScimError;
use crate::filter::condition::Record;
use crate::kind::Kind;
use crate::memberships::Membership;
use crate::path::{AttributePath, Named, Target};
use crate::resource::{EXTERNAL_ID, Resource};
use crate::schema::row::{Attribute, Schema};
use crate::version::Version;

/// Which attributes a client asked for, as it wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) only: Vec<String>,
    pub(crate) without: Vec<String>,
}

/// Most names of attributes that a client may ask for.
const MAX_ASKED: usize = 100;

impl Asked {
    /// What that means for a kind of resource. Names that it does not have are none of its.
    pub(crate) fn of(&self, kind: Kind) -> Result<Projection, ScimError> {
        if !self.only.is_empty() && !self.without.is_empty() {
            let reason = "attributes and excludedAttributes exclude each other";
            return Err(ScimError::value("attributes", reason));
        }
        let read = |names: &[String]| {
            let names = names.iter().filter_map(|name| AttributePath::parse(name.trim())?.resolve(kind));
            names.collect::<Vec<_>>()
        };
        if self.only.len() + self.without.len() > MAX_ASKED {
            return Err(ScimError::value("attributes", format!("more than {MAX_ASKED} are named")));
        }
        let only = if self.only.is_empty() { None } else { Some(read(&self.only)) };
        Ok(Projection { only, without: read(&self.without) })
    }

    /// Whether anything was asked for.
    pub(crate) fn is_said(&self) -> bool {
        !self.only.is_empty() || !self.without.is_empty()
    }
}

/// The attributes to show of a kind of resource.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    only: Option<Vec<Named>>,
    without: Vec<Named>,
}

impl Projection {
    /// Whether an attribute is shown, as a whole or in part.
    pub(crate) fn shows(&self, extension: Option<&Schema>, attribute: &Attribute) -> bool {
        if attribute.always {
            return true;
        }
        if let Some(only) = &self.only {
            return only.iter().any(|named| covers(named, extension, attribute, None) != Cover::Nothing);
        }
        !self.without.iter().any(|named| covers(named, extension, attribute, None) == Cover::Whole)
    }

    /// Whether a user's groups are shown.
    pub(crate) fn shows_groups(&self, kind: Kind) -> bool {
        kind.schema().find("groups").is_some_and(|groups| self.shows(None, groups))
    }

    fn shows_sub(&self, extension: Option<&Schema>, attribute: &Attribute, sub: &Attribute) -> bool {
        let covered = |named: &Named| covers(named, extension, attribute, Some(sub)) == Cover::Whole;
        match &self.only {
            Some(only) => attribute.always || only.iter().any(covered),
            None => !self.without.iter().any(covered),
        }
    }

    /// What is shown of a value.
    fn part(&self, extension: Option<&Schema>, attribute: &Attribute, value: Value) -> Value {
        match value {
            Value::Array(items) => {
                let items = items.into_iter().map(|item| self.part(extension, attribute, item));
                Value::Array(items.filter(|item| *item != json!({})).collect())
            }
            Value::Object(mut members) => {
                members.retain(|name, _| {
                    attribute.sub(name).is_some_and(|sub| self.shows_sub(extension, attribute, sub))
                });
                Value::Object(members)
            }
            other => other,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Cover {
    Nothing,
    Part,
    Whole,
}

/// How much of an attribute, or of a sub-attribute of it, a name is about.
fn covers(
    named: &Named,
    extension: Option<&Schema>,
    attribute: &Attribute,
    sub: Option<&Attribute>,
) -> Cover {
    let same = |one: Option<&Schema>| one.map(|one| one.id) == extension.map(|other| other.id);
    match named {
        Named::Core => {
            if extension.is_none() {
                Cover::Whole
            } else {
                Cover::Nothing
            }
        }
        Named::Extension(schema) => {
            if same(Some(*schema)) {
                Cover::Whole
            } else {
                Cover::Nothing
            }
        }
        Named::Attribute(target) if same(target.extension) && target.attribute.name == attribute.name => {
            match (target.sub, sub) {
                (None, _) => Cover::Whole,
                (Some(_), None) => Cover::Part,
                (Some(one), Some(other)) => {
                    if one.name == other.name {
                        Cover::Whole
                    } else {
                        Cover::Nothing
                    }
                }
            }
        }
        Named::Attribute(_) => Cover::Nothing,
    }
}

/// A resource with the groups that it is in, where these are known.
pub(crate) struct Shown<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) groups: Vec<Membership<'a>>,
}

/// The address of a resource.
pub(crate) fn location(base: &str, kind: Kind, id: &str) -> String {
    format!("{base}/{}/{id}", kind.endpoint())
}

/// A time as SCIM writes it (RFC 7643 §2.3.5).
pub(crate) fn moment(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_default()
}

impl Shown<'_> {
    fn kind(&self) -> Kind {
        self.resource.draft.kind()
    }

    /// The version of what is shown.
    pub(crate) fn version(&self) -> Version {
        let groups = self.groups.iter().map(|group| [group.group, group.name, group.word()]);
        Version::new(self.resource.revision, groups)
    }

    /// What a client reads.
    pub(crate) fn json(&self, base: &str, projection: &Projection) -> Map<String, Value> {
        let kind = self.kind();
        let attributes = self.resource.draft.attributes();
        let mut shown = Map::new();
        shown.insert("schemas".to_owned(), self.schemas());
        shown.insert("id".to_owned(), Value::String(self.resource.id.clone()));
        let external_id = self.resource.draft.external_id().map(Value::from);
        let meta = json!({
            "resourceType": kind.name(),
            "created": moment(self.resource.created),
            "lastModified": moment(self.resource.modified),
            "location": location(base, kind, &self.resource.id),
            "version": self.version().to_string(),
        });
        for (name, value) in [(EXTERNAL_ID, external_id), ("meta", Some(meta))] {
            if let Some(attribute) = crate::schema::row::find(crate::schema::COMMON, name)
                && projection.shows(None, attribute)
                && let Some(value) = value
            {
                shown.insert(name.to_owned(), projection.part(None, attribute, value));
            }
        }
        for attribute in kind.schema().attributes {
            if !projection.shows(None, attribute) {
                continue;
            }
            let value = match attribute.name {
                "groups" => self.groups_json(base),
                "members" => attributes.get(attribute.name).map(|members| members_json(members, base)),
                name => attributes.get(name).cloned(),
            };
            if let Some(value) = value {
                shown.insert(attribute.name.to_owned(), projection.part(None, attribute, value));
            }
        }
        for extension in kind.extensions() {
            let Some(Value::Object(members)) = attributes.get(extension.id) else { continue };
            let mut part = Map::new();
            for attribute in extension.attributes {
                if let Some(value) = members.get(attribute.name)
                    && projection.shows(Some(extension), attribute)
                {
                    let value = projection.part(Some(extension), attribute, value.clone());
                    part.insert(attribute.name.to_owned(), value);
                }
            }
            if !part.is_empty() {
                shown.insert(extension.id.to_owned(), Value::Object(part));
            }
        }
        shown
    }

    fn schemas(&self) -> Value {
        let kind = self.kind();
        let extensions = kind.extensions().iter().map(|extension| extension.id);
        let used = extensions.filter(|id| self.resource.draft.attributes().contains_key(*id));
        std::iter::once(kind.schema().id).chain(used).collect()
    }

    fn groups_json(&self, base: &str) -> Option<Value> {
        let group = |group: &Membership<'_>| {
            json!({
                "value": group.group,
                "$ref": location(base, Kind::Group, group.group),
                "display": group.name,
                "type": group.word(),
            })
        };
        (!self.groups.is_empty()).then(|| self.groups.iter().map(group).collect())
    }
}

fn members_json(members: &Value, base: &str) -> Value {
    let member = |member: &Value| {
        let mut member = member.as_object().cloned().unwrap_or_default();
        let text = |name: &str| member.get(name).and_then(Value::as_str);
        let kind = Kind::ALL.iter().find(|kind| text("type") == Some(kind.name()));
        if let (Some(kind), Some(id)) = (kind, text("value")) {
            let reference = location(base, *kind, id);
            member.insert("$ref".to_owned(), Value::String(reference));
        }
        Value::Object(member)
    };
    members.as_array().into_iter().flatten().map(member).collect()
}

/// What a filter is held against: attributes as they are stored, and what is known besides.
impl Record for Shown<'_> {
    fn value(&self, target: &Target) -> Option<Cow<'_, Value>> {
        let attributes = self.resource.draft.attributes();
        if let Some(extension) = target.extension {
            return attributes.get(extension.id)?.get(target.attribute.name).map(Cow::Borrowed);
        }
        let owned = match target.attribute.name {
            "id" => Value::String(self.resource.id.clone()),
            EXTERNAL_ID => Value::String(self.resource.draft.external_id()?.to_owned()),
            "schemas" => self.schemas(),
            "meta" => json!({
                "resourceType": self.kind().name(),
                "created": moment(self.resource.created),
                "lastModified": moment(self.resource.modified),
                // Addresses and versions are not compared, but each resource has them.
                "location": "-",
                "version": "-",
            }),
            "groups" => self.groups_json("-")?,
            name => return attributes.get(name).map(Cow::Borrowed),
        };
        Some(Cow::Owned(owned))
    }
}
