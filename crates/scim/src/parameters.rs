//! Parameters of a request: in its query (RFC 7644 §3.4.2), or in the body of a search (§3.4.3).

use serde_json::{Map, Value};

use crate::error::ScimError;
use crate::json::{self, kind, member};
use crate::listing::Written;
use crate::shown::Asked;
use crate::text::percent_decoded;
use crate::values::schemas;

/// Longest query, in bytes: a filter, each byte of which may take three, and names of attributes.
pub const MAX_QUERY_BYTES: usize = 16 * 1024;

const SEARCH_REQUEST: &str = "urn:ietf:params:scim:api:messages:2.0:SearchRequest";

/// Reads a query. Its other parameters are left alone.
pub(crate) fn from_query(query: &str) -> Result<Written, ScimError> {
    if query.len() > MAX_QUERY_BYTES {
        let (what, unit) = ("the query", "bytes");
        return Err(ScimError::TooLarge { what, got: query.len(), unit, limit: MAX_QUERY_BYTES });
    }
    let mut known = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &str| {
            percent_decoded(text, true)
                .ok_or_else(|| ScimError::value("the query", "it is not encoded as queries are"))
        };
        let name = decoded(name)?.to_ascii_lowercase();
        if known.insert(name.clone(), Value::String(decoded(value)?)).is_some() {
            return Err(ScimError::value(&name, "it stands there twice"));
        }
    }
    let text = |name: &str| known.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str, shown: &str| match text(name) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| ScimError::value(shown, "it is not a number")),
    };
    let names = |name: &str| {
        let names = text(name).unwrap_or_default();
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Ok(Written {
        filter: text("filter").filter(|filter| !filter.is_empty()),
        sort_by: text("sortby").filter(|path| !path.is_empty()),
        sort_order: text("sortorder").filter(|order| !order.is_empty()),
        start: number("startindex", "startIndex")?,
        count: number("count", "count")?,
        asked: Asked { only: names("attributes"), without: names("excludedattributes") },
    })
}

/// Reads the body of a search.
pub(crate) fn from_body(body: &[u8]) -> Result<Written, ScimError> {
    let body = json::object(body)?;
    schemas(&body, SEARCH_REQUEST)?;
    let found = |name: &str| member(&body, name).filter(|value| !value.is_null());
    let wrong = |name: &str, value: &Value, expected: &str| {
        ScimError::value(name, format!("got {}, expected {expected}", kind(value)))
    };
    let text = |name: &str| match found(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(name, other, "a text")),
    };
    let number = |name: &str| match found(name) {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| wrong(name, value, "a whole number")),
    };
    let names = |name: &str| match found(name) {
        None => Ok(Vec::new()),
        Some(value @ Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| wrong(name, value, "a list of texts")))
            .collect(),
        Some(other) => Err(wrong(name, other, "a list of texts")),
    };
    Ok(Written {
        filter: text("filter")?,
        sort_by: text("sortBy")?,
        sort_order: text("sortOrder")?,
        start: number("startIndex")?,
        count: number("count")?,
        asked: Asked { only: names("attributes")?, without: names("excludedAttributes")? },
    })
}
