//! JSON in which no name stands twice, and which is not deep.
//!
//! Names of attributes do not tell case (RFC 7643 §2.1), so `userName` and `username` in one object are one name twice. Another
//! reader might take the other one; here there is one reading, or none.

use sallyport_json::Rules;
use serde_json::{Map, Value};

pub(crate) use sallyport_json::kind;

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
    let rules = Rules { max_depth: MAX_DEPTH, fold_names: true };
    sallyport_json::object(bytes, rules).map_err(|error| ScimError::syntax(error.to_string()))
}

/// Finds a member whatever the case of its name.
pub(crate) fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object
        .get(name)
        .or_else(|| object.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value))
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
