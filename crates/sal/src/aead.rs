//! AES-256-GCM (NIST SP 800-38D).
//!
//! Nonces are the danger of GCM: one nonce used twice with one key gives the key stream and the authentication key
//! away. There are two safe ways here. [`Aes256GcmKey::seal`] draws a random nonce and stores it in front; keep it
//! to fewer than 2^32 messages per key (SP 800-38D §8.3). [`Aes256GcmKey::seal_numbered`] takes a sequence number for
//! keys that number their messages, such as the key of one recording.

use std::fmt;

use zeroize::Zeroizing;

use crate::algorithm::AeadAlgorithm;
use crate::provider::AeadKey;
use crate::{Primitive, SalError, random, selection};

/// Length of a key, in bytes.
pub const KEY_BYTES: usize = 32;
/// Length of a nonce, in bytes.
pub const NONCE_BYTES: usize = 12;
/// Length of the authentication tag, in bytes.
pub const TAG_BYTES: usize = 16;
/// What [`Aes256GcmKey::seal`] adds to a message, in bytes.
pub const SEAL_OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// A key for AES-256-GCM. Wiped by its provider when it goes.
pub struct Aes256GcmKey(Box<dyn AeadKey>);

impl Aes256GcmKey {
    /// Takes 32 bytes that were drawn or derived for this purpose alone.
    ///
    /// # Errors
    /// [`SalError::Provider`] when the provider refuses the key.
    pub fn new(key: &[u8; KEY_BYTES]) -> Result<Self, SalError> {
        let algorithm = AeadAlgorithm::Aes256Gcm;
        selection::global()
            .run(Primitive::Aead(algorithm), |provider| provider.aead(algorithm, key))
            .map(Self)
            .map_err(|error| error.into_sal(|_| SalError::Provider { operation: "set up AES-256-GCM" }))
    }

    /// A fresh key, and its bytes for storing them sealed.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness.
    pub fn generate() -> Result<(Self, Zeroizing<[u8; KEY_BYTES]>), SalError> {
        let bytes = Zeroizing::new(random::bytes::<KEY_BYTES>()?);
        Ok((Self::new(&bytes)?, bytes))
    }

    /// Encrypts under a random nonce: the result is the nonce, the ciphertext and the tag. `aad` is authenticated and
    /// not stored; opening needs the same.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness, or the message is longer than GCM allows (64 GiB).
    pub fn seal(&self, aad: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, SalError> {
        let nonce = random::bytes::<NONCE_BYTES>()?;
        let mut sealed = Vec::with_capacity(plaintext.len() + SEAL_OVERHEAD_BYTES);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plaintext);
        let failed = |_| SalError::Provider { operation: "encrypt" };
        let body = sealed.get_mut(NONCE_BYTES..).ok_or(SalError::Provider { operation: "encrypt" })?;
        let tag = self.0.seal(&nonce, aad, body).map_err(failed)?;
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// Decrypts what [`Aes256GcmKey::seal`] made.
    ///
    /// # Errors
    /// [`SalError::Undecryptable`] when anything about it, or `aad`, is not as it was.
    pub fn open(&self, aad: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SalError> {
        let failed = || SalError::Undecryptable { what: "a sealed message".to_owned() };
        let (nonce, body) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(failed)?;
        self.open_with(*nonce, aad, body).ok_or_else(failed)
    }

    /// Encrypts message number `sequence`: the result is the ciphertext and the tag. The caller promises never to use
    /// a number twice with this key, not even for the same message after a restart.
    ///
    /// # Errors
    /// [`SalError::Provider`] when the message is longer than GCM allows (64 GiB).
    pub fn seal_numbered(&self, sequence: u64, aad: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, SalError> {
        let mut sealed = Vec::with_capacity(plaintext.len() + TAG_BYTES);
        sealed.extend_from_slice(plaintext);
        let tag = self.seal_numbered_in_place(sequence, aad, &mut sealed)?;
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// The same where the message stands: it becomes the ciphertext, behind which the tag belongs.
    ///
    /// # Errors
    /// As [`Aes256GcmKey::seal_numbered`]; the message is worth nothing then.
    pub fn seal_numbered_in_place(
        &self,
        sequence: u64,
        aad: &[u8],
        message: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SalError> {
        let sealed = self.0.seal(&numbered_nonce(sequence), aad, message);
        sealed.map_err(|_| SalError::Provider { operation: "encrypt" })
    }

    /// Decrypts what [`Aes256GcmKey::seal_numbered`] made.
    ///
    /// # Errors
    /// [`SalError::Undecryptable`] when anything about it, the number or `aad` is not as it was.
    pub fn open_numbered(
        &self,
        sequence: u64,
        aad: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SalError> {
        self.open_with(numbered_nonce(sequence), aad, sealed)
            .ok_or_else(|| SalError::Undecryptable { what: format!("message {sequence}") })
    }

    fn open_with(&self, nonce: [u8; NONCE_BYTES], aad: &[u8], body: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (ciphertext, tag) = body.split_last_chunk::<TAG_BYTES>()?;
        let mut plaintext = Zeroizing::new(ciphertext.to_vec());
        self.0.open(&nonce, aad, &mut plaintext, tag).ok()?;
        Some(plaintext)
    }
}

impl fmt::Debug for Aes256GcmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aes256GcmKey").finish_non_exhaustive()
    }
}

fn numbered_nonce(sequence: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    for (to, from) in nonce.iter_mut().skip(NONCE_BYTES - 8).zip(sequence.to_be_bytes()) {
        *to = from;
    }
    nonce
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_sealed_message_opens_only_whole_and_in_its_context() {
        let (key, bytes) = Aes256GcmKey::generate().unwrap();
        let sealed = key.seal(b"context", b"secret").unwrap();
        assert_eq!(sealed.len(), b"secret".len() + SEAL_OVERHEAD_BYTES);
        assert_eq!(
            Aes256GcmKey::new(&bytes).unwrap().open(b"context", &sealed).unwrap().as_slice(),
            b"secret"
        );
        assert!(key.open(b"Context", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 0x80;
            assert!(key.open(b"context", &damaged).is_err(), "byte {at}");
            assert!(key.open(b"context", &sealed[..at]).is_err(), "cut at {at}");
        }
        assert!(Aes256GcmKey::generate().unwrap().0.open(b"context", &sealed).is_err());
        assert_ne!(sealed, key.seal(b"context", b"secret").unwrap());
    }

    #[test]
    fn numbered_messages_cannot_change_places() {
        let (key, _) = Aes256GcmKey::generate().unwrap();
        let first = key.seal_numbered(1, b"", b"one").unwrap();
        assert_eq!(key.open_numbered(1, b"", &first).unwrap().as_slice(), b"one");
        assert!(key.open_numbered(2, b"", &first).is_err());
        assert!(key.open_numbered(1, b"x", &first).is_err());
        let mut in_place = b"one".to_vec();
        let tag = key.seal_numbered_in_place(1, b"", &mut in_place).unwrap();
        assert_eq!([&in_place[..], &tag].concat(), first);
    }

    /// McGrew and Viega, "The Galois/Counter Mode of Operation", test case 16.
    #[test]
    fn matches_the_published_vector() {
        let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let sealed = hex(concat!(
            "cafebabefacedbaddecaf888",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa",
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b"
        ));
        let plaintext = hex(concat!(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
        ));
        let key = Aes256GcmKey::new(key.as_slice().try_into().unwrap()).unwrap();
        assert_eq!(key.open(&aad, &sealed).unwrap().as_slice(), plaintext);
    }
}
