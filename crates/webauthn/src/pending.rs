//! A ceremony that was begun: what the response is held against.

use std::time::Duration;

use sallyport_sal::random;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::binary::Binary;
use crate::cose::Algorithm;
use crate::credential::UserHandle;
use crate::error::WebAuthnError;
use crate::purpose::{Ceremony, Purpose};
use crate::relying_party::{RelyingParty, UserVerification};

/// Length of a challenge, in bytes. WebAuthn L3 §13.4.3 wants 16 at least.
pub const CHALLENGE_BYTES: usize = 32;

/// How long a ceremony may take. WebAuthn L3 §15.1 recommends 5 to 10 minutes.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// A ceremony that was begun, to be kept by the server until its response comes.
///
/// It is good for one response: finishing takes it, and it cannot be copied. A store gives it out once and deletes it in the
/// same step, before the response is looked at; whatever comes of that, the ceremony is over. It never goes to the browser.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    pub(crate) ceremony: Ceremony,
    pub(crate) purpose: Purpose,
    pub(crate) rp_id: String,
    pub(crate) challenge: Binary,
    /// The user, where it was known when the ceremony began.
    pub(crate) user: Option<UserHandle>,
    /// The credentials that were asked for; empty where any will do. Registrations have none.
    pub(crate) allowed: Vec<Binary>,
    pub(crate) user_verification: UserVerification,
    /// The algorithms that were offered. Authentications have none.
    pub(crate) algorithms: Vec<Algorithm>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires: OffsetDateTime,
}

impl Pending {
    pub(crate) fn begin(
        relying_party: &RelyingParty,
        ceremony: Ceremony,
        purpose: Purpose,
        user_verification: Option<UserVerification>,
        now: OffsetDateTime,
    ) -> Result<Self, WebAuthnError> {
        Ok(Self {
            ceremony,
            purpose,
            rp_id: relying_party.rp_id().to_owned(),
            challenge: Binary(random::bytes::<CHALLENGE_BYTES>()?.to_vec()),
            user: None,
            allowed: Vec::new(),
            user_verification: user_verification.unwrap_or(relying_party.user_verification()),
            algorithms: Vec::new(),
            expires: now + TIMEOUT,
        })
    }

    /// What it was begun for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The user, where it was known when the ceremony began.
    #[must_use]
    pub fn user(&self) -> Option<&UserHandle> {
        self.user.as_ref()
    }

    /// When it ends, whether or not a response came. Stores delete it then.
    #[must_use]
    pub fn expires(&self) -> OffsetDateTime {
        self.expires
    }

    /// The challenge, by which a store may find it again.
    #[must_use]
    pub fn challenge(&self) -> &[u8] {
        self.challenge.as_slice()
    }

    /// Whether it may be finished as this, now. Step 1 of both procedures: the options are those that it was begun with.
    pub(crate) fn check(
        &self,
        relying_party: &RelyingParty,
        ceremony: Ceremony,
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<(), WebAuthnError> {
        if self.ceremony != ceremony {
            return Err(WebAuthnError::WrongCeremony {
                got: self.ceremony.name(),
                expected: ceremony.name(),
            });
        }
        if self.purpose != purpose {
            return Err(WebAuthnError::WrongPurpose { got: self.purpose, expected: purpose });
        }
        if self.rp_id != relying_party.rp_id() {
            return Err(WebAuthnError::WrongRelyingParty {
                got: self.rp_id.clone(),
                expected: relying_party.rp_id().to_owned(),
            });
        }
        if now >= self.expires {
            return Err(WebAuthnError::Expired { expired: self.expires, now });
        }
        Ok(())
    }
}
