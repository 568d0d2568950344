//! One login under way: what ties the provider's answer to the browser that began (OpenID Connect Core §3.1.2.1, RFC 7636).

use std::fmt;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use sallyport_sal::{constant_time_eq, hash, random};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::error::OidcError;
use crate::json::shortened;

/// How long a login at the provider may take.
pub const ATTEMPT_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Length of each secret, in bytes: 43 characters, the least that RFC 7636 §4.1 allows of a verifier and what it recommends.
const SECRET_BYTES: usize = 32;

/// The secrets of one login, kept by the server until the provider's answer comes. It is good for one answer: taking the
/// answer consumes it, and a store gives it out once.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    state: String,
    nonce: String,
    verifier: String,
    issuer: String,
    /// The provider has announced that its answers name it.
    #[serde(default)]
    named: bool,
    #[serde(with = "time::serde::rfc3339")]
    expires: OffsetDateTime,
}

/// What is left once the answer was found to belong to the attempt.
#[derive(PartialEq, Eq)]
pub struct Answered {
    /// For the token endpoint (`code_verifier`).
    pub verifier: String,
    /// Has to be in the ID token.
    pub nonce: String,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("issuer", &self.issuer)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered").finish_non_exhaustive()
    }
}

impl Attempt {
    /// Begins a login at an issuer.
    ///
    /// # Errors
    /// [`OidcError::NoRandomness`].
    pub fn begin(issuer: &str, now: OffsetDateTime) -> Result<Self, OidcError> {
        let secret = || {
            let bytes = random::bytes::<SECRET_BYTES>().map_err(|_| OidcError::NoRandomness)?;
            Ok(BASE64URL_NOPAD.encode(&bytes))
        };
        Ok(Self {
            state: secret()?,
            nonce: secret()?,
            verifier: secret()?,
            issuer: issuer.to_owned(),
            named: false,
            expires: now + ATTEMPT_LIFETIME,
        })
    }

    /// The same, where the provider has announced that its answers name it
    /// ([`Discovery::names_itself`](crate::Discovery)): then an answer without a name is refused.
    #[must_use]
    pub fn named(mut self, names_itself: bool) -> Self {
        self.named = names_itself;
        self
    }

    /// The issuer that it is for.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// `state` of the request.
    #[must_use]
    pub fn state(&self) -> &str {
        &self.state
    }

    /// `nonce` of the request.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// `code_challenge` of the request, by the method S256.
    #[must_use]
    pub fn challenge(&self) -> String {
        s256(&self.verifier)
    }

    /// When it began.
    #[must_use]
    pub fn began(&self) -> OffsetDateTime {
        self.expires - ATTEMPT_LIFETIME
    }

    /// When it ends.
    #[must_use]
    pub fn expires(&self) -> OffsetDateTime {
        self.expires
    }

    /// Takes the answer: `state` and, where the provider gives it, `iss` (RFC 9207), against mixing up two providers.
    ///
    /// # Errors
    /// [`OidcError::StateMismatch`], [`OidcError::WrongIssuer`], [`OidcError::UnnamedAnswer`] and
    /// [`OidcError::AttemptExpired`].
    pub fn answer(
        self,
        state: &str,
        issuer: Option<&str>,
        now: OffsetDateTime,
    ) -> Result<Answered, OidcError> {
        if !constant_time_eq(state.as_bytes(), self.state.as_bytes()) {
            return Err(OidcError::StateMismatch);
        }
        if let Some(got) = issuer.filter(|got| *got != self.issuer) {
            return Err(OidcError::WrongIssuer { got: shortened(got), expected: self.issuer });
        }
        // RFC 9207 §2.4: who announces it does it always.
        if self.named && issuer.is_none() {
            return Err(OidcError::UnnamedAnswer { expected: self.issuer });
        }
        if now >= self.expires {
            return Err(OidcError::AttemptExpired { ended: self.expires });
        }
        Ok(Answered { verifier: self.verifier, nonce: self.nonce })
    }
}

/// The challenge of a verifier (RFC 7636 §4.2).
#[must_use]
pub fn s256(verifier: &str) -> String {
    BASE64URL_NOPAD.encode(&hash::sha256(verifier.as_bytes()))
}
