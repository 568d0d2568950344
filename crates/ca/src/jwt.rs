//! JSON Web Tokens (RFC 7519): signed by a CA's JWT key, and verified.
//!
//! There is one shape of token: the compact serialization (RFC 7515 §3.1), with a signature. What the signature has to
//! be follows from the key, never from the token: a header that names another algorithm, `none` above all, is refused
//! before anything is computed. Keys inside a token (`jwk`, `jku`, `x5c`) are not looked at.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::formats::jwk;
use sallyport_sal::{PublicKey, Signer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use time::OffsetDateTime;

use crate::encoding::{ecdsa_der_to_jose, ecdsa_jose_to_der};
use crate::{CaError, CaKind, SKEW_ALLOWANCE, Trust};

/// Longest token that is read or made, in bytes: HTTP servers refuse headers that are longer.
pub const MAX_BYTES: usize = 8 * 1024;

/// The claims that have a field of their own in [`Claims`] (RFC 7519 §4.1).
const REGISTERED: [&str; 7] = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"];

/// What a token says.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// `iss`: who made it. A JWT-SVID has none.
    pub issuer: Option<String>,
    /// `sub`: about whom.
    pub subject: String,
    /// `aud`: for whom; at least one.
    pub audience: Vec<String>,
    /// `exp`: its end, in whole seconds.
    pub expires: OffsetDateTime,
    /// `nbf`: its start, in whole seconds.
    pub not_before: Option<OffsetDateTime>,
    /// `iat`: when it was made, in whole seconds.
    pub issued: Option<OffsetDateTime>,
    /// `jti`: its serial number.
    pub id: Option<String>,
    /// Everything else.
    pub custom: Map<String, Value>,
}

/// What a token must say to be good for one who verifies it.
#[derive(Debug, Clone, Copy)]
pub struct Expectation<'a> {
    /// The issuer; `None` for tokens of a kind that names none.
    pub issuer: Option<&'a str>,
    /// The one who was shown the token, and must be among those it is for.
    pub audience: &'a str,
}

/// Why a token is not good. Everything here is the doing of the one that showed it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Longer than any of ours.
    #[error("the token has {got} bytes, expected at most {MAX_BYTES}")]
    TooLong {
        /// Its length.
        got: usize,
    },
    /// Not a token, or one that says something impossible.
    #[error("the token is malformed: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// It demands that its reader understand something that this one does not (RFC 7515 §4.1.11).
    #[error("the token has the critical header parameter {name:?}, which is not supported here")]
    Critical {
        /// The parameter.
        name: String,
    },
    /// Signed by a key that is not in the set.
    #[error("the token was signed by the key {kid:?}, expected one of {known}")]
    UnknownKey {
        /// The key it names.
        kid: String,
        /// The keys that there are.
        known: String,
    },
    /// The header names another algorithm than the key has.
    #[error("the token names the algorithm {got:?}, its key signs by {expected}")]
    WrongAlgorithm {
        /// What the header says.
        got: String,
        /// What the key does.
        expected: &'static str,
    },
    /// It was altered, or signed by another key.
    #[error("the signature of the token is not valid")]
    BadSignature,
    /// Its time is over.
    #[error("the token expired at {expires} and it is now {now}")]
    Expired {
        /// Its end.
        expires: OffsetDateTime,
        /// The verifier's clock.
        now: OffsetDateTime,
    },
    /// Its time has not come.
    #[error("the token is valid from {not_before} but it is only {now} here; one of the two clocks is wrong")]
    NotYetValid {
        /// Its start.
        not_before: OffsetDateTime,
        /// The verifier's clock.
        now: OffsetDateTime,
    },
    /// Made by another issuer.
    #[error("the token was issued by {got:?}, expected {expected:?}")]
    WrongIssuer {
        /// Whom it names.
        got: String,
        /// Who should have made it.
        expected: String,
    },
    /// Made for another audience.
    #[error("the token is for {got:?}, expected {expected:?}")]
    WrongAudience {
        /// For whom it is.
        got: Vec<String>,
        /// Who was shown it.
        expected: String,
    },
}

/// Public keys that tokens are verified with, the signing one first; during a rotation there are several.
#[derive(Clone)]
pub struct KeySet {
    keys: Vec<(String, PublicKey)>,
}

/// The name of a key in headers and key sets: its thumbprint (RFC 7638).
///
/// # Errors
/// [`CaError::Encode`] when the key has no JSON form, which none of ours lacks.
pub fn key_id(key: &PublicKey) -> Result<String, CaError> {
    jwk::thumbprint(key).map_err(|error| encode(error.to_string()))
}

/// The issuer of a cluster's tokens, from its public address (`host:port`): a URL whose port is left out where it is that
/// of HTTPS. None where there is no address.
#[must_use]
pub fn issuer(public_addr: &str) -> Option<String> {
    let address = public_addr.strip_suffix(":443").unwrap_or(public_addr);
    (!address.is_empty()).then(|| format!("https://{address}"))
}

/// Makes a token.
///
/// # Errors
/// [`CaError::BadClaim`] when a custom claim has a registered name, no audience is named or the token grows too long;
/// [`CaError::Sign`] when the key cannot sign.
pub fn sign(signer: &dyn Signer, claims: &Claims) -> Result<String, CaError> {
    let bad = |name: &str, reason| CaError::BadClaim { name: name.to_owned(), reason };
    if let Some(name) = REGISTERED.into_iter().find(|name| claims.custom.contains_key(*name)) {
        return Err(bad(name, "it is a registered claim with a field of its own"));
    }
    if claims.subject.is_empty() {
        return Err(bad("sub", "it is empty"));
    }
    if claims.audience.is_empty() || claims.audience.iter().any(String::is_empty) {
        return Err(bad("aud", "it names no audience"));
    }
    let algorithm = signer.algorithm();
    let header = Header {
        alg: algorithm.jose_name().to_owned(),
        kid: Some(key_id(&signer.public_key())?),
        typ: Some("JWT".to_owned()),
        crit: None,
    };
    let json = |error: serde_json::Error| encode(error.to_string());
    let header = serde_json::to_vec(&header).map_err(json)?;
    let payload = serde_json::to_vec(&Payload::of(claims)).map_err(json)?;
    let mut token = BASE64URL_NOPAD.encode(&header);
    token.push('.');
    BASE64URL_NOPAD.encode_append(&payload, &mut token);
    let signature = signer.sign(token.as_bytes())?;
    let signature = match (algorithm.kind(), algorithm.secret_bytes()) {
        (KeyKind::Ecdsa, Some(bytes)) => ecdsa_der_to_jose(&signature, bytes)
            .ok_or_else(|| encode("the signer's ECDSA signature is not DER".to_owned()))?,
        _ => signature,
    };
    token.push('.');
    BASE64URL_NOPAD.encode_append(&signature, &mut token);
    if token.len() > MAX_BYTES {
        return Err(bad(
            "sub",
            "with all that it says, the token is longer than 8 KiB, which HTTP servers refuse",
        ));
    }
    Ok(token)
}

impl KeySet {
    /// A set of keys, the signing one first. An empty set accepts no token.
    ///
    /// # Errors
    /// As [`key_id`].
    pub fn new<'k>(keys: impl IntoIterator<Item = &'k PublicKey>) -> Result<Self, CaError> {
        let mut set = Vec::new();
        for key in keys {
            set.push((key_id(key)?, key.clone()));
        }
        Ok(Self { keys: set })
    }

    /// The JWT keys of a CA, the one in use first; empty where it has none.
    ///
    /// # Errors
    /// [`CaError::BadTrust`] when the keys cannot be read, which the trust has checked.
    pub fn of(trust: &Trust, kind: CaKind) -> Result<Self, CaError> {
        let bad = |reason: String| CaError::BadTrust { field: "others", reason };
        let mut keys = Vec::new();
        for text in &trust.public_keys(kind).jwt {
            let (algorithm, raw) =
                jwk::decode_public(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
            keys.push(PublicKey::from_raw(algorithm, &raw).map_err(|error| bad(error.to_string()))?);
        }
        Self::new(&keys)
    }

    /// The names of the keys, the signing one first.
    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(id, _)| id.as_str())
    }

    /// Whether there is no key in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The algorithms that tokens may be signed by, each once.
    #[must_use]
    pub fn algorithms(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = Vec::new();
        for (_, key) in &self.keys {
            let name = key.algorithm().jose_name();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The set as a JSON document (RFC 7517 §5), for `/.well-known/jwks.json` and its like.
    ///
    /// # Errors
    /// [`CaError::Encode`], which no key of ours causes.
    pub fn jwks(&self) -> Result<String, CaError> {
        let keys = self.members("sig")?;
        serde_json::to_string(&serde_json::json!({ "keys": keys })).map_err(|error| encode(error.to_string()))
    }

    /// The keys as members of a key set, for the given `use`.
    pub(crate) fn members(&self, usage: &str) -> Result<Vec<Map<String, Value>>, CaError> {
        let member = |(id, key): &(String, PublicKey)| {
            let json = jwk::encode_public(key).map_err(|error| encode(error.to_string()))?;
            let mut members: Map<String, Value> =
                serde_json::from_str(&json).map_err(|error| encode(error.to_string()))?;
            for (name, value) in [("kid", id.as_str()), ("use", usage), ("alg", key.algorithm().jose_name())]
            {
                members.insert(name.to_owned(), value.into());
            }
            Ok(members)
        };
        self.keys.iter().map(member).collect()
    }

    /// Who a token is about: checks the form, the key, the algorithm and the signature, then time, issuer and audience,
    /// with a minute of tolerance between the clocks.
    ///
    /// # Errors
    /// [`Refusal`] with the reason.
    pub fn verify(
        &self,
        token: &str,
        expected: Expectation<'_>,
        now: OffsetDateTime,
    ) -> Result<Claims, Refusal> {
        let claims = self.authentic(token)?;
        if now >= claims.expires + SKEW_ALLOWANCE {
            return Err(Refusal::Expired { expires: claims.expires, now });
        }
        for start in [claims.not_before, claims.issued].into_iter().flatten() {
            if now < start - SKEW_ALLOWANCE {
                return Err(Refusal::NotYetValid { not_before: start, now });
            }
        }
        if let Some(issuer) = expected.issuer
            && claims.issuer.as_deref() != Some(issuer)
        {
            return Err(Refusal::WrongIssuer {
                got: claims.issuer.unwrap_or_default(),
                expected: issuer.to_owned(),
            });
        }
        if !claims.audience.iter().any(|name| name == expected.audience) {
            return Err(Refusal::WrongAudience {
                got: claims.audience,
                expected: expected.audience.to_owned(),
            });
        }
        Ok(claims)
    }

    /// What a token says, once its signature was found good.
    fn authentic(&self, token: &str) -> Result<Claims, Refusal> {
        if token.len() > MAX_BYTES {
            return Err(Refusal::TooLong { got: token.len() });
        }
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed("expected three parts with dots between them"));
        };
        let parsed: Header = serde_json::from_slice(&base64("header", header)?)
            .map_err(|error| malformed(format!("its header: {error}")))?;
        if let Some(names) = parsed.crit {
            return Err(Refusal::Critical { name: names.into_iter().next().unwrap_or_default() });
        }
        // RFC 7515 §4.1.9: "JOSE" is the other name of the same thing. A token of another kind is not one of these.
        if let Some(kind) =
            parsed.typ.filter(|kind| !["JWT", "JOSE"].iter().any(|ours| kind.eq_ignore_ascii_case(ours)))
        {
            return Err(malformed(format!("its typ is {kind:?}, expected \"JWT\"")));
        }
        let kid = parsed.kid.ok_or_else(|| malformed("its header names no key (kid)"))?;
        let key = self.keys.iter().find(|(id, _)| *id == kid).map(|(_, key)| key);
        let key = key.ok_or_else(|| Refusal::UnknownKey {
            kid,
            known: self.key_ids().collect::<Vec<_>>().join(", "),
        })?;
        let algorithm = key.algorithm();
        if parsed.alg != algorithm.jose_name() {
            return Err(Refusal::WrongAlgorithm { got: parsed.alg, expected: algorithm.jose_name() });
        }
        let signature = base64("signature", signature)?;
        let signature = match (algorithm.kind(), algorithm.secret_bytes()) {
            (KeyKind::Ecdsa, Some(bytes)) => {
                ecdsa_jose_to_der(&signature, bytes).ok_or(Refusal::BadSignature)?
            }
            _ => signature,
        };
        let signed = token.get(..header.len() + 1 + payload.len()).unwrap_or_default();
        key.verify(signed.as_bytes(), &signature).map_err(|_| Refusal::BadSignature)?;
        let payload: Payload = serde_json::from_slice(&base64("payload", payload)?)
            .map_err(|error| malformed(format!("its claims: {error}")))?;
        payload.claims()
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.key_ids()).finish()
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    typ: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crit: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<String>,
    sub: String,
    aud: Audience,
    exp: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbf: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iat: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(flatten)]
    custom: Map<String, Value>,
}

/// One name or several (RFC 7519 §4.1.3).
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Payload {
    fn of(claims: &Claims) -> Self {
        let seconds = |time: OffsetDateTime| Number::from(time.unix_timestamp());
        Self {
            iss: claims.issuer.clone(),
            sub: claims.subject.clone(),
            aud: match claims.audience.as_slice() {
                [one] => Audience::One(one.clone()),
                several => Audience::Several(several.to_vec()),
            },
            exp: seconds(claims.expires),
            nbf: claims.not_before.map(seconds),
            iat: claims.issued.map(seconds),
            jti: claims.id.clone(),
            custom: claims.custom.clone(),
        }
    }

    fn claims(self) -> Result<Claims, Refusal> {
        let audience = match self.aud {
            Audience::One(name) => vec![name],
            Audience::Several(names) => names,
        };
        Ok(Claims {
            issuer: self.iss,
            subject: self.sub,
            audience,
            expires: date("exp", &self.exp)?,
            not_before: self.nbf.map(|number| date("nbf", &number)).transpose()?,
            issued: self.iat.map(|number| date("iat", &number)).transpose()?,
            id: self.jti,
            custom: self.custom,
        })
    }
}

/// NumericDate (RFC 7519 §2): seconds since 1970. Other issuers' may have a fraction, which is cut off.
fn date(name: &str, number: &Number) -> Result<OffsetDateTime, Refusal> {
    let whole = number.as_i64().or_else(|| {
        // Every whole number below 2^53 is exact, and the year 9999 is far below.
        let seconds = number.as_f64().filter(|seconds| (0.0..1e12).contains(seconds))?;
        format!("{:.0}", seconds.floor()).parse().ok()
    });
    whole
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        // Far enough from the ends that the tolerance can be added.
        .filter(|time| (1970..9999).contains(&time.year()))
        .ok_or_else(|| malformed(format!("{name} is {number}, which is no date")))
}

fn base64(part: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    BASE64URL_NOPAD
        .decode(text.as_bytes())
        .map_err(|_| malformed(format!("its {part} is not base64url without padding")))
}

fn malformed(reason: impl Into<String>) -> Refusal {
    Refusal::Malformed { reason: reason.into() }
}

fn encode(reason: String) -> CaError {
    CaError::Encode { what: "a JSON Web Token", reason }
}
