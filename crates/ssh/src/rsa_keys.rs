//! RSA in SSH, by the abstraction layer.
//!
//! The SSH library has its RSA signatures made and verified by the code registered with `patches/rsa`, which is this
//! module: so they come from the sources of everything else, and a FIPS build keeps to its module. RSA host keys are
//! never given to the library. It gets one that has only the public half, and their [`HostSigner`] signs.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use rsa_in_ssh::{Backend, Error, Hash, RsaPublicKey};
use sallyport_ca::CaError;
use sallyport_ca::keys::{SshKeyPair, ssh_public_key};
use sallyport_sal::algorithm::{KeyKind, SignatureScheme, Standing};
use sallyport_sal::{PublicKey, Signer};
use ssh_key::private::{KeypairData, RsaKeypair, RsaPrivateKey};
use ssh_key::public::KeyData;
use ssh_key::{Mpint, PrivateKey};

/// A host key that signs for the SSH library as long as this lives. Every connection that shows the key holds one: keys
/// are exchanged again in the middle of it.
pub(crate) struct HostSigner {
    public: PublicKey,
    signer: Arc<dyn Signer>,
}

impl fmt::Debug for HostSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSigner").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The keys that sign for the library. There are as many as this process has services with a host key, and some more
/// while old ones are still in use.
static SIGNERS: Mutex<Vec<Weak<HostSigner>>> = Mutex::new(Vec::new());

fn signers() -> MutexGuard<'static, Vec<Weak<HostSigner>>> {
    SIGNERS.lock()
}

/// Registers with the SSH library, once for the process.
pub(crate) fn register() {
    rsa_in_ssh::register(Layer);
}

/// A host key as the SSH library takes it, and for RSA what must be kept for it to sign.
pub(crate) fn host_key(key: &SshKeyPair) -> Result<(PrivateKey, Option<Arc<HostSigner>>), CaError> {
    register();
    let signer = key.signer();
    let public = signer.public_key();
    let KeyData::Rsa(numbers) = ssh_public_key(&public)? else {
        return Ok((key.private_key().clone(), None));
    };
    let failed =
        |error: ssh_key::Error| CaError::Encode { what: "an SSH host key", reason: error.to_string() };
    let none = || Mpint::from_positive_bytes(&[1]);
    let private = RsaPrivateKey::new(none(), none(), none(), none()).map_err(failed)?;
    let pair = RsaKeypair::new(numbers, private).map_err(failed)?;
    let shown = PrivateKey::new(KeypairData::from(pair), "").map_err(failed)?;
    let held = Arc::new(HostSigner { public, signer });
    let mut signers = signers();
    signers.retain(|signer| signer.strong_count() > 0);
    signers.push(Arc::downgrade(&held));
    Ok((shown, Some(held)))
}

/// Answers the SSH library.
struct Layer;

impl Backend for Layer {
    fn sign(&self, key: &RsaPublicKey, hash: Hash, message: &[u8]) -> Result<Vec<u8>, Error> {
        let public = public(key)?;
        let held = signers().iter().filter_map(Weak::upgrade).find(|held| held.public == public);
        let Some(held) = held else {
            tracing::error!(key = ?public, "the SSH library wants a signature by an RSA key that is no host key");
            return Err(Error::Refused);
        };
        held.signer.sign_with(scheme(hash), message).map_err(|error| {
            tracing::error!(%error, "an RSA host key does not sign");
            Error::Refused
        })
    }

    fn verify(&self, key: &RsaPublicKey, hash: Hash, message: &[u8], signature: &[u8]) -> Result<(), Error> {
        public(key)?.verify_with(scheme(hash), message, signature).map_err(|_| Error::Refused)
    }
}

fn scheme(hash: Hash) -> SignatureScheme {
    match hash {
        Hash::Sha256 => SignatureScheme::RsaPkcs1Sha256,
        Hash::Sha512 => SignatureScheme::RsaPkcs1Sha512,
    }
}

/// The key as one of ours: of a size that we accept, with an exponent that we accept.
fn public(key: &RsaPublicKey) -> Result<PublicKey, Error> {
    let public = PublicKey::from_rsa_numbers(&key.n_bytes(), &key.e_bytes()).map_err(|_| Error::Refused)?;
    let algorithm = public.algorithm();
    if algorithm.kind() == KeyKind::Rsa && algorithm.standing() != Standing::LabOnly {
        Ok(public)
    } else {
        Err(Error::Refused)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use russh::keys::signature::{Signer as _, Verifier as _};
    use sallyport_sal::{KeyAlgorithm, MemoryKey};
    use ssh_key::HashAlg;

    use super::*;

    fn pair(algorithm: KeyAlgorithm) -> SshKeyPair {
        SshKeyPair::from_key(MemoryKey::generate(algorithm).unwrap(), "host").unwrap()
    }

    /// As russh does it.
    fn sign(key: &PrivateKey, hash: Option<HashAlg>, message: &[u8]) -> Option<ssh_key::Signature> {
        (key.key_data().rsa().unwrap(), hash).try_sign(message).ok()
    }

    #[test]
    fn host_keys_sign_while_somebody_shows_them() {
        register();
        let (real, other) = (pair(KeyAlgorithm::Rsa2048), pair(KeyAlgorithm::Rsa2048));
        let (key, held) = host_key(&real).unwrap();
        assert_eq!(key.public_key().key_data(), real.private_key().public_key().key_data());
        for hash in [HashAlg::Sha512, HashAlg::Sha256] {
            let signature = sign(&key, Some(hash), b"message").unwrap();
            key.public_key().key_data().verify(b"message", &signature).unwrap();
            assert!(key.public_key().key_data().verify(b"messagE", &signature).is_err());
            let theirs = other.private_key().public_key();
            assert!(theirs.key_data().verify(b"message", &signature).is_err());
        }
        // SHA-1.
        assert!(sign(&key, None, b"message").is_none());
        // A key that is in memory, and that was not said to be a host key.
        assert!(sign(other.private_key(), Some(HashAlg::Sha512), b"message").is_none());
        drop(held);
        assert!(sign(&key, Some(HashAlg::Sha512), b"message").is_none());
    }

    #[test]
    fn other_keys_go_to_the_library_as_they_are() {
        for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384] {
            let key = pair(algorithm);
            let (shown, held) = host_key(&key).unwrap();
            assert!(held.is_none() && shown == *key.private_key(), "{algorithm}");
        }
    }

    #[test]
    fn short_keys_verify_nothing() {
        let numbers = |bytes: usize| {
            let mut modulus = vec![0x55; bytes];
            modulus[0] = 0x80;
            RsaPublicKey::new(
                rsa_in_ssh::BoxedUint::from_be_slice_vartime(&modulus),
                rsa_in_ssh::BoxedUint::from_be_slice_vartime(&[1, 0, 1]),
            )
            .unwrap()
        };
        assert!(public(&numbers(128)).is_err());
        assert!(public(&numbers(255)).is_err());
        assert!(public(&numbers(256)).is_ok());
    }
}
