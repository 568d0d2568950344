//! JSON of providers: no name stands twice.
//!
//! RFC 7519 §4 and RFC 7515 §4 let a reader take the last of two members with one name; another reader takes the first, and
//! both believe what was signed. Here there is one reading, or none.

use sallyport_json::{ObjectError, Rules};
use serde_json::{Map, Value};

pub(crate) use sallyport_json::kind;

/// Names of claims tell case. No token is deep; more than this serde_json does not read.
const RULES: Rules = Rules { max_depth: 127, fold_names: false };

/// Reads an object and nothing after it.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, ObjectError> {
    sallyport_json::object(bytes, RULES)
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
