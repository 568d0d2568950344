//! Values of clients, brought into the form of the schema: read here, or refused.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::error::ScimError;
use crate::filter::condition::boolean;
use crate::json::{kind, member};
use crate::kind::Kind;
use crate::resource::{Draft, EXTERNAL_ID};
use crate::schema::COMMON;
use crate::schema::row::{Attribute, Mutability, Schema, Type, find};

/// Most members of a group.
pub const MAX_MEMBERS: usize = 10_000;

/// Most values of any other attribute.
pub const MAX_VALUES: usize = 100;

/// Longest text, in bytes.
pub const MAX_TEXT_BYTES: usize = 2_048;

/// Longest name of a user or group, and longest identifier of a client or of a member, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Longest resource as JSON, without members, in bytes.
pub const MAX_RESOURCE_BYTES: usize = 64 * 1024;

/// Reads the resource of a POST or PUT. What clients may not write, and what no schema knows, is left out
/// (RFC 7644 §3.3 and §3.5.1).
pub(crate) fn resource(expected: Kind, body: &Map<String, Value>) -> Result<Map<String, Value>, ScimError> {
    schemas(body, expected.schema().id)?;
    let mut whole = Map::new();
    for (name, value) in body {
        if let Some(extension) = expected.extensions().iter().find(|extension| extension.is(name)) {
            if let Some(value) = extended(extension, value)? {
                whole.insert(extension.id.to_owned(), value);
            }
        } else if let Some(attribute) = expected.schema().find(name).or_else(|| find(COMMON, name))
            && attribute.mutability != Mutability::ReadOnly
            && let Some(value) = attribute_value(attribute, value)?
        {
            whole.insert(attribute.name.to_owned(), value);
        }
    }
    Ok(whole)
}

/// That a body says to be of a schema (RFC 7643 §3).
pub(crate) fn schemas(body: &Map<String, Value>, expected: &str) -> Result<(), ScimError> {
    let said = member(body, "schemas").and_then(Value::as_array);
    let is_said = said.is_some_and(|said| {
        said.iter().any(|urn| urn.as_str().is_some_and(|urn| urn.eq_ignore_ascii_case(expected)))
    });
    if is_said {
        return Ok(());
    }
    Err(ScimError::syntax(format!("its \"schemas\" do not name {expected}")))
}

/// The attributes of an extension. None, where it has no value.
pub(crate) fn extended(extension: &'static Schema, value: &Value) -> Result<Option<Value>, ScimError> {
    let members = match value {
        Value::Null => return Ok(None),
        Value::Object(members) => members,
        other => {
            return Err(ScimError::value(extension.id, format!("got {}, expected an object", kind(other))));
        }
    };
    let mut read = Map::new();
    for (name, value) in members {
        if let Some(attribute) = extension.find(name)
            && let Some(value) = attribute_value(attribute, value)?
        {
            read.insert(attribute.name.to_owned(), value);
        }
    }
    Ok(if read.is_empty() { None } else { Some(Value::Object(read)) })
}

/// The value of an attribute, all values of one with several. None, where it has no value: null and an empty list are none
/// (RFC 7643 §2.5).
pub(crate) fn attribute_value(attribute: &Attribute, value: &Value) -> Result<Option<Value>, ScimError> {
    if !attribute.multi_valued {
        return single(attribute, value);
    }
    let read = values(attribute, value)?;
    Ok(if read.is_empty() { None } else { Some(Value::Array(read)) })
}

/// The values of an attribute that has several. One alone may stand without a list.
pub(crate) fn values(attribute: &Attribute, value: &Value) -> Result<Vec<Value>, ScimError> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    enough(attribute, items.len())?;
    let mut read: Vec<Value> = Vec::with_capacity(items.len());
    let mut known = BTreeSet::new();
    for item in items {
        let value = single(attribute, item)?;
        if attribute.is_members() && !item.is_null() {
            let id = value.as_ref().and_then(|value| value.get("value")).and_then(Value::as_str);
            let id = id.ok_or_else(|| ScimError::value("members", "a member has no \"value\""))?;
            if !known.insert(id.to_owned()) {
                continue;
            }
        }
        if let Some(value) = value
            && (attribute.is_members() || !read.contains(&value))
        {
            read.push(value);
        }
    }
    Ok(read)
}

/// That an attribute has no more values than it may.
pub(crate) fn enough(attribute: &Attribute, got: usize) -> Result<(), ScimError> {
    let limit = if attribute.is_members() { MAX_MEMBERS } else { MAX_VALUES };
    if got > limit {
        return Err(ScimError::TooLarge { what: attribute.name, got, unit: "values", limit });
    }
    Ok(())
}

/// One value.
pub(crate) fn single(attribute: &Attribute, value: &Value) -> Result<Option<Value>, ScimError> {
    let wrong = |expected: &str| {
        ScimError::value(attribute.name, format!("got {}, expected {expected}", kind(value)))
    };
    Ok(match (attribute.kind, value) {
        (_, Value::Null) => None,
        (Type::Text | Type::Reference | Type::Moment, Value::String(text)) => {
            bounded(attribute, text)?;
            Some(value.clone())
        }
        (Type::Text | Type::Reference | Type::Moment, _) => return Err(wrong("a text")),
        (Type::Boolean, value) => Some(Value::Bool(boolean(value).ok_or_else(|| wrong("true or false"))?)),
        (Type::Integer, Value::Number(_)) => Some(value.clone()),
        (Type::Integer, _) => return Err(wrong("a number")),
        (Type::Complex, Value::Object(members)) => {
            let mut read = Map::new();
            for (name, value) in members {
                if let Some(sub) = attribute.sub(name)
                    && is_clients(sub)
                    && let Some(value) = single(sub, value)?
                {
                    read.insert(sub.name.to_owned(), value);
                }
            }
            if read.is_empty() { None } else { Some(Value::Object(read)) }
        }
        // Microsoft Entra gives a manager, and others a member, as its identifier alone.
        (Type::Complex, Value::String(_)) => match attribute.value() {
            Some(sub) => single(sub, value)?.map(|value| {
                let mut read = Map::new();
                read.insert(sub.name.to_owned(), value);
                Value::Object(read)
            }),
            None => return Err(wrong("an object")),
        },
        (Type::Complex, _) => return Err(wrong("an object")),
    })
}

/// Whether what a client says of a sub-attribute is kept.
pub(crate) fn is_clients(sub: &Attribute) -> bool {
    sub.mutability != Mutability::ReadOnly && !sub.computed
}

fn bounded(attribute: &Attribute, text: &str) -> Result<(), ScimError> {
    let is_name =
        matches!(attribute.name, "userName" | EXTERNAL_ID) || attribute.required || attribute.case_exact;
    let is_reference = attribute.kind == Type::Reference;
    let limit = if is_name && !is_reference { MAX_NAME_BYTES } else { MAX_TEXT_BYTES };
    if text.len() > limit {
        let reason = format!("it has {} bytes, at most {limit} are taken", text.len());
        return Err(ScimError::value(attribute.name, reason));
    }
    // Lines are for postal addresses; no name has to move the cursor.
    let is_bad = |c: char| c.is_control() && (is_name || !matches!(c, '\n' | '\r' | '\t'));
    if text.contains(is_bad) {
        return Err(ScimError::value(attribute.name, "it has control characters"));
    }
    if attribute.required && (text.is_empty() || text.trim() != text) {
        return Err(ScimError::value(attribute.name, "it is empty, or begins or ends with a space"));
    }
    Ok(())
}

/// Makes a draft of attributes that fit the schema one by one, if they do together.
pub(crate) fn finished(kind: Kind, whole: Map<String, Value>) -> Result<Draft, ScimError> {
    for attribute in kind.schema().attributes {
        let value = whole.get(attribute.name);
        if attribute.required && value.is_none() {
            return Err(ScimError::value(attribute.name, format!("a {kind} has to have one")));
        }
        let Some(values) = value.and_then(Value::as_array) else { continue };
        enough(attribute, values.len())?;
        if primaries(values).count() > 1 {
            return Err(ScimError::value(attribute.name, "more than one of the values is the primary one"));
        }
    }
    let draft = Draft::of(kind, whole);
    let size = draft.attributes().iter().filter(|(name, _)| *name != "members");
    let size: usize = size.map(|(name, value)| name.len() + value.to_string().len()).sum();
    if size > MAX_RESOURCE_BYTES {
        let (what, unit) = ("the resource", "bytes");
        return Err(ScimError::TooLarge { what, got: size, unit, limit: MAX_RESOURCE_BYTES });
    }
    Ok(draft)
}

/// Where the primary ones of the values are.
pub(crate) fn primaries(values: &[Value]) -> impl Iterator<Item = usize> {
    let is_primary = |value: &Value| value.get("primary") == Some(&Value::Bool(true));
    values.iter().enumerate().filter(move |(_, value)| is_primary(value)).map(|(at, _)| at)
}
