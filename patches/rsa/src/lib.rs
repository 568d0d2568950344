//! The part of the `rsa` crate's interface that ssh-key and russh use, without cryptography.
//!
//! Those two know RSA only through that crate, whose private-key operations are not to be trusted with a key that
//! strangers on the network can have used at will (RUSTSEC-2023-0071), and which a FIPS build may not use at all. Here,
//! every signature and every verification is handed to the [`Backend`] that the program registered; without one nothing is
//! signed and nothing verifies.
//!
//! Private keys do not pass through: the backend finds the private half by the public one, wherever it lives. Reading,
//! writing and making RSA keys is refused, because Sallyport does that elsewhere.

pub mod errors;
pub mod pkcs1v15;
pub mod traits;

mod key;

use std::sync::OnceLock;

pub use crypto_bigint::BoxedUint;
pub use errors::{Error, Result};
pub use key::{RsaPrivateKey, RsaPublicKey};
pub use pkcs8;

/// A hash that PKCS#1 v1.5 signatures of SSH are made with (RFC 8332 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// `rsa-sha2-256`.
    Sha256,
    /// `rsa-sha2-512`.
    Sha512,
}

/// Who signs and verifies.
pub trait Backend: Send + Sync {
    /// A PKCS#1 v1.5 signature by the private key that belongs to this public key.
    ///
    /// # Errors
    /// [`Error::Refused`] when the key is not known, or does not sign.
    fn sign(&self, key: &RsaPublicKey, hash: Hash, message: &[u8]) -> Result<Vec<u8>>;

    /// Checks a PKCS#1 v1.5 signature.
    ///
    /// # Errors
    /// [`Error::Refused`] when the key made no such signature.
    fn verify(&self, key: &RsaPublicKey, hash: Hash, message: &[u8], signature: &[u8]) -> Result<()>;
}

static BACKEND: OnceLock<Box<dyn Backend>> = OnceLock::new();

/// Registers who signs and verifies, for the rest of the process. Only the first call counts.
pub fn register(backend: impl Backend + 'static) {
    let _ = BACKEND.set(Box::new(backend));
}

fn backend() -> Result<&'static dyn Backend> {
    BACKEND.get().map(|backend| &**backend).ok_or(Error::NoBackend)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signature::{Signer, Verifier};

    use super::*;

    /// Signs with what it was told to sign.
    struct Echo;

    impl Backend for Echo {
        fn sign(&self, key: &RsaPublicKey, hash: Hash, message: &[u8]) -> Result<Vec<u8>> {
            Ok([key.n_bytes(), format!("{hash:?}").into_bytes(), message.to_vec()].concat())
        }

        fn verify(&self, key: &RsaPublicKey, hash: Hash, message: &[u8], signature: &[u8]) -> Result<()> {
            if self.sign(key, hash, message)? == signature { Ok(()) } else { Err(Error::Refused) }
        }
    }

    struct Sha2<const BITS: usize>;

    impl const_oid::AssociatedOid for Sha2<256> {
        const OID: const_oid::ObjectIdentifier =
            const_oid::ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
    }

    impl const_oid::AssociatedOid for Sha2<384> {
        const OID: const_oid::ObjectIdentifier =
            const_oid::ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
    }

    impl const_oid::AssociatedOid for Sha2<512> {
        const OID: const_oid::ObjectIdentifier =
            const_oid::ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");
    }

    #[test]
    fn everything_is_handed_to_the_backend() {
        let number = |bytes: &[u8]| BoxedUint::from_be_slice_vartime(bytes);
        let (n, e) = (number(&[0, 0xaa, 0xbb]), number(&[1, 0, 1]));
        let public = RsaPublicKey::new(n.clone(), e.clone()).unwrap();
        let key = RsaPrivateKey::from_components(n, e, number(&[7]), vec![]).unwrap();
        let short = pkcs1v15::SigningKey::<Sha2<256>>::new(key.clone());
        assert_eq!(short.try_sign(b"m").unwrap_err().to_string(), signature::Error::new().to_string());

        register(Echo);
        let signature = short.try_sign(b"m").unwrap();
        assert_eq!(&*Box::<[u8]>::from(signature.clone()), b"\xaa\xbbSha256m");
        let verifying = pkcs1v15::VerifyingKey::<Sha2<256>>::new(public.clone());
        verifying.verify(b"m", &signature).unwrap();
        assert!(verifying.verify(b"n", &signature).is_err());
        let other = pkcs1v15::VerifyingKey::<Sha2<512>>::new(public);
        assert!(other.verify(b"m", &signature).is_err());
        let long = pkcs1v15::SigningKey::<Sha2<512>>::new(key.clone()).try_sign(b"m").unwrap();
        other.verify(b"m", &long).unwrap();
        // A hash that SSH does not have.
        assert!(pkcs1v15::SigningKey::<Sha2<384>>::new(key).try_sign(b"m").is_err());
    }
}
