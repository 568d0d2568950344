//! JSON from strangers that has one reading, or none.
//!
//! RFC 8259 §4 lets a reader take the first or the last of two members with one name. Two readers of one text, of which one checks
//! a signature or a right and the other acts, may then believe different things. Here a name stands once.
//!
//! ```
//! use sallyport_json::{Rules, object};
//!
//! let rules = Rules { max_depth: 16, fold_names: false };
//! assert_eq!(object(br#"{"sub": "1"}"#, rules)?["sub"], "1");
//! assert!(object(br#"{"sub": "1", "sub": "2"}"#, rules).is_err());
//! # Ok::<(), sallyport_json::ObjectError>(())
//! ```

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How a text is read. How long it may be is the caller's to look at.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Deepest nesting of lists and objects, the outermost one included; at most 127, which is the bound of `serde_json`.
    pub max_depth: usize,
    /// Whether names that differ by the case of ASCII letters alone are one name.
    pub fold_names: bool,
}

/// Why bytes are no object that has one reading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// They are no JSON within the rules.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// They are JSON of another kind.
    #[error("it is {found}, expected an object")]
    NotAnObject {
        /// What they are ([`kind`]).
        found: &'static str,
    },
}

/// Reads an object and nothing after it.
///
/// # Errors
/// [`ObjectError`].
pub fn object(bytes: &[u8], rules: Rules) -> Result<Map<String, Value>, ObjectError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { rules, depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Value::Object(members) => Ok(members),
        other => Err(ObjectError::NotAnObject { found: kind(&other) }),
    }
}

/// What a value is, for a message.
#[must_use]
pub fn kind(value: &Value) -> &'static str {
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
    rules: Rules,
    depth: usize,
}

impl Strict {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        let max = self.rules.max_depth;
        if self.depth == max {
            return Err(E::custom(format!("it is nested more than {max} deep")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
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
        let mut folded = BTreeSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(inner)?;
            let is_first = !self.rules.fold_names || folded.insert(name.to_ascii_lowercase());
            if members.insert(name, value).is_some() || !is_first {
                return Err(de::Error::custom("a member stands there twice"));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const EXACT: Rules = Rules { max_depth: 4, fold_names: false };
    const FOLDED: Rules = Rules { fold_names: true, ..EXACT };

    #[test]
    fn a_name_stands_once_however_deep() {
        for rules in [EXACT, FOLDED] {
            assert_eq!(object(br#"{"a":1,"b":{"a":[null,true,"x",1.5,-2]}}"#, rules).unwrap().len(), 2);
            for twice in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#, r#"{"a":1,"\u0061":2}"#] {
                assert!(
                    object(twice.as_bytes(), rules).unwrap_err().to_string().contains("twice"),
                    "{twice}"
                );
            }
        }
        let cases = br#"{"a":1,"A":2}"#;
        assert_eq!(object(cases, EXACT).unwrap().len(), 2);
        assert!(object(cases, FOLDED).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn it_is_an_object_alone_and_not_deep() {
        for other in ["{} {}", "{", "", "{\"a\":1e999}"] {
            assert!(matches!(object(other.as_bytes(), EXACT), Err(ObjectError::Json(_))), "{other}");
        }
        for (other, found) in [("[]", "a list"), ("null", "null"), ("1", "a number"), ("\"\"", "a text")] {
            let refused = object(other.as_bytes(), EXACT).unwrap_err();
            assert_eq!(refused.to_string(), format!("it is {found}, expected an object"));
        }
        assert!(object(br#"{"a":[[[]]]}"#, EXACT).is_ok());
        assert!(object(br#"{"a":[[[[]]]]}"#, EXACT).unwrap_err().to_string().contains("more than 4 deep"));
        // Deeper than the stack.
        let rules = Rules { max_depth: usize::MAX, ..EXACT };
        assert!(object(format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes(), rules).is_err());
    }

    proptest! {
        /// What is read is what serde_json reads.
        #[test]
        fn it_reads_as_others_do(text in "[\\[\\]{}:,\"a0-9.eE+-]{0,40}") {
            let rules = Rules { max_depth: 127, fold_names: false };
            if let Ok(members) = object(text.as_bytes(), rules) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), Value::Object(members));
            }
        }
    }
}
