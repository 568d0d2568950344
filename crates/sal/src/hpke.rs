//! Hybrid public key encryption (RFC 9180): base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.
//!
//! Anyone with the public key can seal; only the holder of the private key can open. Nodes seal the keys of their
//! recordings with it, so that a stolen node gives no recording away.

use std::fmt;

use zeroize::Zeroizing;

use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm};
use crate::hash::{Hmac, expand};
use crate::provider::AeadKey;
use crate::selection::{self, RunError};
use crate::{Primitive, SalError, aead, random, strict};

/// Length of a public key, in bytes.
pub const PUBLIC_KEY_BYTES: usize = 32;
/// Length of a private key, in bytes.
pub const PRIVATE_KEY_BYTES: usize = 32;
/// What sealing adds to a message, in bytes: the encapsulated key in front and the tag at the end.
pub const SEAL_OVERHEAD_BYTES: usize = PUBLIC_KEY_BYTES + aead::TAG_BYTES;

/// The private half: opens what was sealed to its public key.
pub struct RecipientKey {
    private: Zeroizing<[u8; PRIVATE_KEY_BYTES]>,
    public: [u8; PUBLIC_KEY_BYTES],
}

/// The cipher of what is sealed.
const AEAD: AeadAlgorithm = AeadAlgorithm::Aes256Gcm;

impl RecipientKey {
    /// Makes a fresh key.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness.
    pub fn generate() -> Result<Self, SalError> {
        Self::from_bytes(Zeroizing::new(random::bytes::<PRIVATE_KEY_BYTES>()?).as_slice())
    }

    /// Reads the 32 bytes that [`RecipientKey::to_bytes`] gives.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when there are not 32 of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SalError> {
        let refused = || SalError::BadPrivateKey { reason: "an X25519 private key has 32 bytes".to_owned() };
        let private: [u8; PRIVATE_KEY_BYTES] = bytes.try_into().map_err(|_| refused())?;
        let share = selection::global().static_share(DhGroup::X25519, &private)?;
        let public = share.try_into().map_err(|_| refused())?;
        Ok(Self { private: Zeroizing::new(private), public })
    }

    /// The private key, raw.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.private.to_vec())
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
        self.open_by(AEAD, info, aad, sealed)
            .ok_or_else(|| SalError::Undecryptable { what: "a message sealed to a public key".to_owned() })
    }

    /// `Decap` (RFC 9180 §4.1) and `ContextR.Open` (§5.2).
    fn open_by(
        &self,
        algorithm: AeadAlgorithm,
        info: &[u8],
        aad: &[u8],
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let (encapsulated, body) = sealed.split_first_chunk::<PUBLIC_KEY_BYTES>()?;
        let (ciphertext, tag) = body.split_last_chunk::<{ aead::TAG_BYTES }>()?;
        let dh = selection::global()
            .static_agreement(DhGroup::X25519, self.private.as_slice(), encapsulated)
            .ok()?;
        let (key, nonce) = schedule(algorithm, dh.as_bytes(), encapsulated, &self.public, info).ok()?;
        let mut plaintext = Zeroizing::new(ciphertext.to_vec());
        key.open(&nonce, aad, &mut plaintext, tag).ok()?;
        Some(plaintext)
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
    let refused = |reason: &str| SalError::BadPublicKey { reason: reason.to_owned() };
    strict::check_share(DhGroup::X25519, recipient_public)
        .map_err(|_| refused("an X25519 public key has 32 bytes"))?;
    let (encapsulated, dh) = selection::global()
        .run(Primitive::Agree(DhGroup::X25519), |provider| {
            let side = provider.start_agreement(DhGroup::X25519)?;
            Ok((side.share().to_vec(), side.finish(recipient_public)?))
        })
        .map_err(|error| error.into_sal(|_| refused("the X25519 public key has low order")))?;
    let (key, nonce) = schedule(AEAD, dh.as_bytes(), &encapsulated, recipient_public, info)?;
    let mut sealed = Vec::with_capacity(plaintext.len() + SEAL_OVERHEAD_BYTES);
    sealed.extend_from_slice(&encapsulated);
    sealed.extend_from_slice(plaintext);
    let failed = SalError::Provider { operation: "encrypt" };
    let Some(body) = sealed.get_mut(PUBLIC_KEY_BYTES..) else { return Err(failed) };
    let tag = key.seal(&nonce, aad, body).map_err(|_| failed)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed)
}

type Schedule = (Box<dyn AeadKey>, [u8; aead::NONCE_BYTES]);

/// `ExtractAndExpand` of the KEM (RFC 9180 §4.1) and `KeySchedule` in base mode (§5.1): key and nonce of the one message.
fn schedule(
    algorithm: AeadAlgorithm,
    dh: &[u8],
    encapsulated: &[u8],
    recipient: &[u8],
    info: &[u8],
) -> Result<Schedule, SalError> {
    // Identifiers of §7.1, §7.2 and §7.3: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and the AEAD.
    let aead: u8 = match algorithm {
        AeadAlgorithm::Aes128Gcm => 1,
        AeadAlgorithm::Aes256Gcm => 2,
        AeadAlgorithm::ChaCha20Poly1305 => 3,
    };
    let kem = Labels(b"KEM\x00\x20".to_vec());
    let suite = Labels([b"HPKE\x00\x20\x00\x01\x00".as_slice(), &[aead]].concat());

    let pseudorandom = kem.extract(b"", "eae_prk", dh)?;
    let mut shared = Zeroizing::new([0; 32]);
    kem.expand(&*pseudorandom, "shared_secret", &[encapsulated, recipient].concat(), shared.as_mut())?;

    let context = [
        &[0],
        suite.extract(b"", "psk_id_hash", b"")?.as_slice(),
        suite.extract(b"", "info_hash", info)?.as_slice(),
    ]
    .concat();
    let secret = suite.extract(shared.as_slice(), "secret", b"")?;
    let mut key = Zeroizing::new(vec![0; algorithm.key_bytes()]);
    suite.expand(&*secret, "key", &context, &mut key)?;
    let mut nonce = [0; aead::NONCE_BYTES];
    suite.expand(&*secret, "base_nonce", &context, &mut nonce)?;
    let key = selection::global()
        .run(Primitive::Aead(algorithm), |provider| provider.aead(algorithm, &key))
        .map_err(|error: RunError| error.into_sal(|_| SalError::Provider { operation: "set up a cipher" }))?;
    Ok((key, nonce))
}

/// `LabeledExtract` and `LabeledExpand` under one suite identifier (RFC 9180 §4).
struct Labels(Vec<u8>);

impl Labels {
    fn extract(&self, salt: &[u8], label: &str, secret: &[u8]) -> Result<Zeroizing<[u8; 32]>, SalError> {
        let mut out = Zeroizing::new([0; 32]);
        let salt = if salt.is_empty() { &[0; 32] } else { salt };
        let parts: [&[u8]; 4] = [b"HPKE-v1", &self.0, label.as_bytes(), secret];
        Hmac::new(HashAlgorithm::Sha256, salt)?.sign(&parts, out.as_mut());
        Ok(out)
    }

    fn expand(&self, pseudorandom: &[u8], label: &str, info: &[u8], out: &mut [u8]) -> Result<(), SalError> {
        let length = u16::try_from(out.len()).unwrap_or(u16::MAX).to_be_bytes();
        let info = [length.as_slice(), b"HPKE-v1", &self.0, label.as_bytes(), info].concat();
        expand(HashAlgorithm::Sha256, pseudorandom, &info, out)
    }
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
    use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as FOREIGN;
    use rustls::crypto::hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey};

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

    /// RFC 9180 §A.1.1, the base mode with the same KEM and KDF that the appendix does print, for AES-128-GCM.
    #[test]
    fn the_key_schedule_opens_the_vector_in_the_appendix() {
        let key = RecipientKey::from_bytes(&hex(
            "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        ))
        .unwrap();
        let sealed = hex(concat!(
            "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
            "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9",
            "6d8770ac83d07bea87e13c512a"
        ));
        let opened = key.open_by(AeadAlgorithm::Aes128Gcm, &hex(INFO), &hex(AAD), &sealed).unwrap();
        assert_eq!(opened.as_slice(), hex(PLAINTEXT));
    }

    #[test]
    fn another_implementation_opens_what_we_seal_and_the_other_way_round() {
        let key = RecipientKey::generate().unwrap();
        let sealed = seal(&key.public(), b"info", b"aad", b"secret").unwrap();
        let (encapsulated, body) = sealed.split_at(PUBLIC_KEY_BYTES);
        let private = HpkePrivateKey::from(key.to_bytes().to_vec());
        let encapsulated = EncapsulatedSecret(encapsulated.to_vec());
        assert_eq!(FOREIGN.open(&encapsulated, b"info", b"aad", body, &private).unwrap(), b"secret");

        let public = HpkePublicKey(key.public().to_vec());
        let (encapsulated, body) = FOREIGN.seal(b"info", b"aad", b"secret", &public).unwrap();
        let sealed = [encapsulated.0, body].concat();
        assert_eq!(key.open(b"info", b"aad", &sealed).unwrap().as_slice(), b"secret");
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
