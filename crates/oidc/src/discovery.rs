//! What an issuer says about itself (OpenID Connect Discovery 1.0 §3, RFC 8414 §2).

use serde_json::{Map, Value};

use crate::address;
use crate::algorithm::Algorithm;
use crate::error::OidcError;
use crate::json::{self, shortened};

/// Longest discovery document, in bytes.
pub const MAX_DISCOVERY_BYTES: usize = 64 * 1024;

/// The parts of a discovery document that a login needs, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// The issuer, as it was configured.
    pub issuer: String,
    /// Where browsers are sent.
    pub authorization_endpoint: String,
    /// Where codes become tokens.
    pub token_endpoint: String,
    /// Where the keys are.
    pub jwks_uri: String,
    /// Where more is known about the user, if anywhere.
    pub userinfo_endpoint: Option<String>,
    /// Where a user logs out, if anywhere.
    pub end_session_endpoint: Option<String>,
    /// The algorithms that it signs ID tokens by, among those that are known here.
    pub algorithms: Vec<Algorithm>,
    /// How its token endpoint wants a client to prove itself, in its words; `client_secret_basic` where it says nothing (§3).
    pub token_auth_methods: Vec<String>,
    /// Whether its answers name it (`iss`, RFC 9207): one that does must do so always.
    pub names_itself: bool,
    /// Whether it says when its users have signed in (`auth_time` among `claims_supported`).
    pub says_when: bool,
}

/// Where the discovery document of an issuer is (§4).
///
/// # Errors
/// [`OidcError::BadIssuer`] when it is not the URL of one.
pub fn discovery_url(issuer: &str) -> Result<String, OidcError> {
    address::check_issuer(issuer)
        .map_err(|reason| OidcError::BadIssuer { issuer: shortened(issuer), reason })?;
    Ok(format!("{}/.well-known/openid-configuration", issuer.strip_suffix('/').unwrap_or(issuer)))
}

impl Discovery {
    /// Reads the document that was fetched for an issuer.
    ///
    /// # Errors
    /// [`OidcError::IssuerMismatch`] when it is another issuer's (§4.3), and [`OidcError::BadDiscovery`] when it cannot serve
    /// for logins with codes, PKCE and signatures.
    pub fn parse(issuer: &str, document: &[u8]) -> Result<Self, OidcError> {
        let bad = |reason: String| OidcError::BadDiscovery { issuer: shortened(issuer), reason };
        if document.len() > MAX_DISCOVERY_BYTES {
            return Err(bad("it is longer than 64 KiB".to_owned()));
        }
        let members = json::object(document).map_err(|error| bad(error.to_string()))?;
        let named = members.get("issuer").and_then(Value::as_str);
        let named = named.ok_or_else(|| bad("it does not say whose it is (\"issuer\")".to_owned()))?;
        // §4.3: identical, so neither a slash more nor another case.
        if named != issuer {
            return Err(OidcError::IssuerMismatch { got: shortened(named), expected: issuer.to_owned() });
        }
        let endpoint = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(url)) => match address::check(url) {
                Ok(()) => Ok(Some(url.clone())),
                Err(reason) => Err(bad(format!("{name} is {:?}: {reason}", shortened(url)))),
            },
            Some(_) => Err(bad(format!("{name} is not a text"))),
        };
        let needed = |name: &str| endpoint(name)?.ok_or_else(|| bad(format!("it has no {name}")));
        let discovery = Self {
            issuer: issuer.to_owned(),
            authorization_endpoint: needed("authorization_endpoint")?,
            token_endpoint: needed("token_endpoint")?,
            jwks_uri: needed("jwks_uri")?,
            userinfo_endpoint: endpoint("userinfo_endpoint")?,
            end_session_endpoint: endpoint("end_session_endpoint")?,
            algorithms: algorithms(&members),
            token_auth_methods: match members.get("token_endpoint_auth_methods_supported") {
                None | Some(Value::Null) => vec!["client_secret_basic".to_owned()],
                Some(_) => list(&members, "token_endpoint_auth_methods_supported").map(shortened).collect(),
            },
            names_itself: members.get("authorization_response_iss_parameter_supported")
                == Some(&Value::Bool(true)),
            says_when: list(&members, "claims_supported").any(|claim| claim == "auth_time"),
        };
        if discovery.algorithms.is_empty() {
            return Err(bad("it signs ID tokens by no algorithm that is known here".to_owned()));
        }
        let offers = |name: &str, value: &str| list(&members, name).any(|one| one == value);
        if !offers("response_types_supported", "code") {
            return Err(bad("it does not offer the response type code".to_owned()));
        }
        // Not every issuer with PKCE says so; one that lists methods without S256 has none that is of use.
        if members.contains_key("code_challenge_methods_supported")
            && !offers("code_challenge_methods_supported", "S256")
        {
            return Err(bad("it does not offer PKCE with S256".to_owned()));
        }
        Ok(discovery)
    }
}

fn list<'a>(members: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a str> {
    members.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn algorithms(members: &Map<String, Value>) -> Vec<Algorithm> {
    list(members, "id_token_signing_alg_values_supported").filter_map(Algorithm::of).collect()
}
