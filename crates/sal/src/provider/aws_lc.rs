//! AWS-LC through `aws-lc-rs`: the widest of the sources, and the one with a FIPS module.
//!
//! With the cargo feature `fips` it is AWS-LC-FIPS 4, and what the module's own service indicator does not approve is
//! not offered: X25519, which NIST lists for no key agreement, and ChaCha20-Poly1305. Ed25519, ML-KEM and ML-DSA are
//! approved. AES-GCM is approved with nonces that the module chooses or counts, as it does in its cipher suites for TLS
//! ([`Provider::tls13_suite`]); sealing with a nonce of the caller's is the same code, but not an approved service.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::encoding::{AsBigEndian, Curve25519SeedBin, EcPrivateKeyBin};
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_768};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self as sig, EcdsaKeyPair, Ed25519KeyPair, KeyPair, PqdsaKeyPair, RsaKeyPair};
use aws_lc_rs::{agreement, digest, hmac, pbkdf2, rand};
use std::num::NonZeroU32;

use zeroize::Zeroizing;

use super::contract::{
    ALTERED, AeadKey, Agreement, BAD_KEY, BAD_SIGNATURE, Decapsulation, Fault, HashContext, HmacKey, Module,
    Offer, PrivateKey, Provider, Secret, copy,
};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial};

/// AWS-LC.
#[derive(Debug)]
pub struct AwsLc;

impl Provider for AwsLc {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn credit(&self) -> &'static str {
        if cfg!(feature = "fips") { "AWS-LC-FIPS 4 (aws-lc-rs 1.19)" } else { "AWS-LC (aws-lc-rs 1.19)" }
    }

    fn module(&self) -> Option<Module> {
        aws_lc_rs::try_fips_mode()
            .is_ok()
            .then(|| Module { name: "AWS-LC-FIPS", version: aws_lc_rs::awslc_version() })
    }

    fn prove_module(&self) -> Result<(), Fault> {
        aws_lc_rs::try_fips_self_test().map_err(|_| Fault::Broken("pass the self-tests of the module"))
    }

    /// Unless it is built without, as in a checkout, it collects entropy from the jitter of the CPU first: 46 to 119 ms were
    /// measured.
    fn starts_slowly(&self) -> bool {
        true
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        match primitive {
            // aws-lc-rs generates nothing below 2048 bits and signs with nothing below either.
            Primitive::GenerateKey(KeyAlgorithm::Rsa1024) | Primitive::Sign(KeyAlgorithm::Rsa1024) => {
                Offer::No
            }
            Primitive::Agree(DhGroup::X25519) | Primitive::Aead(AeadAlgorithm::ChaCha20Poly1305)
                if self.is_fips() =>
            {
                Offer::No
            }
            _ => Offer::Yes,
        }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        let failed = |_| Fault::Broken("generate a key pair");
        let (secret, public) = match algorithm {
            KeyAlgorithm::Ed25519 => {
                let pair = Ed25519KeyPair::generate().map_err(failed)?;
                let seed = pair.seed().map_err(failed)?;
                let seed: Curve25519SeedBin<'_> = seed.as_be_bytes().map_err(failed)?;
                (Zeroizing::new(seed.as_ref().to_vec()), pair.public_key().as_ref().to_vec())
            }
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 | KeyAlgorithm::EcdsaP521 => {
                let pair = EcdsaKeyPair::generate(ecdsa_signing(algorithm)?).map_err(failed)?;
                let scalar: EcPrivateKeyBin<'_> = pair.private_key().as_be_bytes().map_err(failed)?;
                (Zeroizing::new(scalar.as_ref().to_vec()), pair.public_key().as_ref().to_vec())
            }
            KeyAlgorithm::MlDsa44 | KeyAlgorithm::MlDsa65 | KeyAlgorithm::MlDsa87 => {
                let pair = PqdsaKeyPair::generate(ml_dsa_signing(algorithm)?).map_err(failed)?;
                // Version 1 of the document ends with the seed (RFC 9881 §6): `[0] IMPLICIT OCTET STRING`.
                let document = pair.to_pkcs8v1().map_err(failed)?;
                let (_, seed) =
                    document.as_ref().split_last_chunk::<32>().ok_or(Fault::Broken("encode a seed"))?;
                (Zeroizing::new(seed.to_vec()), pair.public_key().as_ref().to_vec())
            }
            rsa => {
                let size = match rsa {
                    KeyAlgorithm::Rsa2048 => KeySize::Rsa2048,
                    KeyAlgorithm::Rsa3072 => KeySize::Rsa3072,
                    KeyAlgorithm::Rsa4096 => KeySize::Rsa4096,
                    KeyAlgorithm::Rsa8192 => KeySize::Rsa8192,
                    _ => return Err(Fault::Unsupported),
                };
                let pair = RsaKeyPair::generate(size).map_err(failed)?;
                let document: aws_lc_rs::encoding::Pkcs8V1Der<'_> =
                    aws_lc_rs::encoding::AsDer::as_der(&pair).map_err(failed)?;
                let secret = crate::formats::pkcs8::inner_key(document.as_ref())
                    .ok_or(Fault::Broken("encode a key"))?;
                (Zeroizing::new(secret.to_vec()), pair.public_key().as_ref().to_vec())
            }
        };
        Ok(PrivateKeyMaterial::new(algorithm, secret, public))
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        match algorithm.kind() {
            KeyKind::Ed25519 => {
                let pair = Ed25519KeyPair::from_seed_unchecked(secret).map_err(|_| BAD_KEY)?;
                Ok(pair.public_key().as_ref().to_vec())
            }
            KeyKind::Ecdsa => {
                let curve = match algorithm {
                    KeyAlgorithm::EcdsaP384 => &agreement::ECDH_P384,
                    KeyAlgorithm::EcdsaP521 => &agreement::ECDH_P521,
                    _ => &agreement::ECDH_P256,
                };
                let key = agreement::PrivateKey::from_private_key(curve, secret).map_err(|_| BAD_KEY)?;
                Ok(key.compute_public_key().map_err(|_| BAD_KEY)?.as_ref().to_vec())
            }
            KeyKind::Rsa => {
                let pair = RsaKeyPair::from_der(secret).map_err(|_| BAD_KEY)?;
                Ok(pair.public_key().as_ref().to_vec())
            }
            KeyKind::MlDsa => {
                let pair =
                    PqdsaKeyPair::from_seed(ml_dsa_signing(algorithm)?, secret).map_err(|_| BAD_KEY)?;
                Ok(pair.public_key().as_ref().to_vec())
            }
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
            KeyKind::MlDsa => {
                let pair =
                    PqdsaKeyPair::from_seed(ml_dsa_signing(key.algorithm())?, secret).map_err(|_| BAD_KEY)?;
                if pair.public_key().as_ref() != public {
                    return Err(BAD_KEY);
                }
                Box::new(MlDsa { pair, scheme: key.algorithm().default_scheme() })
            }
        })
    }

    fn check_public(&self, algorithm: KeyAlgorithm, public: &[u8]) -> Result<(), Fault> {
        let method: &'static dyn sig::VerificationAlgorithm = match algorithm {
            KeyAlgorithm::Ed25519 => &sig::ED25519,
            KeyAlgorithm::EcdsaP256 => &sig::ECDSA_P256_SHA256_ASN1,
            KeyAlgorithm::EcdsaP384 => &sig::ECDSA_P384_SHA384_ASN1,
            KeyAlgorithm::EcdsaP521 => &sig::ECDSA_P521_SHA512_ASN1,
            KeyAlgorithm::MlDsa44 => &sig::ML_DSA_44,
            KeyAlgorithm::MlDsa65 => &sig::ML_DSA_65,
            KeyAlgorithm::MlDsa87 => &sig::ML_DSA_87,
            // An RSA key is a number; the layer has looked at its form.
            _ => return Ok(()),
        };
        sig::ParsedPublicKey::new(method, public)
            .map(|_| ())
            .map_err(|_| Fault::Refused("the point is not on the curve"))
    }

    fn verify(
        &self,
        algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let small = algorithm == KeyAlgorithm::Rsa1024;
        let method: &'static dyn sig::VerificationAlgorithm = match scheme {
            SignatureScheme::Ed25519 => &sig::ED25519,
            SignatureScheme::EcdsaP256Sha256 => &sig::ECDSA_P256_SHA256_ASN1,
            SignatureScheme::EcdsaP384Sha384 => &sig::ECDSA_P384_SHA384_ASN1,
            SignatureScheme::EcdsaP521Sha512 => &sig::ECDSA_P521_SHA512_ASN1,
            SignatureScheme::RsaPkcs1Sha256 if small => &sig::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            SignatureScheme::RsaPkcs1Sha512 if small => &sig::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
            _ if small => return Err(Fault::Unsupported),
            SignatureScheme::RsaPkcs1Sha256 => &sig::RSA_PKCS1_2048_8192_SHA256,
            SignatureScheme::RsaPkcs1Sha384 => &sig::RSA_PKCS1_2048_8192_SHA384,
            SignatureScheme::RsaPkcs1Sha512 => &sig::RSA_PKCS1_2048_8192_SHA512,
            SignatureScheme::RsaPssSha256 => &sig::RSA_PSS_2048_8192_SHA256,
            SignatureScheme::RsaPssSha384 => &sig::RSA_PSS_2048_8192_SHA384,
            SignatureScheme::RsaPssSha512 => &sig::RSA_PSS_2048_8192_SHA512,
            SignatureScheme::MlDsa44 => &sig::ML_DSA_44,
            SignatureScheme::MlDsa65 => &sig::ML_DSA_65,
            SignatureScheme::MlDsa87 => &sig::ML_DSA_87,
        };
        sig::UnparsedPublicKey::new(method, public).verify(message, signature).map_err(|_| BAD_SIGNATURE)
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        let private =
            agreement::PrivateKey::generate(dh(group)).map_err(|_| Fault::Broken("generate a key share"))?;
        side(private)
    }

    fn load_agreement(&self, group: DhGroup, private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        side(agreement::PrivateKey::from_private_key(dh(group), private).map_err(|_| BAD_KEY)?)
    }

    fn start_decapsulation(&self) -> Result<Box<dyn Decapsulation>, Fault> {
        let failed = |_| Fault::Broken("generate an ML-KEM key");
        let key = DecapsulationKey::generate(&ML_KEM_768).map_err(failed)?;
        let public = key.encapsulation_key().and_then(|public| public.key_bytes()).map_err(failed)?;
        Ok(Box::new(Kem { public: public.as_ref().to_vec(), key }))
    }

    fn load_decapsulation(
        &self,
        _seed: Option<&[u8; 64]>,
        expanded: Option<&[u8]>,
    ) -> Result<Box<dyn Decapsulation>, Fault> {
        let key =
            DecapsulationKey::new(&ML_KEM_768, expanded.ok_or(Fault::Unsupported)?).map_err(|_| BAD_KEY)?;
        // A key read from bytes does not give its public half; it stands in the expanded form (FIPS 203 §7.1).
        let public = expanded.and_then(|bytes| bytes.get(1152..2336)).ok_or(BAD_KEY)?.to_vec();
        Ok(Box::new(Kem { public, key }))
    }

    fn encapsulate(&self, public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
        let refused = Fault::Refused("the ML-KEM key is malformed");
        let key = EncapsulationKey::new(&ML_KEM_768, public).map_err(|_| refused)?;
        let (ciphertext, secret) = key.encapsulate().map_err(|_| refused)?;
        Ok((ciphertext.as_ref().to_vec(), Secret::new(secret.as_ref())))
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
        if let [whole] = parts {
            copy(out, digest::digest(sha2(algorithm), whole).as_ref());
            return Ok(());
        }
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

    fn pbkdf2_sha512(
        &self,
        iterations: NonZeroU32,
        salt: &[u8],
        password: &[u8],
        out: &mut [u8; 64],
    ) -> Result<(), Fault> {
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, iterations, salt, password, out);
        Ok(())
    }

    fn random(&self, out: &mut [u8]) -> Result<(), Fault> {
        rand::fill(out).map_err(|_| Fault::Broken("give random bytes"))
    }

    fn tls13_suite(&self, algorithm: AeadAlgorithm) -> Option<&'static rustls::Tls13CipherSuite> {
        use rustls::crypto::aws_lc_rs::cipher_suite as suite;
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
        KeyAlgorithm::EcdsaP521 => Ok(&sig::ECDSA_P521_SHA512_ASN1_SIGNING),
        _ => Err(Fault::Unsupported),
    }
}

fn ml_dsa_signing(algorithm: KeyAlgorithm) -> Result<&'static sig::PqdsaSigningAlgorithm, Fault> {
    match algorithm {
        KeyAlgorithm::MlDsa44 => Ok(&sig::ML_DSA_44_SIGNING),
        KeyAlgorithm::MlDsa65 => Ok(&sig::ML_DSA_65_SIGNING),
        KeyAlgorithm::MlDsa87 => Ok(&sig::ML_DSA_87_SIGNING),
        _ => Err(Fault::Unsupported),
    }
}

fn dh(group: DhGroup) -> &'static agreement::Algorithm {
    match group {
        DhGroup::X25519 => &agreement::X25519,
        DhGroup::P256 => &agreement::ECDH_P256,
        DhGroup::P384 => &agreement::ECDH_P384,
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
        self.try_sign(message).map(|made| made.as_ref().to_vec()).map_err(|_| Fault::Broken("sign"))
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
        let mut signature = vec![0; self.public_modulus_len()];
        Self::sign(self, padding, &SystemRandom::new(), message, &mut signature)
            .map_err(|_| Fault::Broken("sign"))?;
        Ok(signature)
    }
}

struct MlDsa {
    pair: PqdsaKeyPair,
    scheme: SignatureScheme,
}

impl PrivateKey for MlDsa {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != self.scheme {
            return Err(Fault::Unsupported);
        }
        let mut signature = vec![0; self.pair.algorithm().signature_len()];
        let length = self.pair.sign(message, &mut signature).map_err(|_| Fault::Broken("sign"))?;
        signature.truncate(length);
        Ok(signature)
    }
}

struct Side {
    private: agreement::PrivateKey,
    share: agreement::PublicKey,
}

fn side(private: agreement::PrivateKey) -> Result<Box<dyn Agreement>, Fault> {
    let share = private.compute_public_key().map_err(|_| Fault::Broken("compute a key share"))?;
    Ok(Box::new(Side { private, share }))
}

impl Agreement for Side {
    fn share(&self) -> &[u8] {
        self.share.as_ref()
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let refused = Fault::Refused("the key share is malformed or of low order");
        let peer = agreement::UnparsedPublicKey::new(self.private.algorithm(), peer);
        agreement::agree(&self.private, peer, refused, |secret| Ok(Secret::new(secret)))
    }
}

struct Kem {
    key: DecapsulationKey,
    public: Vec<u8>,
}

impl Decapsulation for Kem {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn finish(self: Box<Self>, ciphertext: &[u8]) -> Result<Secret, Fault> {
        self.key
            .decapsulate(Ciphertext::from(ciphertext))
            .map(|secret| Secret::new(secret.as_ref()))
            .map_err(|_| Fault::Refused("the ML-KEM ciphertext has another length"))
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
        self.open_in_place_separate_tag(Nonce::assume_unique_for_key(*nonce), Aad::from(aad), tag, message)
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
