//! ID tokens, verified (OpenID Connect Core 1.0 §3.1.3.7, RFC 7519 §7.2, RFC 8725).

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use sallyport_sal::constant_time_eq;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::address;
use crate::algorithm::Algorithm;
use crate::error::OidcError;
use crate::json::{self, kind, shortened};
use crate::keys::KeySet;

/// Longest token that is read, in bytes. Providers put names of groups into tokens.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// How far the two clocks may be apart.
pub const SKEW: Duration = Duration::from_secs(60);

/// How old a token may be that was fetched just now. Providers that hand out one token twice do so within minutes.
pub const MAX_AGE: Duration = Duration::from_secs(10 * 60);

/// Last second that a date may name: the end of the year 9998, so that the tolerance can be added.
const LAST_SECOND: u64 = 253_370_764_800;

/// Longest subject, in bytes (Core §2: 255 ASCII characters).
const MAX_SUBJECT_BYTES: usize = 255;

/// Who a user is: a subject of an issuer. Subjects of two issuers are never the same person, whatever else the tokens
/// say; mail addresses and names are no identity, since they change hands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// `iss`.
    pub issuer: String,
    /// `sub`.
    pub subject: String,
}

impl Identity {
    /// Whether a text may be a subject (Core §2).
    #[must_use]
    pub fn is_subject(text: &str) -> bool {
        !text.is_empty() && text.len() <= MAX_SUBJECT_BYTES && !text.chars().any(char::is_control)
    }
}

/// An identity provider as it is configured.
#[derive(Debug, Clone)]
pub struct Provider {
    issuer: String,
    client_id: String,
    algorithms: Vec<Algorithm>,
    other_audiences: Vec<String>,
}

/// Whether a token has to have the nonce of its login.
#[derive(Clone, Copy)]
enum NonceIs {
    Required,
    Optional,
}

/// What one login expects of its token.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The nonce of its request.
    pub nonce: &'a str,
    /// How long ago the user may have logged in at the provider (`max_age` of the request); none where that was not asked.
    pub max_age: Option<Duration>,
}

/// A token that was verified.
#[derive(Debug, Clone, PartialEq)]
pub struct IdToken {
    /// Who it is about.
    pub identity: Identity,
    /// Its end.
    pub expires: OffsetDateTime,
    /// When the user logged in at the provider, where it says so.
    pub authenticated: Option<OffsetDateTime>,
    /// All of its claims.
    pub claims: Map<String, Value>,
}

impl Provider {
    /// A provider. `issuer` is to the letter what its documents say, `client_id` what it calls this cluster, `algorithms` those
    /// that its tokens may be signed by.
    ///
    /// # Errors
    /// [`OidcError::BadIssuer`] and [`OidcError::BadSettings`].
    pub fn new(issuer: &str, client_id: &str, algorithms: &[Algorithm]) -> Result<Self, OidcError> {
        address::check_issuer(issuer)
            .map_err(|reason| OidcError::BadIssuer { issuer: shortened(issuer), reason })?;
        if client_id.is_empty() {
            return Err(OidcError::BadSettings { reason: "the client ID is empty" });
        }
        if algorithms.is_empty() {
            return Err(OidcError::BadSettings { reason: "no algorithm is allowed" });
        }
        Ok(Self {
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            algorithms: algorithms.to_vec(),
            other_audiences: Vec::new(),
        })
    }

    /// The same, where tokens may be for these audiences besides this cluster. They then could show such a token here.
    #[must_use]
    pub fn with_other_audiences(mut self, audiences: Vec<String>) -> Self {
        self.other_audiences = audiences;
        self
    }

    /// The issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// What the provider calls this cluster.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Verifies a token.
    ///
    /// On success a key of the issuer's signed exactly these claims, for this client and this login, and they are good now.
    ///
    /// # Errors
    /// [`OidcError`] with the reason. After [`OidcError::UnknownKey`] the issuer's keys may be fetched again
    /// ([`KeyCache`](crate::KeyCache)).
    pub fn verify(
        &self,
        token: &str,
        keys: &KeySet,
        expected: Expected<'_>,
        now: OffsetDateTime,
    ) -> Result<IdToken, OidcError> {
        self.verify_as(token, keys, (expected, NonceIs::Required), now)
    }

    /// Verifies a token that came with a refresh (Core §12.2): it is for the login whose nonce this is, and has it, if any. How long
    /// ago the user logged in is not looked at again.
    ///
    /// # Errors
    /// As [`Self::verify`]. Whose it is, is the caller's to compare.
    pub fn verify_refreshed(
        &self,
        token: &str,
        keys: &KeySet,
        nonce: &str,
        now: OffsetDateTime,
    ) -> Result<IdToken, OidcError> {
        self.verify_as(token, keys, (Expected { nonce, max_age: None }, NonceIs::Optional), now)
    }

    fn verify_as(
        &self,
        token: &str,
        keys: &KeySet,
        (expected, nonce_is): (Expected<'_>, NonceIs),
        now: OffsetDateTime,
    ) -> Result<IdToken, OidcError> {
        // RFC 8725 §3.11: tokens of other kinds, such as logout+jwt and at+jwt, are not taken for this one.
        let claims = self.authentic(token, keys, &["JWT", "JOSE"])?;
        self.check_issuer(&claims)?;
        let subject = subject(&claims)?;
        self.check_audience(&claims)?;
        let (expires, authenticated) = check_times(&claims, expected, now)?;
        // Step 11. A nonce that the provider gives is the login's, whether it has to give one or not.
        let is_looked_at = matches!(nonce_is, NonceIs::Required) || claims.contains_key("nonce");
        if is_looked_at && !constant_time_eq(text(&claims, "nonce")?.as_bytes(), expected.nonce.as_bytes()) {
            return Err(OidcError::NonceMismatch);
        }
        let identity = Identity { issuer: self.issuer.clone(), subject: subject.to_owned() };
        Ok(IdToken { identity, expires, authenticated, claims })
    }

    /// Core §3.1.3.7 step 2.
    pub(crate) fn check_issuer(&self, claims: &Map<String, Value>) -> Result<(), OidcError> {
        let issuer = text(claims, "iss")?;
        if issuer == self.issuer {
            return Ok(());
        }
        Err(OidcError::WrongIssuer { got: shortened(issuer), expected: self.issuer.clone() })
    }

    /// The claims of a token of these types whose signature is good. They are decoded from the very bytes that were verified.
    pub(crate) fn authentic(
        &self,
        token: &str,
        keys: &KeySet,
        types: &[&str],
    ) -> Result<Map<String, Value>, OidcError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(OidcError::TooLong { got: token.len(), limit: MAX_TOKEN_BYTES });
        }
        // RFC 7515 §7.1: the compact form, which has one signature. Its JSON form, with several, is not read.
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed("expected three parts with dots between them"));
        };
        let header_members = json::object(&base64("header", header)?)
            .map_err(|reason| malformed(format!("its header: {reason}")))?;
        let (algorithm, kid) = self.check_header(&header_members, types)?;
        let signature = base64("signature", signature)?;
        let signed = token.get(..header.len() + 1 + payload.len()).unwrap_or_default();
        let key = keys.choose(kid, algorithm)?;
        if !algorithm.verifies(key, signed.as_bytes(), &signature) {
            return Err(OidcError::BadSignature);
        }
        json::object(&base64("payload", payload)?)
            .map_err(|reason| malformed(format!("its claims: {reason}")))
    }

    fn check_header<'h>(
        &self,
        header: &'h Map<String, Value>,
        types: &[&str],
    ) -> Result<(Algorithm, Option<&'h str>), OidcError> {
        // RFC 8725 §3.10: what would have the key come from where the token says.
        for parameter in ["jwk", "jku", "x5u", "x5c"] {
            if header.contains_key(parameter) {
                return Err(OidcError::EmbeddedKey { parameter });
            }
        }
        if let Some(critical) = header.get("crit") {
            return Err(OidcError::Critical { names: shortened(&critical.to_string()) });
        }
        // Encrypted, compressed, nested, or with a payload that is not base64url (RFC 7516, RFC 7797): none of it is an ID token.
        for parameter in ["enc", "zip", "b64", "cty"] {
            if header.contains_key(parameter) {
                return Err(malformed(format!("its header has {parameter:?}")));
            }
        }
        match header.get("typ") {
            None => {}
            Some(Value::String(kind)) if types.iter().any(|one| kind.eq_ignore_ascii_case(one)) => {}
            Some(other) => return Err(malformed(format!("its typ is {}", shortened(&other.to_string())))),
        }
        let Some(Value::String(name)) = header.get("alg") else {
            return Err(malformed("its header names no algorithm"));
        };
        if name.eq_ignore_ascii_case("none") || name.to_ascii_uppercase().starts_with("HS") {
            return Err(OidcError::Unsigned { got: shortened(name) });
        }
        let algorithm = Algorithm::of(name).filter(|algorithm| self.algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or_else(|| {
            let names: Vec<&str> = self.algorithms.iter().map(|algorithm| algorithm.name()).collect();
            OidcError::AlgorithmNotAllowed { got: shortened(name), expected: names.join(", ") }
        })?;
        match header.get("kid") {
            None => Ok((algorithm, None)),
            Some(Value::String(kid)) => Ok((algorithm, Some(kid))),
            Some(_) => Err(malformed("its kid is not a text")),
        }
    }

    /// Core §3.1.3.7 steps 3 to 5.
    pub(crate) fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), OidcError> {
        let wrong = |got: &Value| OidcError::WrongClaim {
            claim: "aud",
            got: kind(got).to_owned(),
            expected: "a text, or a list of texts",
        };
        let audience: Vec<&str> = match claims.get("aud") {
            None => return Err(OidcError::MissingClaim { claim: "aud" }),
            Some(Value::String(one)) => vec![one],
            Some(list @ Value::Array(items)) => {
                items.iter().map(|item| item.as_str().ok_or_else(|| wrong(list))).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(wrong(other)),
        };
        let ours = |name: &str| name == self.client_id;
        let trusted = |name: &str| self.other_audiences.iter().any(|other| other == name);
        if !audience.iter().any(|name| ours(name)) || !audience.iter().all(|name| ours(name) || trusted(name))
        {
            return Err(OidcError::WrongAudience {
                got: shortened(&audience.join(", ")),
                expected: self.client_id.clone(),
            });
        }
        let party = match claims.get("azp") {
            None => None,
            Some(_) => Some(text(claims, "azp")?),
        };
        match party {
            Some(party) if party != self.client_id => {
                Err(OidcError::WrongParty { got: shortened(party), expected: self.client_id.clone() })
            }
            None if audience.len() > 1 => {
                Err(OidcError::WrongParty { got: String::new(), expected: self.client_id.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Core §3.1.3.7 steps 9, 10 and 13: the token's end, and the login at the provider.
fn check_times(
    claims: &Map<String, Value>,
    expected: Expected<'_>,
    now: OffsetDateTime,
) -> Result<(OffsetDateTime, Option<OffsetDateTime>), OidcError> {
    let needed = |claim| date(claims, claim)?.ok_or(OidcError::MissingClaim { claim });
    let expires = needed("exp")?;
    let issued = needed("iat")?;
    let not_before = date(claims, "nbf")?;
    if now >= expires + SKEW {
        return Err(OidcError::Expired { ended: expires, now });
    }
    for (claim, from) in [("iat", Some(issued)), ("nbf", not_before)] {
        if let Some(from) = from
            && now + SKEW < from
        {
            return Err(OidcError::NotYetValid { claim, from, now });
        }
    }
    if now - issued > MAX_AGE + SKEW {
        return Err(OidcError::TooOld { issued, now });
    }
    let authenticated = date(claims, "auth_time")?;
    if let Some(max_age) = expected.max_age {
        let at = authenticated.ok_or(OidcError::MissingClaim { claim: "auth_time" })?;
        if now - at > max_age + SKEW {
            return Err(OidcError::LoginTooOld { at, now });
        }
    }
    Ok((expires, authenticated))
}

/// `sub` as it may be (Core §2).
pub(crate) fn subject(claims: &Map<String, Value>) -> Result<&str, OidcError> {
    let subject = text(claims, "sub")?;
    if !Identity::is_subject(subject) {
        return Err(OidcError::WrongClaim {
            claim: "sub",
            got: format!("a text of {} bytes", subject.len()),
            expected: "1 to 255 bytes without control characters",
        });
    }
    Ok(subject)
}

pub(crate) fn text<'c>(claims: &'c Map<String, Value>, claim: &'static str) -> Result<&'c str, OidcError> {
    match claims.get(claim) {
        Some(Value::String(text)) => Ok(text),
        None => Err(OidcError::MissingClaim { claim }),
        Some(other) => Err(OidcError::WrongClaim { claim, got: kind(other).to_owned(), expected: "a text" }),
    }
}

/// NumericDate (RFC 7519 §2), as whole seconds. A text, a null and a number beyond the year 9998 are none.
pub(crate) fn date(
    claims: &Map<String, Value>,
    claim: &'static str,
) -> Result<Option<OffsetDateTime>, OidcError> {
    let Some(value) = claims.get(claim) else { return Ok(None) };
    value
        .as_u64()
        .filter(|seconds| *seconds < LAST_SECOND)
        .and_then(|seconds| i64::try_from(seconds).ok())
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .map(Some)
        .ok_or_else(|| OidcError::WrongClaim {
            claim,
            got: if value.is_number() { shortened(&value.to_string()) } else { kind(value).to_owned() },
            expected: "whole seconds since 1970",
        })
}

fn base64(part: &str, text: &str) -> Result<Vec<u8>, OidcError> {
    BASE64URL_NOPAD
        .decode(text.as_bytes())
        .map_err(|_| malformed(format!("its {part} is not base64url without padding")))
}

fn malformed(reason: impl Into<String>) -> OidcError {
    OidcError::Malformed { reason: reason.into() }
}
