//! Resources, and drafts of them: attributes that fit their schema, and what is known besides.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::kind::Kind;

/// A member that is no resource of the connector's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no user or group {id:?} to be a member")]
pub struct UnknownMember {
    /// The identifier.
    pub id: String,
}

/// A resource as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its identifier, which never changes, and is given to no other resource.
    pub id: String,
    /// What the client says of it.
    #[serde(flatten)]
    pub draft: Draft,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created: OffsetDateTime,
    /// When it was changed last.
    #[serde(with = "time::serde::rfc3339")]
    pub modified: OffsetDateTime,
    /// Grows with each change.
    pub revision: u64,
}

impl Resource {
    /// The same without members, for where they are not looked at.
    pub(crate) fn without_members(&self) -> Self {
        let attributes = self.draft.attributes.iter().filter(|(name, _)| *name != "members");
        let attributes = attributes.map(|(name, value)| (name.clone(), value.clone())).collect();
        let draft = Draft { kind: self.draft.kind, external_id: self.draft.external_id.clone(), attributes };
        Self { id: self.id.clone(), draft, ..*self }
    }

    /// How long it is as JSON, about, in bytes.
    pub(crate) fn size(&self) -> usize {
        /// An identifier, an address and the names of both.
        const MEMBER: usize = 200;
        let size = |name: &str, value: &Value| match value {
            Value::Array(items) if name == "members" => items.len() * MEMBER,
            value => value.to_string().len(),
        };
        self.draft.attributes.iter().map(|(name, value)| name.len() + size(name, value)).sum()
    }
}

/// What a client says of a resource. It is made of requests alone, so that the attributes fit the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    kind: Kind,
    /// The client's own identifier, in a field of its own: it is opaque, and never compared with one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    attributes: Map<String, Value>,
}

/// Where it stands what a member is, which no client writes.
const TYPE: &str = "type";

const USER_NAME: &str = "userName";

/// The name under which the client's identifier stands in a message.
pub(crate) const EXTERNAL_ID: &str = "externalId";

impl Draft {
    /// From attributes that fit the schema, with the client's identifier among them.
    pub(crate) fn of(kind: Kind, mut attributes: Map<String, Value>) -> Self {
        let external_id = match attributes.remove(EXTERNAL_ID) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        Self { kind, external_id, attributes }
    }

    /// The attributes, with the client's identifier among them.
    pub(crate) fn whole(&self) -> Map<String, Value> {
        let mut whole = self.attributes.clone();
        if let Some(id) = &self.external_id {
            whole.insert(EXTERNAL_ID.to_owned(), Value::String(id.clone()));
        }
        whole
    }

    /// What kind of resource it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The client's own identifier.
    #[must_use]
    pub fn external_id(&self) -> Option<&str> {
        self.external_id.as_deref()
    }

    /// The core attributes by their names in the schema, and those of an extension under its URN.
    #[must_use]
    pub fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
    }

    /// The name of a user as the client writes it. Two are the same user's if they [fold](crate::fold) to the same.
    #[must_use]
    pub fn user_name(&self) -> Option<&str> {
        self.text(USER_NAME)
    }

    /// Has a user keep the name that they had before, whatever the client calls them now.
    pub fn keep_user_name(&mut self, before: &Self) {
        match before.attributes.get(USER_NAME) {
            Some(name) => drop(self.attributes.insert(USER_NAME.to_owned(), name.clone())),
            None => drop(self.attributes.remove(USER_NAME)),
        }
    }

    /// The name for people.
    #[must_use]
    pub fn display_name(&self) -> Option<&str> {
        self.text("displayName")
    }

    /// Whether a user may log in. A user whose `active` was removed may not: only what says true lets one in.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.attributes.get("active") == Some(&Value::Bool(true))
    }

    /// The identifiers of a group's members.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        let members = self.attributes.get("members").and_then(Value::as_array);
        members.into_iter().flatten().filter_map(|member| member.get("value").and_then(Value::as_str))
    }

    /// The identifiers of members of which it is not known what they are: those that a client has just named.
    pub fn unnamed_members(&self) -> impl Iterator<Item = &str> {
        let members = self.attributes.get("members").and_then(Value::as_array);
        let unnamed = members.into_iter().flatten().filter(|member| member.get(TYPE).is_none());
        unnamed.filter_map(|member| member.get("value").and_then(Value::as_str))
    }

    /// Writes down what each of the [unnamed](Self::unnamed_members) members is.
    ///
    /// # Errors
    /// [`UnknownMember`]: the first one that `kind_of` does not know.
    pub fn name_members(&mut self, kind_of: impl Fn(&str) -> Option<Kind>) -> Result<(), UnknownMember> {
        let members = self.attributes.get_mut("members").and_then(Value::as_array_mut);
        for member in members.into_iter().flatten().filter_map(Value::as_object_mut) {
            if !member.contains_key(TYPE) {
                let id = member.get("value").and_then(Value::as_str).unwrap_or_default();
                let kind = kind_of(id).ok_or_else(|| UnknownMember { id: id.to_owned() })?;
                member.insert(TYPE.to_owned(), Value::String(kind.name().to_owned()));
            }
        }
        Ok(())
    }

    /// Takes a resource that is removed out of the members. Whether it was one.
    pub fn remove_member(&mut self, id: &str) -> bool {
        let Some(members) = self.attributes.get_mut("members").and_then(Value::as_array_mut) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| member.get("value").and_then(Value::as_str) != Some(id));
        let removed = members.len() < before;
        if members.is_empty() {
            self.attributes.remove("members");
        }
        removed
    }

    /// Whether another draft says the same. What members are is not said by clients.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        let others = |draft: &Self| {
            draft
                .attributes
                .iter()
                .filter(|(name, _)| *name != "members")
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect()
        };
        let (one, two): (Map<String, Value>, Map<String, Value>) = (others(self), others(other));
        self.kind == other.kind
            && self.external_id == other.external_id
            && self.members().eq(other.members())
            && one == two
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).and_then(Value::as_str)
    }
}
