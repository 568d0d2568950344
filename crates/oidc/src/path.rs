//! Where in the claims a value is: `groups`, `realm_access.roles`, `["https://example.com/groups"].name`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::OidcError;
use crate::json::kind;
use crate::text::written_as_text;

/// Most names of a path.
const MAX_NAMES: usize = 16;

/// Most values that are read at a path.
pub const MAX_VALUES: usize = 2_000;

/// Longest value, in bytes. A longer one is left out.
pub const MAX_VALUE_BYTES: usize = 512;

/// A path into the claims. Names are parted by dots; a name with other characters than letters, digits, `_` and `-` stands in
/// brackets and quotes. Lists on the way are gone into, each item for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path {
    text: String,
    names: Vec<String>,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// These values, each once: texts, numbers and booleans as text. There is at least one.
    Values(Vec<String>),
    /// Nothing: the claim is not there, or it is null or an empty list.
    Nothing,
    /// Something that is no value.
    Other(&'static str),
}

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// [`OidcError::BadTemplate`] with what is wrong.
    pub fn parse(text: &str) -> Result<Self, OidcError> {
        let bad = |reason| OidcError::BadTemplate { text: text.to_owned(), reason };
        let mut names = Vec::new();
        let mut rest = text;
        loop {
            if let Some(quoted) = rest.strip_prefix("[\"") {
                let (name, after) = quoted.split_once("\"]").ok_or(bad("a bracket is not closed by \"]"))?;
                if name.is_empty() {
                    return Err(bad("a name is empty"));
                }
                names.push(name.to_owned());
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                if name.is_empty() || !name.chars().all(is_plain) {
                    return Err(bad(
                        "a name is empty, or has other characters than letters, digits, _ and -: write [\"the name\"]",
                    ));
                }
                names.push(name.to_owned());
                rest = after;
            }
            if names.len() > MAX_NAMES {
                return Err(bad("it has more than 16 names"));
            }
            if rest.is_empty() {
                return Ok(Self { text: text.to_owned(), names });
            }
            if let Some(after) = rest.strip_prefix('.') {
                rest = after;
            } else if !rest.starts_with("[\"") {
                return Err(bad("a dot or [\" has to part two names"));
            }
        }
    }

    /// The path of these names. None where a name cannot be written, or there are too many.
    pub(crate) fn of(names: Vec<String>) -> Option<Self> {
        let mut text = String::new();
        for name in &names {
            if !name.is_empty() && name.chars().all(is_plain) {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(name);
            } else {
                text.push_str(&format!("[\"{name}\"]"));
            }
        }
        Self::parse(&text).ok().filter(|path| path.names == names)
    }

    /// The claim that it begins at.
    #[must_use]
    pub fn claim(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// What is there.
    #[must_use]
    pub fn find(&self, claims: &Map<String, Value>) -> Found {
        self.find_bounded(claims).0
    }

    /// What is there, and whether values of it were left out, since there were too many or they were too long.
    pub(crate) fn find_bounded(&self, claims: &Map<String, Value>) -> (Found, bool) {
        let Some((first, names)) = self.names.split_first() else { return (Found::Nothing, false) };
        let Some(value) = claims.get(first) else { return (Found::Nothing, false) };
        let mut found = Collected::default();
        found.collect(value, names, 0);
        match (found.values.is_empty(), found.other) {
            (false, _) => (Found::Values(found.values), found.cut),
            (true, Some(other)) => (Found::Other(other), found.cut),
            (true, None) => (Found::Nothing, false),
        }
    }
}

/// Whether a name of such characters needs no brackets.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[derive(Default)]
struct Collected {
    values: Vec<String>,
    other: Option<&'static str>,
    cut: bool,
}

impl Collected {
    fn collect(&mut self, value: &Value, names: &[String], lists: usize) {
        match (value, names.split_first()) {
            (Value::Null, _) => {}
            (Value::Array(items), _) if lists <= names.len() => {
                for item in items {
                    // A list in a list is none of ours, unless an object parts them.
                    if item.is_array() {
                        self.other.get_or_insert("a list in a list");
                    } else {
                        self.collect(item, names, lists + 1);
                    }
                }
            }
            (Value::Object(members), Some((name, names))) => {
                if let Some(value) = members.get(name) {
                    self.collect(value, names, 0);
                }
            }
            (Value::String(text), None) => self.push(text.clone()),
            (Value::Number(number), None) => self.push(number.to_string()),
            (Value::Bool(truth), None) => self.push(truth.to_string()),
            (other, _) => {
                self.other.get_or_insert(kind(other));
            }
        }
    }

    fn push(&mut self, text: String) {
        if text.len() > MAX_VALUE_BYTES || text.is_empty() {
            self.cut |= !text.is_empty();
            self.other.get_or_insert("a text that is empty or too long");
        } else if !self.values.contains(&text) {
            if self.values.len() < MAX_VALUES {
                self.values.push(text);
            } else {
                self.cut = true;
            }
        }
    }
}

written_as_text!(Path);
