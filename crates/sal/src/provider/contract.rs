//! What a provider is: what it offers, what it refuses, and the keys and contexts that it makes.

use std::fmt;
use std::num::NonZeroU32;

use zeroize::Zeroizing;

use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, SignatureScheme};
use crate::cpu::CpuFeature;
use crate::{Primitive, PrivateKeyMaterial};

/// The most providers that a selection can hold.
pub const MAX: usize = 16;

/// A module that keeps to FIPS 140-3. The check of its own integrity passed before anything of it could be called, and the self-test
/// of an algorithm passes before its first use ([`Provider::prove_module`] runs them all): the module ends the process otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Module {
    /// What its publisher calls it.
    pub name: &'static str,
    /// As the module that is linked says it itself.
    pub version: &'static str,
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// Whether a provider has a primitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It has.
    Yes,
    /// It has, but its own documentation warns of it, with this reason. It is measured and cross-checked, and never
    /// chosen.
    Unsafe(&'static str),
    /// It has not.
    No,
}

/// Why a provider did not do what was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not have the operation, although it may have offered it: a mistake in the provider's file.
    #[error("the operation is not there")]
    Unsupported,
    /// It refuses the input: a malformed key, a wrong signature, a point that is not on the curve.
    #[error("{0}")]
    Refused(&'static str),
    /// It failed where it had no reason to.
    #[error("it failed to {0}")]
    Broken(&'static str),
}

// What the providers say of inputs that they refuse, in the same words.
pub(super) const BAD_KEY: Fault = Fault::Refused("the private key is malformed");
pub(super) const BAD_PUBLIC: Fault = Fault::Refused("the public key is malformed");
pub(super) const BAD_SIGNATURE: Fault = Fault::Refused("the signature is not valid for this key and message");
pub(super) const BAD_SHARE: Fault = Fault::Refused("the key share is malformed or of low order");
pub(super) const ALTERED: Fault = Fault::Refused("the message or its tag is not as it was");

/// Fills `out` as far as `from` goes.
pub(super) fn copy(out: &mut [u8], from: &[u8]) {
    for (to, from) in out.iter_mut().zip(from) {
        *to = *from;
    }
}

/// A private key, ready to sign.
pub trait PrivateKey: Send + Sync {
    /// Signs a message. ECDSA gives DER.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] for a scheme that does not fit the key, [`Fault::Broken`] when it fails.
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault>;
}

/// One side of an agreement, with its fresh share.
pub trait Agreement: Send + Sync {
    /// The share for the other side: 32 bytes of X25519, or an uncompressed point.
    fn share(&self) -> &[u8];

    /// The secret that follows from the other side's share: the x coordinate, with leading zeros.
    ///
    /// # Errors
    /// [`Fault::Refused`] for a share of another length, that is not on the curve, or that gives the zero secret.
    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault>;
}

/// The side of ML-KEM-768 that made the key.
pub trait Decapsulation: Send + Sync {
    /// The encapsulation key for the other side: 1184 bytes.
    fn public(&self) -> &[u8];

    /// The secret in a ciphertext. A ciphertext that was tampered with gives another secret, not an error (FIPS 203
    /// §6.3).
    ///
    /// # Errors
    /// [`Fault::Refused`] for a ciphertext of another length.
    fn finish(self: Box<Self>, ciphertext: &[u8]) -> Result<Secret, Fault>;
}

/// A key for authenticated encryption.
pub trait AeadKey: Send + Sync {
    /// Encrypts in place and gives the tag.
    ///
    /// # Errors
    /// [`Fault::Broken`] when the message is longer than the algorithm allows.
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault>;

    /// Decrypts in place, after checking the tag.
    ///
    /// # Errors
    /// [`Fault::Refused`] when anything is not as it was; the message must not be used then.
    fn open(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8], tag: &[u8; 16]) -> Result<(), Fault>;
}

/// A hash under way.
pub trait HashContext: Send + Sync {
    /// Adds bytes.
    fn update(&mut self, data: &[u8]);
    /// A copy that goes its own way.
    fn fork(&self) -> Box<dyn HashContext>;
    /// Writes the digest, which fills `out` as far as it goes.
    fn finish(self: Box<Self>, out: &mut [u8]);
}

/// A key for HMAC.
pub trait HmacKey: Send + Sync {
    /// The tag over the parts, one after the other; it fills `out` as far as it goes.
    fn sign(&self, parts: &[&[u8]], out: &mut [u8]);
}

/// A shared secret of at most 48 bytes, wiped when it goes.
#[derive(Clone)]
pub struct Secret {
    bytes: Zeroizing<[u8; 48]>,
    length: usize,
}

impl Secret {
    /// Takes up to 48 bytes; what is beyond is cut off.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut secret = Self { bytes: Zeroizing::new([0; 48]), length: bytes.len().min(48) };
        for (to, from) in secret.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        secret
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A source of primitives.
///
/// Every method but the first few refuses with [`Fault::Unsupported`] unless a provider has it, so that each writes
/// only what it offers. Methods are called with inputs of the right length only where the layer knows it; a public key,
/// a share or a signature is as the peer sent it.
pub trait Provider: Send + Sync + fmt::Debug {
    /// The name in configuration files and reports.
    fn name(&self) -> &'static str;

    /// The name and version of the library, for people.
    fn credit(&self) -> &'static str;

    /// What the CPU must have for the library to work at all.
    fn needs(&self) -> &'static [CpuFeature] {
        &[]
    }

    /// Whether what it offers runs in a module that keeps to FIPS 140-3.
    fn is_fips(&self) -> bool {
        self.module().is_some()
    }

    /// That module, where the library is one.
    fn module(&self) -> Option<Module> {
        None
    }

    /// Runs every self-test of that module anew. Blocks.
    ///
    /// # Errors
    /// [`Fault::Broken`] when one fails and the module lets the process go on.
    fn prove_module(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether its first random number in a process takes tens of milliseconds.
    fn starts_slowly(&self) -> bool {
        false
    }

    /// Whether it has a primitive.
    fn offer(&self, primitive: Primitive) -> Offer;

    /// Makes a key pair.
    ///
    /// # Errors
    /// [`Fault::Broken`] when it cannot.
    fn generate_key(&self, _algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        Err(Fault::Unsupported)
    }

    /// The public half that belongs to a secret half, in the forms of [`PrivateKeyMaterial`].
    ///
    /// # Errors
    /// [`Fault::Refused`] when the secret half is malformed or out of range.
    fn derive_public(&self, _algorithm: KeyAlgorithm, _secret: &[u8]) -> Result<Vec<u8>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Prepares a private key for signing.
    ///
    /// # Errors
    /// [`Fault::Refused`] when the halves do not belong together or are out of range.
    fn load_key(&self, _key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Checks that a public key is one: a point on its curve.
    ///
    /// # Errors
    /// [`Fault::Refused`] when it is not.
    fn check_public(&self, _algorithm: KeyAlgorithm, _public: &[u8]) -> Result<(), Fault> {
        Err(Fault::Unsupported)
    }

    /// Checks a signature. The public key is what a SubjectPublicKeyInfo holds: 32 bytes of Ed25519, an uncompressed
    /// point, `RSAPublicKey` in DER, or the bytes of ML-DSA.
    ///
    /// # Errors
    /// [`Fault::Refused`] when the key or the signature is malformed, or does not belong to the message.
    fn verify(
        &self,
        _algorithm: KeyAlgorithm,
        _scheme: SignatureScheme,
        _public: &[u8],
        _message: &[u8],
        _signature: &[u8],
    ) -> Result<(), Fault> {
        Err(Fault::Unsupported)
    }

    /// Starts an agreement with a fresh share.
    ///
    /// # Errors
    /// [`Fault::Broken`] when there is no randomness.
    fn start_agreement(&self, _group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Starts an agreement from a private scalar, for known answers. Some libraries have only fresh ones.
    ///
    /// # Errors
    /// [`Fault::Refused`] for a scalar that is out of range.
    fn load_agreement(&self, _group: DhGroup, _private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Makes a key for ML-KEM-768.
    ///
    /// # Errors
    /// [`Fault::Broken`] when there is no randomness.
    fn start_decapsulation(&self) -> Result<Box<dyn Decapsulation>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Loads a decapsulation key of ML-KEM-768, for known answers: libraries take the seed `d || z` (64 bytes), the
    /// expanded key (FIPS 203 §7.1, 2400 bytes), or either. They must belong together where both are given.
    ///
    /// # Errors
    /// [`Fault::Refused`] for a key that fails the checks of FIPS 203 §7.3, [`Fault::Unsupported`] when the form that
    /// the library takes is not given.
    fn load_decapsulation(
        &self,
        _seed: Option<&[u8; 64]>,
        _expanded: Option<&[u8]>,
    ) -> Result<Box<dyn Decapsulation>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Draws a secret and encapsulates it: the ciphertext (1088 bytes) and the secret (32 bytes).
    ///
    /// # Errors
    /// [`Fault::Refused`] for a key of another length or with coefficients out of range (FIPS 203 §7.2).
    fn encapsulate(&self, _public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
        Err(Fault::Unsupported)
    }

    /// Prepares a key for authenticated encryption.
    ///
    /// # Errors
    /// [`Fault::Refused`] for a key of another length.
    fn aead(&self, _algorithm: AeadAlgorithm, _key: &[u8]) -> Result<Box<dyn AeadKey>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Hashes bytes that are all at hand, one part after the other, into `out`, which has the digest's length.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] alone.
    fn hash(&self, _algorithm: HashAlgorithm, _parts: &[&[u8]], _out: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::Unsupported)
    }

    /// Starts a hash.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] alone.
    fn start_hash(&self, _algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Fault> {
        Err(Fault::Unsupported)
    }

    /// Prepares a key for HMAC, of any length.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] alone.
    fn hmac(&self, _algorithm: HashAlgorithm, _key: &[u8]) -> Result<Box<dyn HmacKey>, Fault> {
        Err(Fault::Unsupported)
    }

    /// PBKDF2 with HMAC-SHA-512 (RFC 8018 §5.2, SP 800-132): one block of 64 bytes. Libraries without it do it by their HMAC.
    ///
    /// # Errors
    /// As [`Provider::hmac`].
    fn pbkdf2_sha512(
        &self,
        iterations: NonZeroU32,
        salt: &[u8],
        password: &[u8],
        out: &mut [u8; 64],
    ) -> Result<(), Fault> {
        let key = self.hmac(HashAlgorithm::Sha512, password)?;
        let mut last = Zeroizing::new([0; 64]);
        key.sign(&[salt, &1_u32.to_be_bytes()], last.as_mut());
        out.copy_from_slice(last.as_slice());
        for _ in 1..iterations.get() {
            let mut next = Zeroizing::new([0; 64]);
            key.sign(&[last.as_slice()], next.as_mut());
            for (to, from) in out.iter_mut().zip(next.iter()) {
                *to ^= *from;
            }
            last = next;
        }
        Ok(())
    }

    /// Fills a buffer with random bytes.
    ///
    /// # Errors
    /// [`Fault::Broken`] when the system has none to give.
    fn random(&self, _out: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::Unsupported)
    }

    /// The library's own cipher suite for rustls, where rustls has one: its parts are used in place of adapters.
    fn tls13_suite(&self, _algorithm: AeadAlgorithm) -> Option<&'static rustls::Tls13CipherSuite> {
        None
    }
}
