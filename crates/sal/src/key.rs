//! Keys that sign and keys that verify.

use std::fmt;

use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    ParsedPublicKey,
};
use zeroize::Zeroizing;

use crate::{KeyAlgorithm, SalError, SignError, hash};

/// DER of an Ed25519 SubjectPublicKeyInfo up to the 32 bytes of the key (RFC 8410 §4).
const ED25519_SPKI_PREFIX: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// DER of a P-256 SubjectPublicKeyInfo up to the 65 bytes of the uncompressed point (RFC 5480 §2).
const P256_SPKI_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const ED25519_KEY_BYTES: usize = 32;
const P256_POINT_BYTES: usize = 65;

/// Signs, wherever its private key lives.
pub trait Signer: Send + Sync + fmt::Debug {
    /// The algorithm of the key.
    fn algorithm(&self) -> KeyAlgorithm;

    /// The public half.
    fn public_key(&self) -> PublicKey;

    /// Signs a message. Ed25519 gives the 64 bytes of RFC 8032; ECDSA gives the DER of RFC 3279 §2.2.3 over the
    /// SHA-256 of the message.
    ///
    /// # Errors
    /// [`SignError`] when the provider fails, which for a key in memory only happens without randomness.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError>;
}

/// A public key of an algorithm we use, checked when it was made and ready to verify.
#[derive(Clone)]
pub struct PublicKey {
    algorithm: KeyAlgorithm,
    raw: Vec<u8>,
    parsed: ParsedPublicKey,
}

impl PublicKey {
    /// Reads the DER of a SubjectPublicKeyInfo. Only the canonical encoding of an Ed25519 or P-256 key is accepted.
    ///
    /// # Errors
    /// [`SalError::BadPublicKey`] for anything else, and for points that are not on the curve.
    pub fn from_spki_der(der: &[u8]) -> Result<Self, SalError> {
        if let Some(raw) = der.strip_prefix(ED25519_SPKI_PREFIX) {
            Self::from_raw(KeyAlgorithm::Ed25519, raw)
        } else if let Some(raw) = der.strip_prefix(P256_SPKI_PREFIX) {
            Self::from_raw(KeyAlgorithm::EcdsaP256, raw)
        } else {
            Err(SalError::BadPublicKey {
                reason: "the SubjectPublicKeyInfo has another algorithm or is not DER",
            })
        }
    }

    /// Reads the bare key: the 32 bytes of Ed25519, or the uncompressed point of P-256 (SEC 1 §2.3.3).
    ///
    /// # Errors
    /// [`SalError::BadPublicKey`] when the length is wrong or the point is not on the curve.
    pub fn from_raw(algorithm: KeyAlgorithm, raw: &[u8]) -> Result<Self, SalError> {
        let parsed = match algorithm {
            KeyAlgorithm::Ed25519 => {
                if raw.len() != ED25519_KEY_BYTES {
                    return Err(SalError::BadPublicKey { reason: "an Ed25519 key has 32 bytes" });
                }
                ParsedPublicKey::new(&ED25519, raw)
            }
            KeyAlgorithm::EcdsaP256 => {
                if raw.len() != P256_POINT_BYTES || raw.first() != Some(&0x04) {
                    return Err(SalError::BadPublicKey {
                        reason: "a P-256 key is an uncompressed point of 65 bytes",
                    });
                }
                ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, raw)
            }
        }
        .map_err(|_| SalError::BadPublicKey { reason: "the point is not on the curve" })?;
        Ok(Self { algorithm, raw: raw.to_vec(), parsed })
    }

    /// The algorithm of the key.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// The bare key: 32 bytes of Ed25519, or the uncompressed point of P-256.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The DER of its SubjectPublicKeyInfo.
    #[must_use]
    pub fn spki_der(&self) -> Vec<u8> {
        let prefix = match self.algorithm {
            KeyAlgorithm::Ed25519 => ED25519_SPKI_PREFIX,
            KeyAlgorithm::EcdsaP256 => P256_SPKI_PREFIX,
        };
        [prefix, &self.raw].concat()
    }

    /// The SHA-256 of its SubjectPublicKeyInfo: what pins are made of.
    #[must_use]
    pub fn spki_sha256(&self) -> [u8; 32] {
        hash::sha256(&self.spki_der())
    }

    /// Checks a signature in the form that [`Signer::sign`] gives.
    ///
    /// # Errors
    /// [`SalError::BadSignature`] when it was not made by this key over this message, or is malformed.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SalError> {
        self.parsed
            .verify_sig(message, signature)
            .map_err(|_| SalError::BadSignature { algorithm: self.algorithm })
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey")
            .field("algorithm", &self.algorithm)
            .field("spki_sha256", &data_encoding::HEXLOWER.encode(&self.spki_sha256()))
            .finish()
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.raw == other.raw
    }
}

impl Eq for PublicKey {}

/// A private key in this process's memory. Its provider wipes it when it goes.
pub struct MemoryKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    EcdsaP256(EcdsaKeyPair),
}

impl MemoryKey {
    /// Makes a fresh key.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness.
    pub fn generate(algorithm: KeyAlgorithm) -> Result<Self, SalError> {
        let failed = |_| SalError::Provider { operation: "generate a key pair" };
        let pair = match algorithm {
            KeyAlgorithm::Ed25519 => Pair::Ed25519(Ed25519KeyPair::generate().map_err(failed)?),
            KeyAlgorithm::EcdsaP256 => {
                Pair::EcdsaP256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(failed)?)
            }
        };
        Self::from_pair(pair)
    }

    /// Reads a PKCS#8 document (RFC 5958), version 1 or 2.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when it is malformed or holds a key of another algorithm.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, SalError> {
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Self::from_pair(Pair::Ed25519(pair));
        }
        match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der) {
            Ok(pair) => Self::from_pair(Pair::EcdsaP256(pair)),
            Err(_) => Err(SalError::BadPrivateKey {
                reason: "expected PKCS#8 (DER) with an Ed25519 or ECDSA P-256 key",
            }),
        }
    }

    /// Reads PKCS#8 in PEM, as [`MemoryKey::to_pkcs8_pem`] and `openssl genpkey` write it.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when there is no `PRIVATE KEY` block or [`MemoryKey::from_pkcs8`] refuses it.
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, SalError> {
        use rustls::pki_types::PrivatePkcs8KeyDer;
        use rustls::pki_types::pem::PemObject;
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| SalError::BadPrivateKey { reason: "no PEM block `BEGIN PRIVATE KEY` found" })?;
        Self::from_pkcs8(der.secret_pkcs8_der())
    }

    /// The key as PKCS#8 version 1 (RFC 5208), which OpenSSL and Go read too.
    ///
    /// # Errors
    /// [`SalError::Provider`] when the provider cannot encode it.
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, SalError> {
        let document = match &self.pair {
            Pair::Ed25519(pair) => pair.to_pkcs8v1(),
            Pair::EcdsaP256(pair) => pair.to_pkcs8v1(),
        }
        .map_err(|_| SalError::Provider { operation: "encode a private key" })?;
        Ok(Zeroizing::new(document.as_ref().to_vec()))
    }

    /// The key as PKCS#8 in PEM.
    ///
    /// # Errors
    /// As [`MemoryKey::to_pkcs8`].
    pub fn to_pkcs8_pem(&self) -> Result<Zeroizing<String>, SalError> {
        let der = self.to_pkcs8()?;
        let base64 = Zeroizing::new(data_encoding::BASE64.encode(&der));
        let mut pem = Zeroizing::new(String::with_capacity(base64.len() + 96));
        pem.push_str("-----BEGIN PRIVATE KEY-----\n");
        let mut rest = base64.as_str();
        while !rest.is_empty() {
            let (line, tail) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = tail;
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        Ok(pem)
    }

    /// The bare secret: the 32-byte seed of Ed25519 (RFC 8032 §5.1.5) or the 32-byte big-endian scalar of P-256.
    /// It exists for formats that PKCS#8 does not cover, such as OpenSSH's private key file.
    ///
    /// # Errors
    /// [`SalError::Provider`] when the provider cannot give it out.
    pub fn secret_bytes(&self) -> Result<Zeroizing<Vec<u8>>, SalError> {
        let failed = |_| SalError::Provider { operation: "encode a private key" };
        Ok(Zeroizing::new(match &self.pair {
            Pair::Ed25519(pair) => {
                let seed = pair.seed().map_err(failed)?;
                let bytes: aws_lc_rs::encoding::Curve25519SeedBin<'_> = seed.as_be_bytes().map_err(failed)?;
                bytes.as_ref().to_vec()
            }
            Pair::EcdsaP256(pair) => {
                let bytes: EcPrivateKeyBin<'_> = pair.private_key().as_be_bytes().map_err(failed)?;
                bytes.as_ref().to_vec()
            }
        }))
    }

    fn from_pair(pair: Pair) -> Result<Self, SalError> {
        let public = match &pair {
            Pair::Ed25519(pair) => PublicKey::from_raw(KeyAlgorithm::Ed25519, pair.public_key().as_ref())?,
            Pair::EcdsaP256(pair) => {
                PublicKey::from_raw(KeyAlgorithm::EcdsaP256, pair.public_key().as_ref())?
            }
        };
        Ok(Self { pair, public })
    }
}

impl Signer for MemoryKey {
    fn algorithm(&self) -> KeyAlgorithm {
        self.public.algorithm
    }

    fn public_key(&self) -> PublicKey {
        self.public.clone()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let signature = match &self.pair {
            Pair::Ed25519(pair) => pair.try_sign(message),
            Pair::EcdsaP256(pair) => pair.sign(&SystemRandom::new(), message),
        };
        signature
            .map(|bytes| bytes.as_ref().to_vec())
            .map_err(|error| SignError { algorithm: self.public.algorithm, reason: error.to_string() })
    }
}

impl fmt::Debug for MemoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryKey").field("public", &self.public).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const ALGORITHMS: [KeyAlgorithm; 2] = [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256];

    #[test]
    fn what_is_signed_verifies_and_nothing_else_does() {
        for algorithm in ALGORITHMS {
            let key = MemoryKey::generate(algorithm).unwrap();
            let other = MemoryKey::generate(algorithm).unwrap();
            let public = key.public_key();
            let signature = key.sign(b"message").unwrap();
            public.verify(b"message", &signature).unwrap();
            assert!(public.verify(b"messagE", &signature).is_err());
            assert!(other.public_key().verify(b"message", &signature).is_err());
            for at in 0..signature.len() {
                let mut damaged = signature.clone();
                damaged[at] ^= 0x01;
                assert!(public.verify(b"message", &damaged).is_err(), "{algorithm} byte {at}");
            }
            assert!(public.verify(b"message", &signature[1..]).is_err());
        }
    }

    /// RFC 8032 §7.1, test 2.
    #[test]
    fn ed25519_matches_the_published_vector() {
        let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = hex(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        );
        PublicKey::from_raw(KeyAlgorithm::Ed25519, &public).unwrap().verify(&[0x72], &signature).unwrap();
    }

    #[test]
    fn keys_survive_every_encoding() {
        for algorithm in ALGORITHMS {
            let key = MemoryKey::generate(algorithm).unwrap();
            assert_eq!(key.algorithm(), algorithm);
            let spki = key.public_key().spki_der();
            assert_eq!(PublicKey::from_spki_der(&spki).unwrap(), key.public_key());
            let again = MemoryKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
            assert_eq!(again.public_key(), key.public_key());
            let again = MemoryKey::from_pkcs8_pem(&key.to_pkcs8_pem().unwrap()).unwrap();
            assert_eq!(again.public_key(), key.public_key());
            assert_eq!(key.secret_bytes().unwrap().len(), 32);
            for cut in 0..spki.len() {
                assert!(PublicKey::from_spki_der(&spki[..cut]).is_err(), "{algorithm} cut at {cut}");
            }
        }
    }

    #[test]
    fn other_keys_are_refused() {
        assert!(MemoryKey::from_pkcs8(b"").is_err());
        assert!(
            MemoryKey::from_pkcs8_pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
                .is_err()
        );
        // (1, 1) is not on the curve.
        let mut point = vec![0x04; 65];
        point[1..].fill(0);
        point[32] = 1;
        point[64] = 1;
        assert!(PublicKey::from_raw(KeyAlgorithm::EcdsaP256, &point).is_err());
        assert!(PublicKey::from_raw(KeyAlgorithm::Ed25519, &[0; 31]).is_err());
    }

    #[test]
    fn private_keys_do_not_show() {
        let key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let secret = data_encoding::HEXLOWER.encode(&key.secret_bytes().unwrap());
        assert!(!format!("{key:?}").contains(&secret));
    }
}
