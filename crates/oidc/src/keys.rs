//! An issuer's keys (RFC 7517 §5), which of them made a signature, and when to fetch them again.

use std::time::Duration;

use sallyport_sal::PublicKey;
use sallyport_sal::formats::jwk;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::algorithm::Algorithm;
use crate::error::OidcError;
use crate::json::{self, shortened};

/// Longest key set, in bytes.
pub const MAX_KEY_SET_BYTES: usize = 256 * 1024;

/// Most keys of a set. Issuers have fewer than ten.
const MAX_KEYS: usize = 100;

#[derive(Debug, Clone)]
struct Key {
    kid: Option<String>,
    /// The only algorithm that it may be used with, where it says so.
    algorithm: Option<String>,
    key: PublicKey,
}

/// An issuer's public keys for signatures.
#[derive(Debug, Clone)]
pub struct KeySet {
    keys: Vec<Key>,
    /// Those that are not used here, and why.
    ignored: Vec<(String, String)>,
}

impl KeySet {
    /// Reads the document behind `jwks_uri`.
    ///
    /// Keys of other types, for encryption, or of sizes that are not used here are left out (RFC 7517 §5), and
    /// [`KeySet::ignored`] says why.
    ///
    /// # Errors
    /// [`OidcError::BadKeySet`] when it is no key set, or has a private or shared key in it: an issuer that serves those has
    /// no secret left.
    pub fn parse(document: &[u8]) -> Result<Self, OidcError> {
        let bad = |reason: String| OidcError::BadKeySet { reason };
        if document.len() > MAX_KEY_SET_BYTES {
            return Err(bad("it is longer than 256 KiB".to_owned()));
        }
        let members = json::object(document).map_err(|error| bad(error.to_string()))?;
        let Some(Value::Array(entries)) = members.get("keys") else {
            return Err(bad("it has no list \"keys\"".to_owned()));
        };
        if entries.len() > MAX_KEYS {
            return Err(bad(format!("it has {} keys, at most {MAX_KEYS} are read", entries.len())));
        }
        let mut set = Self { keys: Vec::new(), ignored: Vec::new() };
        for entry in entries {
            let Value::Object(entry) = entry else { return Err(bad("a key is not an object".to_owned())) };
            set.add(entry)?;
        }
        Ok(set)
    }

    fn add(&mut self, entry: &Map<String, Value>) -> Result<(), OidcError> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let kid = text("kid").map(shortened);
        let label = kid.clone().unwrap_or_else(|| "(no kid)".to_owned());
        // RFC 7518 §6.2.2, §6.3.2, §6.4.1.
        if ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"].iter().any(|name| entry.contains_key(*name))
        {
            let reason = format!(
                "the key {label} has a secret in it, which is public now: the issuer has to replace it"
            );
            return Err(OidcError::BadKeySet { reason });
        }
        let bytes = serde_json::to_vec(entry).unwrap_or_default();
        let read =
            jwk::decode_public(&bytes).map_err(|error| error.to_string()).and_then(|(algorithm, raw)| {
                PublicKey::from_raw(algorithm, &raw).map_err(|error| error.to_string())
            });
        match read {
            Ok(key) => self.keys.push(Key { kid, algorithm: text("alg").map(str::to_owned), key }),
            Err(reason) => self.ignored.push((label, reason)),
        }
        Ok(())
    }

    /// Keys of the set that are not used, by `kid`, with the reason.
    pub fn ignored(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ignored.iter().map(|(kid, reason)| (kid.as_str(), reason.as_str()))
    }

    /// How many keys are used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The one key that a signature can be by: it has the `kid`, is of the algorithm's type, and is not for another one.
    pub(crate) fn choose(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<&PublicKey, OidcError> {
        let fits = |key: &&Key| {
            (kid.is_none() || key.kid.as_deref() == kid)
                && algorithm.fits(&key.key)
                // RFC 9864 names the curve; the algorithm is the same.
                && key.algorithm.as_deref().is_none_or(|name| {
                    name == algorithm.name() || (algorithm == Algorithm::EdDsa && name == "Ed25519")
                })
        };
        let mut fitting = self.keys.iter().filter(fits);
        match (fitting.next(), fitting.count()) {
            (Some(key), 0) => Ok(&key.key),
            (Some(_), more) => Err(OidcError::AmbiguousKey { count: more + 1 }),
            (None, _) => Err(OidcError::UnknownKey {
                kid: kid.map(shortened).unwrap_or_default(),
                algorithm,
                known: self.described(),
            }),
        }
    }

    fn described(&self) -> String {
        let used = self
            .keys
            .iter()
            .map(|key| format!("{} ({})", key.kid.as_deref().unwrap_or("(no kid)"), key.key.algorithm()));
        let ignored = self.ignored.iter().map(|(kid, reason)| format!("{kid} (not used: {reason})"));
        let all: Vec<String> = used.chain(ignored).take(10).collect();
        if all.is_empty() { "no key".to_owned() } else { all.join(", ") }
    }
}

/// How long a key set is good without being fetched again.
pub const REFRESH: Duration = Duration::from_secs(60 * 60);

/// The least time between two fetches that tokens cause: a stranger with tokens that name keys which are not there must not be
/// able to have the issuer asked for each.
pub const FETCH_PAUSE: Duration = Duration::from_secs(30);

/// How long a key set is good that cannot be fetched again, since it last was. A thief of a key that the issuer has taken out of its set since
/// then could sign tokens by it for as long as the thief keeps the set from being fetched.
pub const LONGEST_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// An issuer's key set as it is kept, and when it is to be fetched again.
#[derive(Debug, Clone, Default)]
pub struct KeyCache {
    kept: Option<(KeySet, OffsetDateTime)>,
    tried: Option<OffsetDateTime>,
}

impl KeyCache {
    /// The keys that are good: while the issuer is away, its old ones are for [`LONGEST_KEPT`].
    #[must_use]
    pub fn keys(&self, now: OffsetDateTime) -> Option<&KeySet> {
        // From a clock that was set back the age is not known; so it is neither good for ever nor none at once.
        let is_good = |fetched: OffsetDateTime| (now - fetched).unsigned_abs() < LONGEST_KEPT;
        self.kept.as_ref().filter(|(_, fetched)| is_good(*fetched)).map(|(keys, _)| keys)
    }

    /// When the set that is kept was fetched, whether or not it is still good.
    #[must_use]
    pub fn fetched(&self) -> Option<OffsetDateTime> {
        self.kept.as_ref().map(|(_, fetched)| *fetched)
    }

    /// Whether to fetch before a token is verified.
    #[must_use]
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        let old = self.kept.as_ref().is_none_or(|(_, fetched)| now - *fetched >= REFRESH || now < *fetched);
        old && self.may_try(now)
    }

    /// Whether to fetch and verify again after this refusal: the issuer may have a new key.
    #[must_use]
    pub fn is_due_after(&self, refusal: &OidcError, now: OffsetDateTime) -> bool {
        matches!(refusal, OidcError::UnknownKey { .. }) && self.may_try(now)
    }

    fn may_try(&self, now: OffsetDateTime) -> bool {
        self.tried.is_none_or(|tried| now - tried >= FETCH_PAUSE || now < tried)
    }

    /// Notes that a fetch begins.
    pub fn begin(&mut self, now: OffsetDateTime) {
        self.tried = Some(now);
    }

    /// Keeps what was fetched, in place of all that was kept: a key that the issuer took out is no longer good.
    pub fn keep(&mut self, keys: KeySet, now: OffsetDateTime) {
        self.kept = Some((keys, now));
    }
}
