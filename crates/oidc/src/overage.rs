//! Claims that were too many for the token (OpenID Connect Core §5.6.2): the provider names a place where they are instead.
//!
//! Entra ID does so with more than 200 groups. A mapping that took the missing claim for an empty one would take roles away
//! from exactly those who have the most.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::address;

/// A claim that is elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overage {
    /// The claim.
    pub claim: String,
    /// Where it is, if the token says so by a URL that may be asked.
    pub endpoint: Option<String>,
}

/// The claims that are elsewhere.
#[must_use]
pub fn overages(claims: &Map<String, Value>) -> Vec<Overage> {
    let mut found = Vec::new();
    if let Some(Value::Object(names)) = claims.get("_claim_names") {
        let sources = claims.get("_claim_sources").and_then(Value::as_object);
        for (claim, source) in names {
            let source = source.as_str().and_then(|source| sources?.get(source));
            let endpoint = source.and_then(|source| source.get("endpoint")).and_then(Value::as_str);
            let endpoint = endpoint.filter(|url| address::check(url).is_ok()).map(str::to_owned);
            found.push(Overage { claim: claim.clone(), endpoint });
        }
    }
    // In tokens of the implicit flow Entra ID says only that there are some.
    if claims.get("hasgroups") == Some(&Value::Bool(true)) && !found.iter().any(|one| one.claim == "groups") {
        found.push(Overage { claim: "groups".to_owned(), endpoint: None });
    }
    found
}
