//! ring: the fastest HMAC and random bytes, and RSA and AES-GCM on a par with the best.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{self as sig, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use ring::{agreement, digest, hmac};

use super::contract::{
    ALTERED, AeadKey, Agreement, BAD_KEY, BAD_SIGNATURE, Fault, HashContext, HmacKey, Offer, PrivateKey,
    Provider, Secret, copy,
};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial, formats};

/// ring.
#[derive(Debug)]
pub struct Ring;

impl Provider for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn credit(&self) -> &'static str {
        "ring 0.17"
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        use KeyAlgorithm as Key;
        let has = match primitive {
            Primitive::GenerateKey(key) => matches!(key, Key::Ed25519 | Key::EcdsaP256 | Key::EcdsaP384),
            Primitive::Sign(key) => matches!(
                key,
                Key::Ed25519 | Key::EcdsaP256 | Key::EcdsaP384 | Key::Rsa2048 | Key::Rsa3072 | Key::Rsa4096
            ),
            Primitive::Verify(key) => matches!(
                key,
                Key::Ed25519
                    | Key::EcdsaP256
                    | Key::EcdsaP384
                    | Key::Rsa2048
                    | Key::Rsa3072
                    | Key::Rsa4096
                    | Key::Rsa8192
            ),
            Primitive::Agree(_)
            | Primitive::Aead(_)
            | Primitive::Hash(_)
            | Primitive::Hmac(_)
            | Primitive::Random => true,
            Primitive::Decapsulate | Primitive::Encapsulate => false,
        };
        if has { Offer::Yes } else { Offer::No }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        let rng = SystemRandom::new();
        let document = match algorithm {
            KeyAlgorithm::Ed25519 => Ed25519KeyPair::generate_pkcs8(&rng),
            other => EcdsaKeyPair::generate_pkcs8(ecdsa_signing(other)?, &rng),
        }
        .map_err(|_| Fault::Broken("generate a key pair"))?;
        formats::pkcs8::decode_with_public(document.as_ref()).ok_or(Fault::Broken("encode a key pair"))
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        match algorithm {
            KeyAlgorithm::Ed25519 => {
                let pair = Ed25519KeyPair::from_seed_unchecked(secret).map_err(|_| BAD_KEY)?;
                Ok(pair.public_key().as_ref().to_vec())
            }
            _ => Err(Fault::Unsupported),
        }
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        let (secret, public) = (key.secret(), key.public());
        Ok(match key.algorithm().kind() {
            KeyKind::Ed25519 => {
                Box::new(Ed25519KeyPair::from_seed_and_public_key(secret, public).map_err(|_| BAD_KEY)?)
            }
            KeyKind::Ecdsa => Box::new(Ecdsa {
                pair: EcdsaKeyPair::from_private_key_and_public_key(
                    ecdsa_signing(key.algorithm())?,
                    secret,
                    public,
                    &SystemRandom::new(),
                )
                .map_err(|_| BAD_KEY)?,
                scheme: key.algorithm().default_scheme(),
            }),
            KeyKind::Rsa => {
                let pair = RsaKeyPair::from_der(secret).map_err(|_| BAD_KEY)?;
                if pair.public_key().as_ref() != public {
                    return Err(BAD_KEY);
                }
                Box::new(pair)
            }
            KeyKind::MlDsa => return Err(Fault::Unsupported),
        })
    }

    fn verify(
        &self,
        _algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let method: &'static dyn sig::VerificationAlgorithm = match scheme {
            SignatureScheme::Ed25519 => &sig::ED25519,
            SignatureScheme::EcdsaP256Sha256 => &sig::ECDSA_P256_SHA256_ASN1,
            SignatureScheme::EcdsaP384Sha384 => &sig::ECDSA_P384_SHA384_ASN1,
            SignatureScheme::RsaPkcs1Sha256 => &sig::RSA_PKCS1_2048_8192_SHA256,
            SignatureScheme::RsaPkcs1Sha384 => &sig::RSA_PKCS1_2048_8192_SHA384,
            SignatureScheme::RsaPkcs1Sha512 => &sig::RSA_PKCS1_2048_8192_SHA512,
            SignatureScheme::RsaPssSha256 => &sig::RSA_PSS_2048_8192_SHA256,
            SignatureScheme::RsaPssSha384 => &sig::RSA_PSS_2048_8192_SHA384,
            SignatureScheme::RsaPssSha512 => &sig::RSA_PSS_2048_8192_SHA512,
            _ => return Err(Fault::Unsupported),
        };
        sig::UnparsedPublicKey::new(method, public).verify(message, signature).map_err(|_| BAD_SIGNATURE)
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        let failed = |_| Fault::Broken("generate a key share");
        let method = match group {
            DhGroup::X25519 => &agreement::X25519,
            DhGroup::P256 => &agreement::ECDH_P256,
            DhGroup::P384 => &agreement::ECDH_P384,
        };
        let private =
            agreement::EphemeralPrivateKey::generate(method, &SystemRandom::new()).map_err(failed)?;
        let share = private.compute_public_key().map_err(failed)?;
        Ok(Box::new(Side { private, share }))
    }

    fn aead(&self, algorithm: AeadAlgorithm, key: &[u8]) -> Result<Box<dyn AeadKey>, Fault> {
        let method = match algorithm {
            AeadAlgorithm::Aes128Gcm => &aead::AES_128_GCM,
            AeadAlgorithm::Aes256Gcm => &aead::AES_256_GCM,
            AeadAlgorithm::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(method, key).map_err(|_| Fault::Refused("the key has another length"))?;
        Ok(Box::new(LessSafeKey::new(key)))
    }

    fn hash(&self, algorithm: HashAlgorithm, parts: &[&[u8]], out: &mut [u8]) -> Result<(), Fault> {
        let mut context = digest::Context::new(sha2(algorithm));
        for part in parts {
            context.update(part);
        }
        copy(out, context.finish().as_ref());
        Ok(())
    }

    fn start_hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Fault> {
        Ok(Box::new(Hash(digest::Context::new(sha2(algorithm)))))
    }

    fn hmac(&self, algorithm: HashAlgorithm, key: &[u8]) -> Result<Box<dyn HmacKey>, Fault> {
        let method = match algorithm {
            HashAlgorithm::Sha256 => hmac::HMAC_SHA256,
            HashAlgorithm::Sha384 => hmac::HMAC_SHA384,
            HashAlgorithm::Sha512 => hmac::HMAC_SHA512,
        };
        Ok(Box::new(hmac::Key::new(method, key)))
    }

    fn random(&self, out: &mut [u8]) -> Result<(), Fault> {
        SystemRandom::new().fill(out).map_err(|_| Fault::Broken("give random bytes"))
    }

    fn tls13_suite(&self, algorithm: AeadAlgorithm) -> Option<&'static rustls::Tls13CipherSuite> {
        use rustls::crypto::ring::cipher_suite as suite;
        match algorithm {
            AeadAlgorithm::Aes128Gcm => suite::TLS13_AES_128_GCM_SHA256.tls13(),
            AeadAlgorithm::Aes256Gcm => suite::TLS13_AES_256_GCM_SHA384.tls13(),
            AeadAlgorithm::ChaCha20Poly1305 => suite::TLS13_CHACHA20_POLY1305_SHA256.tls13(),
        }
    }
}

fn ecdsa_signing(algorithm: KeyAlgorithm) -> Result<&'static sig::EcdsaSigningAlgorithm, Fault> {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => Ok(&sig::ECDSA_P256_SHA256_ASN1_SIGNING),
        KeyAlgorithm::EcdsaP384 => Ok(&sig::ECDSA_P384_SHA384_ASN1_SIGNING),
        _ => Err(Fault::Unsupported),
    }
}

fn sha2(algorithm: HashAlgorithm) -> &'static digest::Algorithm {
    match algorithm {
        HashAlgorithm::Sha256 => &digest::SHA256,
        HashAlgorithm::Sha384 => &digest::SHA384,
        HashAlgorithm::Sha512 => &digest::SHA512,
    }
}

impl PrivateKey for Ed25519KeyPair {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != SignatureScheme::Ed25519 {
            return Err(Fault::Unsupported);
        }
        Ok(Self::sign(self, message).as_ref().to_vec())
    }
}

struct Ecdsa {
    pair: EcdsaKeyPair,
    scheme: SignatureScheme,
}

impl PrivateKey for Ecdsa {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != self.scheme {
            return Err(Fault::Unsupported);
        }
        self.pair
            .sign(&SystemRandom::new(), message)
            .map(|made| made.as_ref().to_vec())
            .map_err(|_| Fault::Broken("sign"))
    }
}

impl PrivateKey for RsaKeyPair {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        let padding: &'static dyn sig::RsaEncoding = match scheme {
            SignatureScheme::RsaPkcs1Sha256 => &sig::RSA_PKCS1_SHA256,
            SignatureScheme::RsaPkcs1Sha384 => &sig::RSA_PKCS1_SHA384,
            SignatureScheme::RsaPkcs1Sha512 => &sig::RSA_PKCS1_SHA512,
            SignatureScheme::RsaPssSha256 => &sig::RSA_PSS_SHA256,
            SignatureScheme::RsaPssSha384 => &sig::RSA_PSS_SHA384,
            SignatureScheme::RsaPssSha512 => &sig::RSA_PSS_SHA512,
            _ => return Err(Fault::Unsupported),
        };
        let mut signature = vec![0; self.public().modulus_len()];
        Self::sign(self, padding, &SystemRandom::new(), message, &mut signature)
            .map_err(|_| Fault::Broken("sign"))?;
        Ok(signature)
    }
}

struct Side {
    private: agreement::EphemeralPrivateKey,
    share: agreement::PublicKey,
}

impl Agreement for Side {
    fn share(&self) -> &[u8] {
        self.share.as_ref()
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let peer = agreement::UnparsedPublicKey::new(self.private.algorithm(), peer);
        agreement::agree_ephemeral(self.private, &peer, Secret::new)
            .map_err(|_| Fault::Refused("the key share is malformed or of low order"))
    }
}

impl AeadKey for LessSafeKey {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault> {
        let tag = self
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(*nonce), Aad::from(aad), message)
            .map_err(|_| Fault::Broken("encrypt"))?;
        let mut out = [0; 16];
        copy(&mut out, tag.as_ref());
        Ok(out)
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8], tag: &[u8; 16]) -> Result<(), Fault> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.open_in_place_separate_tag(nonce, Aad::from(aad), aead::Tag::from(*tag), message, 0..)
            .map(|_| ())
            .map_err(|_| ALTERED)
    }
}

struct Hash(digest::Context);

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn fork(&self) -> Box<dyn HashContext> {
        Box::new(Self(self.0.clone()))
    }

    fn finish(self: Box<Self>, out: &mut [u8]) {
        copy(out, self.0.finish().as_ref());
    }
}

impl HmacKey for hmac::Key {
    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) {
        let mut context = hmac::Context::with_key(self);
        for part in parts {
            context.update(part);
        }
        copy(out, context.sign().as_ref());
    }
}
