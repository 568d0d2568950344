//! What is stored of a passkey, and whose it is.

use std::fmt;

use sallyport_sal::random;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::attestation::format::Attestation;
use crate::binary::Binary;
use crate::cose::Algorithm;
use crate::cose::CredentialKey;
use crate::error::WebAuthnError;

/// Longest user handle, in bytes (WebAuthn L3 §5.4.3).
const MAX_USER_HANDLE_BYTES: usize = 64;

/// Length of a fresh user handle, in bytes. §14.6.1 recommends 64; authenticators store it with each passkey, and half of it
/// cannot be guessed either.
const USER_HANDLE_BYTES: usize = 32;

/// The name of a user to authenticators: random bytes that say nothing about the person (WebAuthn L3 §14.6.1).
///
/// A user has one for good. It is neither a login name nor a mail address, since authenticators give it away.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Binary", into = "Binary")]
pub struct UserHandle(Binary);

impl UserHandle {
    /// A fresh one.
    ///
    /// # Errors
    /// [`WebAuthnError::Challenge`] when there is no randomness.
    pub fn random() -> Result<Self, WebAuthnError> {
        Ok(Self(Binary(random::bytes::<USER_HANDLE_BYTES>()?.to_vec())))
    }

    /// Takes one as bytes.
    ///
    /// # Errors
    /// [`WebAuthnError::BadUserHandle`] when it is empty or longer than 64 bytes.
    pub fn new(bytes: Vec<u8>) -> Result<Self, WebAuthnError> {
        if (1..=MAX_USER_HANDLE_BYTES).contains(&bytes.len()) {
            Ok(Self(Binary(bytes)))
        } else {
            Err(WebAuthnError::BadUserHandle { got: bytes.len() })
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for UserHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<Binary> for UserHandle {
    type Error = WebAuthnError;

    fn try_from(bytes: Binary) -> Result<Self, WebAuthnError> {
        Self::new(bytes.0)
    }
}

impl From<UserHandle> for Binary {
    fn from(handle: UserHandle) -> Self {
        handle.0
    }
}

/// A credential record (WebAuthn L3 §4): all that has to be stored of a passkey. None of it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Credential {
    /// Its ID, unique among all users.
    pub id: Binary,
    /// The user whose it is.
    pub user: UserHandle,
    /// The public key as COSE has it.
    pub public_key: Binary,
    /// The counter as it was last; 0 where the authenticator has none.
    pub sign_count: u32,
    /// BE: whether it can be copied to other devices. It never changes.
    pub backup_eligible: bool,
    /// BS: whether there was a copy when it was used last.
    pub backed_up: bool,
    /// Whether the authenticator verified the user when it was registered (`uvInitialized`). A later verification does not
    /// set it: WebAuthn L3 §7.2 wants another factor for that, so the passkey is registered again instead.
    pub user_verified: bool,
    /// How the browser reaches the authenticator (`usb`, `nfc`, `internal`, …), to be given back to it as hints.
    pub transports: Vec<String>,
    /// The model of the authenticator; zeros where it does not say. Proven only where [`Credential::attestation`] is trusted.
    pub aaguid: Uuid,
    /// What is known about the model, and how.
    pub attestation: Attestation,
    /// Whether it can be used without a user name, where the browser said so.
    pub discoverable: Option<bool>,
    /// When it was registered.
    #[serde(with = "time::serde::rfc3339")]
    pub created: OffsetDateTime,
    /// When it was used last; none where it never was.
    #[serde(with = "time::serde::rfc3339::option")]
    pub last_used: Option<OffsetDateTime>,
    /// The name by which its user knows it.
    pub nickname: String,
}

impl Credential {
    /// The way in which it signs.
    ///
    /// # Errors
    /// [`WebAuthnError::BadRecord`] when the stored key cannot be read.
    pub fn algorithm(&self) -> Result<Algorithm, WebAuthnError> {
        Ok(self.key()?.algorithm)
    }

    pub(crate) fn key(&self) -> Result<CredentialKey, WebAuthnError> {
        CredentialKey::parse(self.public_key.as_slice())
            .map_err(|error| WebAuthnError::BadRecord { id: self.id.to_text(), reason: error.to_string() })
    }
}
