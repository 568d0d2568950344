//! The bytes of a private key, in the one form that every provider takes.

use std::fmt;

use zeroize::Zeroizing;

use crate::KeyAlgorithm;

/// A key pair as bytes, wiped when it goes.
///
/// The secret is the 32-byte seed of Ed25519 (RFC 8032 §5.1.5), the big-endian scalar of a NIST curve at full length,
/// `RSAPrivateKey` in DER (RFC 8017 appendix A.1.2), or the 32-byte seed ξ of ML-DSA (FIPS 204 §5.1). The public half
/// is what a SubjectPublicKeyInfo holds.
#[derive(Clone)]
pub struct PrivateKeyMaterial {
    algorithm: KeyAlgorithm,
    secret: Zeroizing<Vec<u8>>,
    public: Vec<u8>,
}

impl PrivateKeyMaterial {
    /// Puts the halves together. Whether they belong together is for a provider to find out.
    #[must_use]
    pub fn new(algorithm: KeyAlgorithm, secret: Zeroizing<Vec<u8>>, public: Vec<u8>) -> Self {
        Self { algorithm, secret, public }
    }

    /// The key's type.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// The secret half.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }
}

impl fmt::Debug for PrivateKeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKeyMaterial").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
