//! JSON in which no name stands twice, and which is not deep.
//!
//! Names of attributes do not tell case (RFC 7643 §2.1), so `userName` and `username` in one object are one name twice. Another
//! reader might take the other one; here there is one reading, or none.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::ScimError;

/// Longest body of a request, in bytes.
pub const MAX_BODY_BYTES: usize = 256 * 1024;

/// Deepest nesting of a body. The deepest of a resource is four.
const MAX_DEPTH: usize = 16;

/// Reads an object and nothing after it.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, ScimError> {
    if bytes.len() > MAX_BODY_BYTES {
        let (what, unit) = ("the body", "bytes");
        return Err(ScimError::TooLarge { what, got: bytes.len(), unit, limit: MAX_BODY_BYTES });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0 }.deserialize(&mut deserializer);
    let value = value.map_err(|error| ScimError::syntax(error.to_string()))?;
    deserializer.end().map_err(|error| ScimError::syntax(error.to_string()))?;
    match value {
        Value::Object(members) => Ok(members),
        other => Err(ScimError::syntax(format!("it is {}, expected an object", kind(&other)))),
    }
}

/// Finds a member whatever the case of its name.
pub(crate) fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object
        .get(name)
        .or_else(|| object.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

/// What a value is, for a message.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("it is nested more than {MAX_DEPTH} deep")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut members = Map::new();
        let mut names = BTreeSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(inner)?;
            if !names.insert(name.to_ascii_lowercase()) {
                return Err(de::Error::custom("a member stands there twice"));
            }
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_once_whatever_its_case() {
        assert_eq!(object(br#"{"a":1,"b":{"a":[null,true,"x",1.5,-2]}}"#).unwrap().len(), 2);
        for twice in [r#"{"a":1,"A":1}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#, r#"{"a":1,"\u0041":2}"#] {
            assert!(object(twice.as_bytes()).unwrap_err().to_string().contains("twice"), "{twice}");
        }
        for other in ["[]", "null", "{} {}", "{", "", "{\"a\":1e999}"] {
            assert_eq!(object(other.as_bytes()).unwrap_err().word(), "invalid_syntax", "{other}");
        }
    }

    #[test]
    fn depth_and_length_have_bounds() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(object(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(object(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err().word(), "invalid_syntax");
        assert_eq!(object(&vec![b' '; MAX_BODY_BYTES + 1]).unwrap_err().word(), "too_large");
    }
}
