//! Hybrid public key encryption (RFC 9180): base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.
//!
//! Anyone with the public key can seal; only the holder of the private key can open. Nodes seal the keys of their
//! recordings with it, so that a stolen node gives no recording away.

use std::fmt;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey};
use zeroize::Zeroizing;

use crate::{SalError, aead};

/// Length of a public key, in bytes.
pub const PUBLIC_KEY_BYTES: usize = 32;
/// Length of a private key, in bytes.
pub const PRIVATE_KEY_BYTES: usize = 32;
/// What sealing adds to a message, in bytes: the encapsulated key in front and the tag at the end.
pub const SEAL_OVERHEAD_BYTES: usize = PUBLIC_KEY_BYTES + aead::TAG_BYTES;

/// The private half: opens what was sealed to its public key.
pub struct RecipientKey {
    private: HpkePrivateKey,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl RecipientKey {
    /// Makes a fresh key.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness.
    pub fn generate() -> Result<Self, SalError> {
        let (_, private) =
            SUITE.generate_key_pair().map_err(|_| SalError::Provider { operation: "generate a key pair" })?;
        Self::from_bytes(private.secret_bytes())
    }

    /// Reads the 32 bytes that [`RecipientKey::to_bytes`] gives.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when there are not 32 of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SalError> {
        let refused = SalError::BadPrivateKey { reason: "an X25519 private key has 32 bytes" };
        let Ok(private) = PrivateKey::from_private_key(&X25519, bytes) else {
            return Err(refused);
        };
        let Ok(computed) = private.compute_public_key() else {
            return Err(refused);
        };
        let mut public = [0; PUBLIC_KEY_BYTES];
        public.copy_from_slice(computed.as_ref());
        Ok(Self { private: HpkePrivateKey::from(bytes.to_vec()), public })
    }

    /// The private key, raw.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.private.secret_bytes().to_vec())
    }

    /// The public key, raw, for those who seal.
    #[must_use]
    pub fn public(&self) -> [u8; PUBLIC_KEY_BYTES] {
        self.public
    }

    /// Opens a message that [`seal`] made. `info` and `aad` must be what they were.
    ///
    /// # Errors
    /// [`SalError::Undecryptable`] when anything is not as it was, or it was sealed to another key.
    pub fn open(&self, info: &[u8], aad: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SalError> {
        let failed = || SalError::Undecryptable { what: "a message sealed to a public key".to_owned() };
        let (encapsulated, ciphertext) = sealed.split_first_chunk::<PUBLIC_KEY_BYTES>().ok_or_else(failed)?;
        SUITE
            .open(&EncapsulatedSecret(encapsulated.to_vec()), info, aad, ciphertext, &self.private)
            .map(Zeroizing::new)
            .map_err(|_| failed())
    }
}

impl fmt::Debug for RecipientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecipientKey")
            .field("public", &data_encoding::HEXLOWER.encode(&self.public))
            .finish_non_exhaustive()
    }
}

/// Seals a message to a public key. `info` names what the message is for, `aad` what it belongs to; both are
/// authenticated and neither is stored. The result is the encapsulated key (32 bytes), the ciphertext and the tag.
///
/// # Errors
/// [`SalError::BadPublicKey`] when the key has another length or is a point of low order.
pub fn seal(recipient_public: &[u8], info: &[u8], aad: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, SalError> {
    if recipient_public.len() != PUBLIC_KEY_BYTES {
        return Err(SalError::BadPublicKey { reason: "an X25519 public key has 32 bytes" });
    }
    let (encapsulated, ciphertext) = SUITE
        .seal(info, aad, plaintext, &HpkePublicKey(recipient_public.to_vec()))
        .map_err(|_| SalError::BadPublicKey { reason: "the X25519 public key has low order" })?;
    Ok([encapsulated.0, ciphertext].concat())
}

/// [`RecipientKey::open`] as a function, for symmetry with [`seal`].
///
/// # Errors
/// As [`RecipientKey::open`].
pub fn open(
    recipient: &RecipientKey,
    info: &[u8],
    aad: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, SalError> {
    recipient.open(info, aad, sealed)
}
