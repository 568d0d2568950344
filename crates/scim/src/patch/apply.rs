//! One operation, on attributes that fit their schema before and after.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::place::Place;
use crate::error::{ScimError, shortened};
use crate::filter::condition::Condition;
use crate::path::Target;
use crate::schema::row::{Attribute, Schema, Type};
use crate::values::{enough, extended, is_clients, primaries, single, values};

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Remove,
    Replace,
}

/// An operation whose values fit the schema.
#[derive(Debug)]
pub(super) struct Step {
    path: String,
    verb: Verb,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// Each attribute of an extension that is named, or all of it goes.
    Extension(&'static Schema, Option<Vec<(Target, Change)>>),
    /// A single value.
    One(Target, Change),
    /// A sub-attribute of a single value.
    Part(Target, &'static Attribute, Option<Value>),
    /// All values, or those that are named.
    All(Target, Vec<Value>),
    /// Those values that meet a condition.
    Chosen(Target, Condition, Change),
    /// A sub-attribute of the values that meet a condition, or of all.
    Parts(Target, Option<Condition>, &'static Attribute, Option<Value>),
}

/// What becomes of a value.
#[derive(Debug)]
enum Change {
    /// It goes.
    Nothing,
    /// It becomes this.
    Whole(Value),
    /// These of its sub-attributes become this, or go; others stay (RFC 7644 §3.5.2.3).
    Parts(Vec<(&'static Attribute, Option<Value>)>),
}

impl Step {
    /// Reads what an operation says to do at a place.
    pub(super) fn read(
        verb: Verb,
        path: &str,
        place: Place,
        value: Option<&Value>,
    ) -> Result<Self, ScimError> {
        place.writable(path)?;
        if verb == Verb::Add && value.is_none() {
            return Err(ScimError::value("value", format!("add at {} needs one", shortened(path))));
        }
        let work = match place {
            // The whole resource is taken apart before.
            Place::Core => return Err(ScimError::path(path, "it names the resource, expected an attribute")),
            Place::Extension(schema) => Work::Extension(schema, extension(schema, verb, value)?),
            Place::Attribute(target) => match target.sub {
                Some(sub) => Work::Part(target, sub, part(sub, verb, value)?),
                None => Work::One(target, change(target.attribute, verb, value)?),
            },
            Place::Values { target, chosen: None, sub: None } => {
                Work::All(target, value.map_or(Ok(Vec::new()), |value| values(target.attribute, value))?)
            }
            Place::Values { target, chosen: Some(_), sub: None }
                if target.attribute.is_members() && verb != Verb::Remove =>
            {
                let reason = "a member is added or removed, and not changed";
                return Err(ScimError::Mutability { attribute: shortened(path), reason });
            }
            Place::Values { target, chosen: Some(chosen), sub: None }
                if verb == Verb::Remove && target.attribute.is_members() && is_one_member(&chosen) =>
            {
                Work::All(target, chosen.described().map(Value::Object).into_iter().collect())
            }
            Place::Values { target, chosen: Some(chosen), sub: None } => {
                Work::Chosen(target, chosen, change(target.attribute, verb, first(value))?)
            }
            Place::Values { target, chosen, sub: Some(sub) } => {
                let value = value.map_or(Ok(None), |value| single(sub, first_of(value)))?;
                Work::Parts(target, chosen, sub, value)
            }
        };
        Ok(Self { path: path.to_owned(), verb, work })
    }

    /// Takes over what another operation does after this one, where both do the same with single members: what a client sends one
    /// by one is done at once, since each goes through all members of a group.
    pub(super) fn absorb(&mut self, next: Self) -> Option<Self> {
        match (&mut self.work, next.work) {
            (Work::All(target, named), Work::All(other, more))
                if target.attribute.is_members()
                    && other.attribute.is_members()
                    && self.verb == next.verb
                    && self.verb != Verb::Replace
                    && !named.is_empty()
                    && !more.is_empty() =>
            {
                named.extend(more);
                None
            }
            (_, work) => Some(Self { work, ..next }),
        }
    }

    /// How many comparisons it makes with each value of a list.
    pub(super) fn comparisons(&self) -> usize {
        match &self.work {
            Work::Chosen(_, chosen, _) | Work::Parts(_, Some(chosen), ..) => chosen.comparisons(),
            _ => 0,
        }
    }

    /// Does it.
    pub(super) fn apply(&self, whole: &mut Map<String, Value>) -> Result<(), ScimError> {
        match &self.work {
            Work::Extension(schema, parts) => {
                let Some(parts) = parts else {
                    whole.remove(schema.id);
                    return Ok(());
                };
                parts.iter().try_for_each(|(target, change)| one(whole, target, change))
            }
            Work::One(target, change) => one(whole, target, change),
            Work::Part(target, sub, value) => inside(whole, target, |holder| {
                set_part(holder, target.attribute, sub, value.as_ref());
                Ok(())
            }),
            Work::All(target, named) => self.listed(whole, target, |list| self.all(target, named, list)),
            Work::Chosen(target, chosen, change) => {
                self.listed(whole, target, |list| self.chosen(chosen, change, list))
            }
            Work::Parts(target, chosen, sub, value) => self
                .listed(whole, target, |list| self.parts(target, chosen.as_ref(), sub, value.as_ref(), list)),
        }
    }

    /// Works on the list of values; a list that ends empty is no attribute. One value that becomes the primary one ends that of
    /// another (RFC 7644 §3.5.2).
    fn listed(
        &self,
        whole: &mut Map<String, Value>,
        target: &Target,
        work: impl FnOnce(&mut Vec<Value>) -> Result<(), ScimError>,
    ) -> Result<(), ScimError> {
        let name = target.attribute.name;
        inside(whole, target, |holder| {
            let mut list = match holder.remove(name) {
                Some(Value::Array(list)) => list,
                _ => Vec::new(),
            };
            let before = match target.attribute.sub("primary") {
                Some(_) => primaries(&list).next().and_then(|at| list.get(at)).cloned(),
                None => None,
            };
            work(&mut list)?;
            list.retain(|value| value.as_object().is_none_or(|value| !value.is_empty()));
            enough(target.attribute, list.len())?;
            if let Some(before) = before
                && primaries(&list).count() > 1
                && let Some(Value::Object(value)) = list.iter_mut().find(|value| **value == before)
            {
                value.insert("primary".to_owned(), Value::Bool(false));
            }
            if !list.is_empty() {
                holder.insert(name.to_owned(), Value::Array(list));
            }
            Ok(())
        })
    }

    fn all(&self, target: &Target, named: &[Value], list: &mut Vec<Value>) -> Result<(), ScimError> {
        match self.verb {
            Verb::Replace => *list = named.to_vec(),
            Verb::Add => add(target.attribute, named, list),
            Verb::Remove if named.is_empty() => {
                if target.attribute.required {
                    let reason = "it has to have a value";
                    return Err(ScimError::Mutability { attribute: target.to_string(), reason });
                }
                list.clear();
            }
            // Microsoft Entra removes members so: without this, one who leaves would take all others along.
            Verb::Remove => {
                let gone: BTreeSet<&str> = named.iter().filter_map(|value| key(value)).collect();
                list.retain(|value| match key(value) {
                    Some(key) => !gone.contains(key),
                    None => !named.contains(value),
                });
            }
        }
        Ok(())
    }

    fn chosen(&self, chosen: &Condition, change: &Change, list: &mut Vec<Value>) -> Result<(), ScimError> {
        if matches!(change, Change::Nothing) {
            // What is not there any more is gone, as the client wishes.
            list.retain(|value| !holds(chosen, value));
            return Ok(());
        }
        let mut found = false;
        for value in list.iter_mut().filter(|value| holds(chosen, value)) {
            found = true;
            match change {
                Change::Nothing => {}
                Change::Whole(whole) => *value = whole.clone(),
                Change::Parts(parts) => {
                    if let Value::Object(value) = value {
                        if self.verb == Verb::Replace {
                            value.clear();
                        }
                        merge(value, parts);
                    }
                }
            }
        }
        if found {
            return Ok(());
        }
        match (self.verb, chosen.described(), change) {
            (Verb::Add, Some(mut value), Change::Parts(parts)) => {
                merge(&mut value, parts);
                list.push(Value::Object(value));
                Ok(())
            }
            _ => Err(self.no_target()),
        }
    }

    fn parts(
        &self,
        target: &Target,
        chosen: Option<&Condition>,
        sub: &'static Attribute,
        said: Option<&Value>,
        list: &mut Vec<Value>,
    ) -> Result<(), ScimError> {
        if self.verb == Verb::Remove {
            for value in list.iter_mut().filter(|value| chosen.is_none_or(|chosen| holds(chosen, value))) {
                // With a value, what has another one stays: Microsoft Entra says which it means.
                if said.is_none_or(|said| value.get(sub.name) == Some(said))
                    && let Value::Object(value) = value
                {
                    value.remove(sub.name);
                }
            }
            // A value without its `value` says nothing, such as an e-mail address that is only `work`.
            let named = target.attribute.value().map(|value| value.name);
            list.retain(|value| named.is_none_or(|name| sub.name != name || value.get(name).is_some()));
            return Ok(());
        }
        let mut found = false;
        for value in list.iter_mut().filter(|value| chosen.is_none_or(|chosen| holds(chosen, value))) {
            found = true;
            if let Value::Object(value) = value {
                merge(value, &[(sub, said.cloned())]);
            }
        }
        if found || said.is_none() {
            return Ok(());
        }
        let described = match chosen {
            None => Some(Map::new()),
            Some(chosen) => chosen.described(),
        };
        // Microsoft Entra replaces the work address of a user who has none, and expects that there is one then. RFC 7644 §3.5.2.3
        // has `noTarget` for that, which is kept where the filter is about more than the kind of the value.
        let is_kind =
            |value: &Map<String, Value>| value.keys().all(|name| matches!(name.as_str(), "type" | "primary"));
        match described {
            Some(mut value) if self.verb == Verb::Add || is_kind(&value) => {
                merge(&mut value, &[(sub, said.cloned())]);
                list.push(Value::Object(value));
                Ok(())
            }
            _ => Err(self.no_target()),
        }
    }

    fn no_target(&self) -> ScimError {
        ScimError::NoTarget { path: shortened(&self.path), reason: "no value meets the filter" }
    }
}

/// A single value.
fn one(whole: &mut Map<String, Value>, target: &Target, change: &Change) -> Result<(), ScimError> {
    let attribute = target.attribute;
    if attribute.required && matches!(change, Change::Nothing) {
        let reason = "it has to have a value";
        return Err(ScimError::Mutability { attribute: attribute.name.to_owned(), reason });
    }
    inside(whole, target, |holder| {
        match change {
            Change::Nothing => drop(holder.remove(attribute.name)),
            Change::Whole(value) => drop(holder.insert(attribute.name.to_owned(), value.clone())),
            Change::Parts(parts) => {
                for (sub, value) in parts {
                    set_part(holder, attribute, sub, value.as_ref());
                }
            }
        }
        Ok(())
    })
}

/// What an operation says of an extension: each attribute for itself.
fn extension(
    schema: &'static Schema,
    verb: Verb,
    value: Option<&Value>,
) -> Result<Option<Vec<(Target, Change)>>, ScimError> {
    let Some(value) = value.filter(|_| verb != Verb::Remove) else { return Ok(None) };
    // Whether it fits is seen as in a PUT.
    extended(schema, value)?;
    let mut parts = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(attribute) = schema.find(name) {
            let target = Target { extension: Some(schema), attribute, sub: None };
            parts.push((target, change(attribute, verb, Some(value))?));
        }
    }
    Ok(Some(parts))
}

/// What an operation makes of a single value, or of one of several.
fn change(attribute: &Attribute, verb: Verb, value: Option<&Value>) -> Result<Change, ScimError> {
    let Some(value) = value.filter(|value| verb != Verb::Remove && !value.is_null()) else {
        return Ok(Change::Nothing);
    };
    let value = first_of(value);
    if attribute.kind != Type::Complex {
        return Ok(single(attribute, unwrapped(value))?.map_or(Change::Nothing, Change::Whole));
    }
    let Value::Object(members) = value else {
        // The value alone, for the object with that value.
        return Ok(match single(attribute, value)? {
            Some(Value::Object(read)) => Change::Parts(
                read.into_iter()
                    .filter_map(|(name, value)| Some((attribute.sub(&name)?, Some(value))))
                    .collect(),
            ),
            _ => Change::Nothing,
        });
    };
    let mut parts = Vec::new();
    for (name, value) in members {
        if let Some(sub) = attribute.sub(name)
            && is_clients(sub)
        {
            parts.push((sub, single(sub, value)?));
        }
    }
    Ok(Change::Parts(parts))
}

/// What an operation makes of a sub-attribute of a single value.
fn part(sub: &'static Attribute, verb: Verb, value: Option<&Value>) -> Result<Option<Value>, ScimError> {
    match value.filter(|_| verb != Verb::Remove) {
        Some(value) => single(sub, unwrapped(first_of(value))),
        None => Ok(None),
    }
}

fn first(value: Option<&Value>) -> Option<&Value> {
    value.map(first_of)
}

/// The only one of a list, where one value is meant: older Microsoft Entra writes `"value": [{"value": "x"}]`.
fn first_of(value: &Value) -> &Value {
    match value {
        Value::Array(items) => match items.as_slice() {
            [only] => only,
            _ => value,
        },
        other => other,
    }
}

/// The value of an object, where none is meant.
fn unwrapped(value: &Value) -> &Value {
    value.as_object().and_then(|members| members.get("value")).unwrap_or(value)
}

/// What has the attribute: the resource, or its extension, which is not there when it is empty.
fn inside(
    whole: &mut Map<String, Value>,
    target: &Target,
    work: impl FnOnce(&mut Map<String, Value>) -> Result<(), ScimError>,
) -> Result<(), ScimError> {
    let Some(schema) = target.extension else { return work(whole) };
    let mut holder = match whole.remove(schema.id) {
        Some(Value::Object(holder)) => holder,
        _ => Map::new(),
    };
    work(&mut holder)?;
    if !holder.is_empty() {
        whole.insert(schema.id.to_owned(), Value::Object(holder));
    }
    Ok(())
}

/// Sets a sub-attribute of a single value, or takes it away; the value is not there when it is empty.
fn set_part(
    holder: &mut Map<String, Value>,
    attribute: &Attribute,
    sub: &'static Attribute,
    value: Option<&Value>,
) {
    let mut object = match holder.remove(attribute.name) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    };
    merge(&mut object, &[(sub, value.cloned())]);
    if !object.is_empty() {
        holder.insert(attribute.name.to_owned(), Value::Object(object));
    }
}

fn merge(object: &mut Map<String, Value>, parts: &[(&'static Attribute, Option<Value>)]) {
    for (sub, value) in parts {
        match value {
            Some(value) => drop(object.insert(sub.name.to_owned(), value.clone())),
            None => drop(object.remove(sub.name)),
        }
    }
}

/// Adds values. One with the `value` and `type` of another is that one (RFC 7643 §2.4), with what is said of it besides.
fn add(attribute: &Attribute, named: &[Value], list: &mut Vec<Value>) {
    if attribute.is_members() {
        let fresh: Vec<Value> = if let [only] = named {
            // The usual one, a thousand times in the longest PATCH.
            let is_known = list.iter().any(|known| key(known) == key(only));
            if is_known { Vec::new() } else { vec![only.clone()] }
        } else {
            let mut known: BTreeSet<&str> = list.iter().filter_map(key).collect();
            named.iter().filter(|value| key(value).is_some_and(|key| known.insert(key))).cloned().collect()
        };
        list.extend(fresh);
        return;
    }
    for value in named {
        let same = |known: &&mut Value| {
            **known == *value
                || (key(known).is_some()
                    && key(known) == key(value)
                    && known.get("type") == value.get("type"))
        };
        match (list.iter_mut().find(same), value) {
            (Some(Value::Object(known)), Value::Object(said)) => {
                known.extend(said.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            (Some(_), _) => {}
            (None, value) => list.push(value.clone()),
        }
    }
}

/// Whether a condition is `value eq "id"` and no more.
fn is_one_member(chosen: &Condition) -> bool {
    chosen.described().is_some_and(|value| value.len() == 1 && value.contains_key("value"))
}

/// What tells a value from others.
fn key(value: &Value) -> Option<&str> {
    value.get("value").and_then(Value::as_str)
}

fn holds(chosen: &Condition, value: &Value) -> bool {
    value.as_object().is_some_and(|value| chosen.holds(value))
}
