//! libsodium, for comparison: Ed25519, X25519 and two ciphers, through the wrapper of its author.
//!
//! The wrapper can neither copy a hash under way nor key HMAC with anything but 32 bytes, so both are left out. It
//! gives ciphertexts in new memory, which costs bulk encryption a copy that the other sources do not make.
//!
//! Ed25519 is as strict as we are: keys and `R` of low order, keys that are not reduced and an `s` that is not reduced
//! are refused. X25519 ignores the highest bit of a share, takes one that is not reduced, and refuses the zero secret.

use libsodium_rs::crypto_aead::{aes256gcm, chacha20poly1305_ietf as chacha};
use libsodium_rs::crypto_scalarmult::curve25519;
use libsodium_rs::crypto_sign as ed25519;
use libsodium_rs::{ensure_init, random};
use zeroize::{Zeroize as _, Zeroizing};

use super::contract::{
    ALTERED, AeadKey, Agreement, BAD_KEY, BAD_PUBLIC, BAD_SHARE, BAD_SIGNATURE, Fault, Offer, PrivateKey,
    Provider, Secret,
};
use crate::algorithm::{AeadAlgorithm, DhGroup, KeyAlgorithm, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial};

/// libsodium.
#[derive(Debug)]
pub struct Sodium;

impl Provider for Sodium {
    fn name(&self) -> &'static str {
        "libsodium"
    }

    fn credit(&self) -> &'static str {
        "libsodium (libsodium-rs 0.3)"
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        match primitive {
            // It has AES by the instructions of the CPU alone, and says so by this call.
            Primitive::Aead(AeadAlgorithm::Aes256Gcm) if !is_ready() || !aes256gcm::is_available() => {
                Offer::No
            }
            Primitive::GenerateKey(KeyAlgorithm::Ed25519)
            | Primitive::Sign(KeyAlgorithm::Ed25519)
            | Primitive::Verify(KeyAlgorithm::Ed25519)
            | Primitive::Agree(DhGroup::X25519)
            | Primitive::Aead(AeadAlgorithm::Aes256Gcm | AeadAlgorithm::ChaCha20Poly1305)
            | Primitive::Random => Offer::Yes,
            _ => Offer::No,
        }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        let mut seed = Zeroizing::new([0; 32]);
        self.random(seed.as_mut_slice())?;
        let public = self.derive_public(algorithm, seed.as_slice())?;
        Ok(PrivateKeyMaterial::new(algorithm, Zeroizing::new(seed.to_vec()), public))
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(load(algorithm, secret)?.public_key.as_bytes().to_vec())
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        let pair = load(key.algorithm(), key.secret())?;
        if pair.public_key.as_bytes() != key.public() {
            return Err(Fault::Refused("the public key does not belong to the private key"));
        }
        Ok(Box::new(pair.into_tuple().1))
    }

    fn verify(
        &self,
        _algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        if scheme != SignatureScheme::Ed25519 {
            return Err(Fault::Unsupported);
        }
        ready()?;
        let public = ed25519::PublicKey::from_bytes(public).map_err(|_| BAD_PUBLIC)?;
        let signature = signature.try_into().map_err(|_| BAD_SIGNATURE)?;
        if ed25519::verify_detached(signature, message, &public) { Ok(()) } else { Err(BAD_SIGNATURE) }
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        let mut private = Zeroizing::new([0; 32]);
        self.random(private.as_mut_slice())?;
        self.load_agreement(group, private.as_slice())
    }

    fn load_agreement(&self, group: DhGroup, private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        if group != DhGroup::X25519 {
            return Err(Fault::Unsupported);
        }
        ready()?;
        let share = curve25519::scalarmult_base(private).map_err(|_| BAD_KEY)?;
        Ok(Box::new(Side { private: Zeroizing::new(private.to_vec()), share }))
    }

    fn aead(&self, algorithm: AeadAlgorithm, key: &[u8]) -> Result<Box<dyn AeadKey>, Fault> {
        const LENGTH: Fault = Fault::Refused("the key has another length");
        ready()?;
        Ok(match algorithm {
            AeadAlgorithm::Aes256Gcm if aes256gcm::is_available() => {
                let key = aes256gcm::Key::from_bytes(key).map_err(|_| LENGTH)?;
                Box::new(Aes(key))
            }
            AeadAlgorithm::ChaCha20Poly1305 => {
                let key = chacha::Key::from_bytes(key).map_err(|_| LENGTH)?;
                Box::new(ChaCha(key))
            }
            _ => return Err(Fault::Unsupported),
        })
    }

    fn random(&self, out: &mut [u8]) -> Result<(), Fault> {
        ready()?;
        random::fill_bytes(out);
        Ok(())
    }
}

/// The library picks its code for this CPU once, and before that takes the slowest. After the first time this costs
/// one look at a flag.
fn is_ready() -> bool {
    ensure_init().is_ok()
}

fn ready() -> Result<(), Fault> {
    if is_ready() { Ok(()) } else { Err(Fault::Broken("start the library")) }
}

fn load(algorithm: KeyAlgorithm, secret: &[u8]) -> Result<ed25519::KeyPair, Fault> {
    if algorithm != KeyAlgorithm::Ed25519 {
        return Err(Fault::Unsupported);
    }
    ready()?;
    ed25519::KeyPair::from_seed(secret).map_err(|_| BAD_KEY)
}

impl PrivateKey for ed25519::SecretKey {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != SignatureScheme::Ed25519 {
            return Err(Fault::Unsupported);
        }
        Ok(ed25519::sign_detached(message, self).map_err(|_| Fault::Broken("sign"))?.to_vec())
    }
}

struct Side {
    private: Zeroizing<Vec<u8>>,
    share: [u8; 32],
}

impl Agreement for Side {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let secret = curve25519::scalarmult(&self.private, peer).map_err(|_| BAD_SHARE)?;
        Ok(Secret::new(Zeroizing::new(secret).as_slice()))
    }
}

struct Aes(aes256gcm::Key);
struct ChaCha(chacha::Key);

macro_rules! aead_key {
    ($type:ty, $library:ident) => {
        impl AeadKey for $type {
            fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault> {
                let nonce = $library::Nonce::from_bytes(*nonce);
                let (text, tag) = $library::encrypt_detached(message, Some(aad), &nonce, &self.0)
                    .map_err(|_| Fault::Broken("encrypt"))?;
                message.copy_from_slice(&text);
                tag.try_into().map_err(|_| Fault::Broken("encrypt"))
            }

            fn open(
                &self,
                nonce: &[u8; 12],
                aad: &[u8],
                message: &mut [u8],
                tag: &[u8; 16],
            ) -> Result<(), Fault> {
                let nonce = $library::Nonce::from_bytes(*nonce);
                let mut text = $library::decrypt_detached(message, tag, Some(aad), &nonce, &self.0)
                    .map_err(|_| ALTERED)?;
                message.copy_from_slice(&text);
                text.zeroize();
                Ok(())
            }
        }
    };
}

aead_key!(Aes, aes256gcm);
aead_key!(ChaCha, chacha);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_exchanges_everything_with_aws_lc() {
        crate::provider::round_trip::check(&Sodium);
    }

    #[test]
    fn ed25519_keys_of_low_order_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        let mut signature = [0; 64];
        signature[0] = 1;
        let answer =
            Sodium.verify(KeyAlgorithm::Ed25519, SignatureScheme::Ed25519, &identity, b"message", &signature);
        assert_eq!(answer, Err(BAD_SIGNATURE));
    }
}
