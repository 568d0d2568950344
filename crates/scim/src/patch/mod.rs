//! PATCH (RFC 7644 §3.5.2): operations read whole, and applied to a draft whole or not at all.
//!
//! Where clients differ from the specification in one way, that way is taken too; each is named where it is handled:
//!
//! * operations with a capital (`"Replace"`), booleans as texts, a complex value as its `value` alone, `remove` with the values to
//!   remove: Microsoft Entra;
//! * names that are paths, in an operation without a path: Microsoft Entra and Okta;
//! * `replace` at `emails[type eq "work"].value` where there is none yet: Microsoft Entra.

mod apply;
mod place;

use serde_json::{Map, Value};

use crate::error::ScimError;
use crate::json::{self, kind, member};
use crate::kind::Kind;
use crate::resource::Draft;
use crate::values;
use apply::{Step, Verb};
use place::Place;

/// Most operations of a PATCH, and most values that all of them name together.
pub const MAX_PATCH_VALUES: usize = 1_000;

/// Most comparisons that the filters in the paths of a PATCH make with each value of a list: a group's has ten thousand.
pub const MAX_PATCH_COMPARISONS: usize = 100;

const PATCH_OP: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

/// A PATCH for one kind of resource.
#[derive(Debug)]
pub struct Patch {
    kind: Kind,
    steps: Vec<Step>,
}

impl Patch {
    /// Reads the body of a PATCH.
    ///
    /// # Errors
    /// [`ScimError::InvalidSyntax`], [`ScimError::InvalidPath`], [`ScimError::InvalidFilter`], [`ScimError::NoTarget`] where
    /// `remove` has no path, [`ScimError::InvalidValue`], [`ScimError::Mutability`] or [`ScimError::TooLarge`].
    pub fn parse(expected: Kind, body: &[u8]) -> Result<Self, ScimError> {
        let body = json::object(body)?;
        values::schemas(&body, PATCH_OP)?;
        let operations = match member(&body, "Operations") {
            Some(Value::Array(operations)) if !operations.is_empty() => operations,
            _ => return Err(ScimError::syntax("it has no \"Operations\"")),
        };
        bounded("the PATCH", operations.len())?;
        let mut patch = Self { kind: expected, steps: Vec::new() };
        let mut named = 0;
        for operation in operations {
            let Value::Object(operation) = operation else {
                return Err(ScimError::syntax(format!(
                    "an operation is {}, expected an object",
                    kind(operation)
                )));
            };
            let value = member(operation, "value").filter(|value| !value.is_null());
            named += value.map_or(0, count);
            bounded("the PATCH", named)?;
            patch.read(operation, value)?;
        }
        bounded("the PATCH", patch.steps.len())?;
        let (what, got) = ("the PATCH", patch.steps.iter().map(Step::comparisons).sum());
        if got > MAX_PATCH_COMPARISONS {
            let (unit, limit) = ("comparisons in its paths", MAX_PATCH_COMPARISONS);
            return Err(ScimError::TooLarge { what, got, unit, limit });
        }
        Ok(patch)
    }

    /// What a draft is after all operations.
    ///
    /// # Errors
    /// [`ScimError::NoTarget`] where nothing is at a path, and what a resource may not be: [`ScimError::InvalidValue`],
    /// [`ScimError::TooLarge`]. The draft is as it was.
    pub fn apply(&self, draft: &Draft) -> Result<Draft, ScimError> {
        let mut whole = draft.whole();
        for step in &self.steps {
            step.apply(&mut whole)?;
        }
        values::finished(self.kind, whole)
    }

    fn read(&mut self, operation: &Map<String, Value>, value: Option<&Value>) -> Result<(), ScimError> {
        let verb = match member(operation, "op") {
            Some(Value::String(op)) if op.eq_ignore_ascii_case("add") => Verb::Add,
            Some(Value::String(op)) if op.eq_ignore_ascii_case("remove") => Verb::Remove,
            Some(Value::String(op)) if op.eq_ignore_ascii_case("replace") => Verb::Replace,
            _ => return Err(ScimError::syntax("an \"op\" is none of add, remove and replace")),
        };
        match member(operation, "path") {
            None | Some(Value::Null) => self.without_path(verb, value),
            Some(Value::String(path)) if path.is_empty() => self.without_path(verb, value),
            Some(Value::String(path)) => {
                let place = Place::parse(self.kind, path)?;
                if matches!(place, Place::Core) {
                    return self.without_path(verb, value);
                }
                self.push(verb, path, place, value)
            }
            Some(other) => Err(ScimError::syntax(format!("a \"path\" is {}, expected a text", kind(other)))),
        }
    }

    /// An operation on the resource: one on each attribute that its value names. What no schema knows, and what clients may not
    /// write, is left out, as in a PUT (RFC 7644 §3.5.2.1). A name may be a path.
    fn without_path(&mut self, verb: Verb, value: Option<&Value>) -> Result<(), ScimError> {
        if verb == Verb::Remove {
            return Err(ScimError::NoTarget { path: String::new(), reason: "remove needs a path" });
        }
        let Some(Value::Object(members)) = value else {
            return Err(ScimError::value("value", "an operation without a path needs an object"));
        };
        for (name, value) in members {
            match Place::parse(self.kind, name) {
                Ok(Place::Core) => self.without_path(verb, Some(value))?,
                Ok(place) if place.is_writable() => self.push(verb, name, place, Some(value))?,
                // A path with a filter is meant as one; a plain name may be one of another schema.
                Err(error) if name.contains('[') => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, verb: Verb, path: &str, place: Place, value: Option<&Value>) -> Result<(), ScimError> {
        let step = Step::read(verb, path, place, value)?;
        let step = match self.steps.last_mut() {
            Some(last) => last.absorb(step),
            None => Some(step),
        };
        self.steps.extend(step);
        Ok(())
    }
}

/// How many values a value has: of a list as many as it is long, and of the lists in an object all.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.values().map(count).sum::<usize>().max(1),
        _ => 1,
    }
}

fn bounded(what: &'static str, got: usize) -> Result<(), ScimError> {
    if got > MAX_PATCH_VALUES {
        return Err(ScimError::TooLarge { what, got, unit: "values", limit: MAX_PATCH_VALUES });
    }
    Ok(())
}
