//! Signatures by PKCS#1 v1.5 (RFC 8017 §8.2).

use std::marker::PhantomData;

use const_oid::{AssociatedOid, ObjectIdentifier};
use signature::{SignatureEncoding, Signer, Verifier};

use crate::errors::{Error, Result};
use crate::{Hash, RsaPrivateKey, RsaPublicKey, backend};

/// A signature, as long as the modulus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature(Box<[u8]>);

impl TryFrom<&[u8]> for Signature {
    type Error = signature::Error;

    fn try_from(bytes: &[u8]) -> signature::Result<Self> {
        Ok(Self(bytes.into()))
    }
}

impl From<Signature> for Box<[u8]> {
    fn from(signature: Signature) -> Self {
        signature.0
    }
}

impl SignatureEncoding for Signature {
    type Repr = Box<[u8]>;
}

/// Signs with a hash.
#[derive(Debug)]
pub struct SigningKey<D> {
    key: RsaPrivateKey,
    hash: PhantomData<fn() -> D>,
}

impl<D> SigningKey<D> {
    /// With this key.
    #[must_use]
    pub fn new(key: RsaPrivateKey) -> Self {
        Self { key, hash: PhantomData }
    }
}

impl<D: AssociatedOid> Signer<Signature> for SigningKey<D> {
    fn try_sign(&self, message: &[u8]) -> signature::Result<Signature> {
        let signature = backend()?.sign(self.key.public(), hash::<D>()?, message)?;
        Ok(Signature(signature.into()))
    }
}

/// Verifies with a hash.
#[derive(Debug)]
pub struct VerifyingKey<D> {
    key: RsaPublicKey,
    hash: PhantomData<fn() -> D>,
}

impl<D> VerifyingKey<D> {
    /// With this key.
    #[must_use]
    pub fn new(key: RsaPublicKey) -> Self {
        Self { key, hash: PhantomData }
    }
}

impl<D: AssociatedOid> Verifier<Signature> for VerifyingKey<D> {
    fn verify(&self, message: &[u8], signature: &Signature) -> signature::Result<()> {
        Ok(backend()?.verify(&self.key, hash::<D>()?, message, &signature.0)?)
    }
}

fn hash<D: AssociatedOid>() -> Result<Hash> {
    // RFC 8017 appendix B.1.
    const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
    const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");
    match D::OID {
        SHA256 => Ok(Hash::Sha256),
        SHA512 => Ok(Hash::Sha512),
        _ => Err(Error::Refused),
    }
}
