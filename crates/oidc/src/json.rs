//! JSON in which no name stands twice.
//!
//! RFC 7519 §4 and RFC 7515 §4 let a reader take the last of two members with one name; another reader takes the first, and
//! both believe what was signed. Here there is one reading, or none.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why bytes are no object of JSON that has one reading.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it is not an object")]
    NotAnObject,
}

/// Reads an object and nothing after it.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, ObjectError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(ObjectError::NotAnObject),
    }
}

struct Strict;

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
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict)?;
            if members.insert(name, value).is_some() {
                return Err(de::Error::custom("a member stands there twice"));
            }
        }
        Ok(Value::Object(members))
    }
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

/// The start of what a stranger sent, for a message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_stands_once_however_deep() {
        assert_eq!(object(br#"{"a":1,"b":{"a":[null,true,"x",1.5,-2]}}"#).unwrap().len(), 2);
        for twice in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#, r#"{"a":1,"\u0061":2}"#] {
            assert!(object(twice.as_bytes()).unwrap_err().to_string().contains("twice"), "{twice}");
        }
        for other in ["[]", "null", "{} {}", "{", "", "{\"a\":1e999}"] {
            assert!(object(other.as_bytes()).is_err(), "{other}");
        }
        // Deeper than any token, and than the stack.
        assert!(object(format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes()).is_err());
    }

    proptest! {
        /// What is read is what serde_json reads.
        #[test]
        fn it_reads_as_others_do(text in "[\\[\\]{}:,\"a0-9.eE+-]{0,40}") {
            if let Ok(members) = object(text.as_bytes()) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), Value::Object(members));
            }
        }
    }
}
