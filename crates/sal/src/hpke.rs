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
        let refused = SalError::BadPrivateKey { reason: "an X25519 private key has 32 bytes".to_owned() };
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
        return Err(SalError::BadPublicKey { reason: "an X25519 public key has 32 bytes".to_owned() });
    }
    let (encapsulated, ciphertext) = SUITE
        .seal(info, aad, plaintext, &HpkePublicKey(recipient_public.to_vec()))
        .map_err(|_| SalError::BadPublicKey { reason: "the X25519 public key has low order".to_owned() })?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_128;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap()
    }

    const INFO: &str = "4f6465206f6e2061204772656369616e2055726e";
    const AAD: &str = "436f756e742d30";
    const PLAINTEXT: &str = "4265617574792069732074727574682c20747275746820626561757479";

    /// The inputs of RFC 9180 §A.1.1 under our AEAD, which appendix A does not print for this KEM. The ciphertext was
    /// computed by a separate implementation of §4.1 and §5.1 in Python, which gives that of §A.1.1 for AES-128-GCM.
    #[test]
    fn opens_a_vector_computed_elsewhere() {
        let key = RecipientKey::from_bytes(&hex(
            "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        ))
        .unwrap();
        assert_eq!(
            key.public().to_vec(),
            hex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
        );
        let sealed = hex(concat!(
            "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
            "090b7dc225419f7da9e8b460becfbb96a26c7964d79b8010d397fa838530a32a",
            "397b14f5776db19ff5e57734e0"
        ));
        assert_eq!(key.open(&hex(INFO), &hex(AAD), &sealed).unwrap().as_slice(), hex(PLAINTEXT));
    }

    /// RFC 9180 §A.1.1, the base mode with the same KEM and KDF that the appendix does print.
    #[test]
    fn the_implementation_opens_the_vector_in_the_appendix() {
        let opened = DH_KEM_X25519_HKDF_SHA256_AES_128
            .open(
                &EncapsulatedSecret(hex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431")),
                &hex(INFO),
                &hex(AAD),
                &hex(concat!(
                    "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9",
                    "6d8770ac83d07bea87e13c512a"
                )),
                &HpkePrivateKey::from(hex(
                    "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
                )),
            )
            .unwrap();
        assert_eq!(opened, hex(PLAINTEXT));
    }

    #[test]
    fn what_is_sealed_opens_only_whole_by_its_recipient_and_in_its_context() {
        let key = RecipientKey::generate().unwrap();
        let sealed = seal(&key.public(), b"info", b"aad", b"secret").unwrap();
        assert_eq!(sealed.len(), b"secret".len() + SEAL_OVERHEAD_BYTES);
        let again = RecipientKey::from_bytes(&key.to_bytes()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(open(&again, b"info", b"aad", &sealed).unwrap().as_slice(), b"secret");
        assert!(key.open(b"Info", b"aad", &sealed).is_err());
        assert!(key.open(b"info", b"aaD", &sealed).is_err());
        assert!(RecipientKey::generate().unwrap().open(b"info", b"aad", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 0x01;
            assert!(key.open(b"info", b"aad", &damaged).is_err(), "byte {at}");
            assert!(key.open(b"info", b"aad", &sealed[..at]).is_err(), "cut at {at}");
        }
        assert_ne!(sealed, seal(&key.public(), b"info", b"aad", b"secret").unwrap());
    }

    #[test]
    fn bad_keys_are_refused_and_private_ones_do_not_show() {
        assert!(seal(&[1; 31], b"", b"", b"").is_err());
        assert!(seal(&[0; 32], b"", b"", b"").is_err(), "a point of low order");
        assert!(RecipientKey::from_bytes(&[1; 31]).is_err());
        let key = RecipientKey::generate().unwrap();
        assert!(!format!("{key:?}").contains(&data_encoding::HEXLOWER.encode(&key.to_bytes())));
    }
}
