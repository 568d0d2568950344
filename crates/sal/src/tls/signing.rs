//! Signatures of the handshake, by keys wherever they live.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::KeyProvider;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer as TlsSigner, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme as TlsScheme};

use crate::algorithm::{KeyKind, SignatureScheme};
use crate::selection::Selection;
use crate::{KeyAlgorithm, MemoryKey, Signer, formats};

/// A key of any custody as rustls takes it.
#[must_use]
pub fn signing_key(signer: Arc<dyn Signer>) -> Arc<dyn SigningKey> {
    Arc::new(Key { signer })
}

/// Loads private keys for configurations.
pub(super) struct Keys {
    pub(super) selection: &'static Selection,
    pub(super) fips: bool,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl KeyProvider for Keys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        let material = formats::read_der(&key).map_err(|error| Error::General(error.to_string()))?;
        let key = MemoryKey::from_proven(self.selection, material)
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(signing_key(Arc::new(key)))
    }

    fn fips(&self) -> bool {
        self.fips
    }
}

struct Key {
    signer: Arc<dyn Signer>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("algorithm", &self.signer.algorithm()).finish_non_exhaustive()
    }
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[TlsScheme]) -> Option<Box<dyn TlsSigner>> {
        let scheme = preference(self.signer.algorithm())
            .iter()
            .copied()
            .find(|scheme| offered.contains(&TlsScheme::from(scheme.iana_code())))?;
        Some(Box::new(Handshake { signer: Arc::clone(&self.signer), scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.signer.public_key().spki_der()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.signer.algorithm().kind() {
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
            KeyKind::Ecdsa => SignatureAlgorithm::ECDSA,
            KeyKind::Rsa => SignatureAlgorithm::RSA,
            // TLS 1.3 does not ask; the number is that of the signature scheme's second byte.
            KeyKind::MlDsa => SignatureAlgorithm::Unknown(
                self.signer.algorithm().default_scheme().iana_code().to_be_bytes()[1],
            ),
        }
    }
}

/// PSS comes first, which TLS 1.3 demands; PKCS#1 v1.5 is for TLS 1.2 (RFC 8446 §4.2.3).
fn preference(algorithm: KeyAlgorithm) -> &'static [SignatureScheme] {
    if algorithm.kind() == KeyKind::Rsa {
        &[
            SignatureScheme::RsaPssSha256,
            SignatureScheme::RsaPssSha384,
            SignatureScheme::RsaPssSha512,
            SignatureScheme::RsaPkcs1Sha256,
            SignatureScheme::RsaPkcs1Sha384,
            SignatureScheme::RsaPkcs1Sha512,
        ]
    } else {
        algorithm.schemes()
    }
}

struct Handshake {
    signer: Arc<dyn Signer>,
    scheme: SignatureScheme,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl TlsSigner for Handshake {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.signer.sign_with(self.scheme, message).map_err(|error| Error::General(error.to_string()))
    }

    fn scheme(&self) -> TlsScheme {
        TlsScheme::from(self.scheme.iana_code())
    }
}
