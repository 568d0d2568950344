//! graviola: formally verified assembly; it leads ML-KEM decapsulation and edges ahead on the Edwards and Montgomery
//! curves.
//!
//! Its RSA key generation is documented as not safe against side channels and is never chosen. Bulk encryption is
//! correct and about half as fast as the best without VAES.

use graviola::aead::{AesGcm, ChaCha20Poly1305};
use graviola::hashing::{self, Sha256, Sha384, Sha512, hmac::Hmac, sha2};
use graviola::key_agreement::{mlkem768, p256, p384, x25519};
use graviola::signing::ecdsa::{self, P256, P384};
use graviola::signing::eddsa::{Ed25519SigningKey, Ed25519VerifyingKey};
use graviola::signing::rsa;
use zeroize::Zeroizing;

use super::contract::{
    ALTERED, AeadKey, Agreement, BAD_KEY, BAD_PUBLIC, BAD_SHARE, BAD_SIGNATURE, Decapsulation, Fault,
    HashContext, HmacKey, Offer, PrivateKey, Provider, Secret, copy,
};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::cpu::CpuFeature;
use crate::{Primitive, PrivateKeyMaterial, formats};

/// graviola.
#[derive(Debug)]
pub struct Graviola;

/// What its documentation says of generating RSA keys.
const RSA_GENERATION: &str =
    "its documentation says that generating RSA keys is not safe against side channels";

impl Provider for Graviola {
    fn name(&self) -> &'static str {
        "graviola"
    }

    fn credit(&self) -> &'static str {
        "graviola 0.4"
    }

    fn needs(&self) -> &'static [CpuFeature] {
        if cfg!(target_arch = "aarch64") {
            &[CpuFeature::Neon, CpuFeature::ArmAes, CpuFeature::ArmPmull, CpuFeature::ArmSha2]
        } else {
            &[
                CpuFeature::Aes,
                CpuFeature::Pclmulqdq,
                CpuFeature::Ssse3,
                CpuFeature::Avx,
                CpuFeature::Avx2,
                CpuFeature::Bmi1,
                CpuFeature::Bmi2,
                CpuFeature::Adx,
            ]
        }
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        use KeyAlgorithm as Key;
        match primitive {
            Primitive::GenerateKey(Key::Rsa2048 | Key::Rsa3072 | Key::Rsa4096) => {
                Offer::Unsafe(RSA_GENERATION)
            }
            Primitive::GenerateKey(Key::Ed25519 | Key::EcdsaP256 | Key::EcdsaP384) => Offer::Yes,
            Primitive::Sign(
                Key::Ed25519
                | Key::EcdsaP256
                | Key::EcdsaP384
                | Key::Rsa2048
                | Key::Rsa3072
                | Key::Rsa4096
                | Key::Rsa8192,
            )
            | Primitive::Verify(
                Key::Ed25519
                | Key::EcdsaP256
                | Key::EcdsaP384
                | Key::Rsa2048
                | Key::Rsa3072
                | Key::Rsa4096
                | Key::Rsa8192,
            ) => Offer::Yes,
            Primitive::GenerateKey(_) | Primitive::Sign(_) | Primitive::Verify(_) => Offer::No,
            _ => Offer::Yes,
        }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        let failed = |_| Fault::Broken("generate a key pair");
        let mut buffer = Zeroizing::new([0; 256]);
        match algorithm {
            KeyAlgorithm::Ed25519 => {
                let key = Ed25519SigningKey::generate().map_err(failed)?;
                let public = key.public_key().as_bytes().to_vec();
                Ok(PrivateKeyMaterial::new(algorithm, Zeroizing::new(key.as_seed().to_vec()), public))
            }
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => {
                let document = if algorithm == KeyAlgorithm::EcdsaP256 {
                    ecdsa::SigningKey::<P256>::generate()
                        .and_then(|key| Ok(key.to_pkcs8_der(&mut *buffer)?.len()))
                } else {
                    ecdsa::SigningKey::<P384>::generate()
                        .and_then(|key| Ok(key.to_pkcs8_der(&mut *buffer)?.len()))
                }
                .map_err(failed)?;
                buffer
                    .get(..document)
                    .and_then(formats::pkcs8::decode_with_public)
                    .ok_or(Fault::Broken("encode a key pair"))
            }
            _ => {
                let size = match algorithm {
                    KeyAlgorithm::Rsa2048 => rsa::KeySize::Rsa2048,
                    KeyAlgorithm::Rsa3072 => rsa::KeySize::Rsa3072,
                    KeyAlgorithm::Rsa4096 => rsa::KeySize::Rsa4096,
                    _ => return Err(Fault::Unsupported),
                };
                let key = rsa::SigningKey::generate(size).map_err(failed)?;
                let mut buffer = Zeroizing::new([0; 4096]);
                let secret = Zeroizing::new(key.to_pkcs1_der(&mut *buffer).map_err(failed)?.to_vec());
                let mut buffer = [0; 2048];
                let public = key.public_key().to_pkcs1_der(&mut buffer).map_err(failed)?.to_vec();
                Ok(PrivateKeyMaterial::new(algorithm, secret, public))
            }
        }
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(match algorithm {
            KeyAlgorithm::Ed25519 => {
                let key = Ed25519SigningKey::from_bytes(secret).map_err(|_| BAD_KEY)?;
                key.public_key().as_bytes().to_vec()
            }
            KeyAlgorithm::EcdsaP256 => {
                let key = p256::StaticPrivateKey::from_bytes(secret).map_err(|_| BAD_KEY)?;
                key.public_key_uncompressed().to_vec()
            }
            KeyAlgorithm::EcdsaP384 => {
                let key = p384::StaticPrivateKey::from_bytes(secret).map_err(|_| BAD_KEY)?;
                key.public_key_uncompressed().to_vec()
            }
            _ => return Err(Fault::Unsupported),
        })
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        let secret = key.secret();
        Ok(match key.algorithm() {
            KeyAlgorithm::Ed25519 => {
                let pair = Ed25519SigningKey::from_bytes(secret).map_err(|_| BAD_KEY)?;
                if pair.public_key().as_bytes() != key.public() {
                    return Err(BAD_KEY);
                }
                Box::new(pair)
            }
            KeyAlgorithm::EcdsaP256 => {
                let private = p256::StaticPrivateKey::from_bytes(secret).map_err(|_| BAD_KEY)?;
                if private.public_key_uncompressed() != key.public() {
                    return Err(BAD_KEY);
                }
                let document = formats::ec::encode(key).ok_or(BAD_KEY)?;
                Box::new(ecdsa::SigningKey::<P256>::from_sec1_der(&document).map_err(|_| BAD_KEY)?)
            }
            KeyAlgorithm::EcdsaP384 => {
                let private = p384::StaticPrivateKey::from_bytes(secret).map_err(|_| BAD_KEY)?;
                if private.public_key_uncompressed() != key.public() {
                    return Err(BAD_KEY);
                }
                let document = formats::ec::encode(key).ok_or(BAD_KEY)?;
                Box::new(ecdsa::SigningKey::<P384>::from_sec1_der(&document).map_err(|_| BAD_KEY)?)
            }
            algorithm if algorithm.kind() == KeyKind::Rsa => {
                let pair = rsa::SigningKey::from_pkcs1_der(secret).map_err(|_| BAD_KEY)?;
                let mut buffer = [0; 2048];
                let public = pair.public_key();
                if public.to_pkcs1_der(&mut buffer).map_err(|_| BAD_KEY)? != key.public() {
                    return Err(BAD_KEY);
                }
                Box::new(pair)
            }
            _ => return Err(Fault::Unsupported),
        })
    }

    fn check_public(&self, algorithm: KeyAlgorithm, public: &[u8]) -> Result<(), Fault> {
        match algorithm {
            KeyAlgorithm::Ed25519 => Ed25519VerifyingKey::from_bytes(public).map(|_| ()),
            KeyAlgorithm::EcdsaP256 => {
                ecdsa::VerifyingKey::<P256>::from_x962_uncompressed(public).map(|_| ())
            }
            KeyAlgorithm::EcdsaP384 => {
                ecdsa::VerifyingKey::<P384>::from_x962_uncompressed(public).map(|_| ())
            }
            _ => return Err(Fault::Unsupported),
        }
        .map_err(|_| Fault::Refused("the point is not on the curve"))
    }

    fn verify(
        &self,
        _algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        match scheme {
            SignatureScheme::Ed25519 => {
                let key = Ed25519VerifyingKey::from_bytes(public).map_err(|_| BAD_PUBLIC)?;
                key.verify(signature, message)
            }
            SignatureScheme::EcdsaP256Sha256 => {
                let key =
                    ecdsa::VerifyingKey::<P256>::from_x962_uncompressed(public).map_err(|_| BAD_PUBLIC)?;
                key.verify_asn1::<Sha256>(&[message], signature)
            }
            SignatureScheme::EcdsaP384Sha384 => {
                let key =
                    ecdsa::VerifyingKey::<P384>::from_x962_uncompressed(public).map_err(|_| BAD_PUBLIC)?;
                key.verify_asn1::<Sha384>(&[message], signature)
            }
            scheme if scheme.kind() == KeyKind::Rsa => {
                let key = rsa::VerifyingKey::from_pkcs1_der(public).map_err(|_| BAD_PUBLIC)?;
                match scheme {
                    SignatureScheme::RsaPkcs1Sha256 => key.verify_pkcs1_sha256(signature, message),
                    SignatureScheme::RsaPkcs1Sha384 => key.verify_pkcs1_sha384(signature, message),
                    SignatureScheme::RsaPkcs1Sha512 => key.verify_pkcs1_sha512(signature, message),
                    SignatureScheme::RsaPssSha256 => key.verify_pss_sha256(signature, message),
                    SignatureScheme::RsaPssSha384 => key.verify_pss_sha384(signature, message),
                    _ => key.verify_pss_sha512(signature, message),
                }
            }
            _ => return Err(Fault::Unsupported),
        }
        .map_err(|_| BAD_SIGNATURE)
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        let failed = |_| Fault::Broken("generate a key share");
        Ok(match group {
            DhGroup::X25519 => {
                let private = x25519::PrivateKey::new_random().map_err(failed)?;
                Box::new(X25519 { share: private.public_key().as_bytes(), private })
            }
            DhGroup::P256 => {
                let private = p256::PrivateKey::new_random().map_err(failed)?;
                Box::new(Ecdh256 { share: private.public_key_uncompressed(), private })
            }
            DhGroup::P384 => {
                let private = p384::PrivateKey::new_random().map_err(failed)?;
                Box::new(Ecdh384 { share: private.public_key_uncompressed(), private })
            }
        })
    }

    fn load_agreement(&self, group: DhGroup, private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        Ok(match group {
            DhGroup::X25519 => {
                let private = x25519::StaticPrivateKey::try_from_slice(private).map_err(|_| BAD_KEY)?;
                Box::new(Static {
                    share: private.public_key().as_bytes().to_vec(),
                    private: Private::X25519(private),
                })
            }
            DhGroup::P256 => {
                let private = p256::StaticPrivateKey::from_bytes(private).map_err(|_| BAD_KEY)?;
                Box::new(Static {
                    share: private.public_key_uncompressed().to_vec(),
                    private: Private::P256(private),
                })
            }
            DhGroup::P384 => {
                let private = p384::StaticPrivateKey::from_bytes(private).map_err(|_| BAD_KEY)?;
                Box::new(Static {
                    share: private.public_key_uncompressed().to_vec(),
                    private: Private::P384(private),
                })
            }
        })
    }

    fn start_decapsulation(&self) -> Result<Box<dyn Decapsulation>, Fault> {
        let key = mlkem768::DecapKey::generate().map_err(|_| Fault::Broken("generate an ML-KEM key"))?;
        Ok(Box::new(Kem { public: key.encapsulation_key().as_bytes(), key }))
    }

    fn load_decapsulation(
        &self,
        seed: Option<&[u8; 64]>,
        _expanded: Option<&[u8]>,
    ) -> Result<Box<dyn Decapsulation>, Fault> {
        let key = mlkem768::DecapKey::keygen_internal(seed.ok_or(Fault::Unsupported)?);
        Ok(Box::new(Kem { public: key.encapsulation_key().as_bytes(), key }))
    }

    fn encapsulate(&self, public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
        let refused = Fault::Refused("the ML-KEM key is malformed");
        let public = public.try_into().map_err(|_| refused)?;
        let key = mlkem768::EncapKey::from_bytes(public).map_err(|_| refused)?;
        let (secret, ciphertext) = key.encaps().map_err(|_| Fault::Broken("encapsulate"))?;
        Ok((ciphertext.as_ref().to_vec(), Secret::new(secret.as_ref())))
    }

    fn aead(&self, algorithm: AeadAlgorithm, key: &[u8]) -> Result<Box<dyn AeadKey>, Fault> {
        if key.len() != algorithm.key_bytes() {
            return Err(Fault::Refused("the key has another length"));
        }
        Ok(match algorithm {
            AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm => Box::new(AesGcm::new(key)),
            AeadAlgorithm::ChaCha20Poly1305 => {
                let key = key.try_into().map_err(|_| Fault::Refused("the key has another length"))?;
                Box::new(ChaCha(Zeroizing::new(key)))
            }
        })
    }

    fn hash(&self, algorithm: HashAlgorithm, parts: &[&[u8]], out: &mut [u8]) -> Result<(), Fault> {
        let mut context = self.start_hash(algorithm)?;
        for part in parts {
            context.update(part);
        }
        context.finish(out);
        Ok(())
    }

    fn start_hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Fault> {
        Ok(match algorithm {
            HashAlgorithm::Sha256 => Box::new(Context256(sha2::Sha256Context::new())),
            HashAlgorithm::Sha384 => Box::new(Context384(sha2::Sha384Context::new())),
            HashAlgorithm::Sha512 => Box::new(Context512(sha2::Sha512Context::new())),
        })
    }

    fn hmac(&self, algorithm: HashAlgorithm, key: &[u8]) -> Result<Box<dyn HmacKey>, Fault> {
        Ok(match algorithm {
            HashAlgorithm::Sha256 => Box::new(Mac::<Sha256>(Hmac::new(key))),
            HashAlgorithm::Sha384 => Box::new(Mac::<Sha384>(Hmac::new(key))),
            HashAlgorithm::Sha512 => Box::new(Mac::<Sha512>(Hmac::new(key))),
        })
    }

    fn random(&self, out: &mut [u8]) -> Result<(), Fault> {
        graviola::random::fill(out).map_err(|_| Fault::Broken("give random bytes"))
    }
}

impl PrivateKey for Ed25519SigningKey {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != SignatureScheme::Ed25519 {
            return Err(Fault::Unsupported);
        }
        Ok(Self::sign(self, message).to_vec())
    }
}

impl PrivateKey for ecdsa::SigningKey<P256> {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != SignatureScheme::EcdsaP256Sha256 {
            return Err(Fault::Unsupported);
        }
        let mut buffer = [0; 80];
        let made = self.sign_asn1::<Sha256>(&[message], &mut buffer).map_err(|_| Fault::Broken("sign"))?;
        Ok(made.to_vec())
    }
}

impl PrivateKey for ecdsa::SigningKey<P384> {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != SignatureScheme::EcdsaP384Sha384 {
            return Err(Fault::Unsupported);
        }
        let mut buffer = [0; 112];
        let made = self.sign_asn1::<Sha384>(&[message], &mut buffer).map_err(|_| Fault::Broken("sign"))?;
        Ok(made.to_vec())
    }
}

impl PrivateKey for rsa::SigningKey {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = vec![0; self.modulus_len_bytes()];
        match scheme {
            SignatureScheme::RsaPkcs1Sha256 => self.sign_pkcs1_sha256(&mut out, message),
            SignatureScheme::RsaPkcs1Sha384 => self.sign_pkcs1_sha384(&mut out, message),
            SignatureScheme::RsaPkcs1Sha512 => self.sign_pkcs1_sha512(&mut out, message),
            SignatureScheme::RsaPssSha256 => self.sign_pss_sha256(&mut out, message),
            SignatureScheme::RsaPssSha384 => self.sign_pss_sha384(&mut out, message),
            SignatureScheme::RsaPssSha512 => self.sign_pss_sha512(&mut out, message),
            _ => return Err(Fault::Unsupported),
        }
        .map_err(|_| Fault::Broken("sign"))?;
        Ok(out)
    }
}

struct X25519 {
    private: x25519::PrivateKey,
    share: [u8; 32],
}

impl Agreement for X25519 {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let peer = x25519::PublicKey::try_from_slice(peer).map_err(|_| BAD_SHARE)?;
        self.private.diffie_hellman(&peer).map(|secret| Secret::new(&secret.0)).map_err(|_| BAD_SHARE)
    }
}

struct Ecdh256 {
    private: p256::PrivateKey,
    share: [u8; 65],
}

impl Agreement for Ecdh256 {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let peer = p256::PublicKey::from_x962_uncompressed(peer).map_err(|_| BAD_SHARE)?;
        self.private.diffie_hellman(&peer).map(|secret| Secret::new(&secret.0)).map_err(|_| BAD_SHARE)
    }
}

struct Ecdh384 {
    private: p384::PrivateKey,
    share: [u8; 97],
}

impl Agreement for Ecdh384 {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let peer = p384::PublicKey::from_x962_uncompressed(peer).map_err(|_| BAD_SHARE)?;
        self.private.diffie_hellman(&peer).map(|secret| Secret::new(&secret.0)).map_err(|_| BAD_SHARE)
    }
}

struct Static {
    private: Private,
    share: Vec<u8>,
}

enum Private {
    X25519(x25519::StaticPrivateKey),
    P256(p256::StaticPrivateKey),
    P384(p384::StaticPrivateKey),
}

impl Agreement for Static {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        match &self.private {
            Private::X25519(private) => x25519::PublicKey::try_from_slice(peer)
                .and_then(|peer| private.diffie_hellman(&peer))
                .map(|secret| Secret::new(&secret.0)),
            Private::P256(private) => p256::PublicKey::from_x962_uncompressed(peer)
                .and_then(|peer| private.diffie_hellman(&peer))
                .map(|secret| Secret::new(&secret.0)),
            Private::P384(private) => p384::PublicKey::from_x962_uncompressed(peer)
                .and_then(|peer| private.diffie_hellman(&peer))
                .map(|secret| Secret::new(&secret.0)),
        }
        .map_err(|_| BAD_SHARE)
    }
}

struct Kem {
    key: mlkem768::DecapKey,
    public: [u8; 1184],
}

impl Decapsulation for Kem {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn finish(self: Box<Self>, ciphertext: &[u8]) -> Result<Secret, Fault> {
        let ciphertext: [u8; 1088] =
            ciphertext.try_into().map_err(|_| Fault::Refused("the ML-KEM ciphertext has another length"))?;
        Ok(Secret::new(self.key.decaps(&ciphertext.into()).as_ref()))
    }
}

impl AeadKey for AesGcm {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault> {
        let mut tag = [0; 16];
        self.encrypt(nonce, aad, message, &mut tag);
        Ok(tag)
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8], tag: &[u8; 16]) -> Result<(), Fault> {
        self.decrypt(nonce, aad, message, tag).map_err(|_| ALTERED)
    }
}

/// The library takes the key anew for each message.
struct ChaCha(Zeroizing<[u8; 32]>);

impl AeadKey for ChaCha {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault> {
        let mut tag = [0; 16];
        ChaCha20Poly1305::new(*self.0).encrypt(nonce, aad, message, &mut tag);
        Ok(tag)
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8], tag: &[u8; 16]) -> Result<(), Fault> {
        ChaCha20Poly1305::new(*self.0).decrypt(nonce, aad, message, tag).map_err(|_| ALTERED)
    }
}

struct Context256(sha2::Sha256Context);
struct Context384(sha2::Sha384Context);
struct Context512(sha2::Sha512Context);

macro_rules! hash_context {
    ($type:ty) => {
        impl HashContext for $type {
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
    };
}

hash_context!(Context256);
hash_context!(Context384);
hash_context!(Context512);

struct Mac<H: hashing::Hash>(Hmac<H>);

impl<H> HmacKey for Mac<H>
where
    H: hashing::Hash + Send + Sync,
    Hmac<H>: Clone + Send + Sync,
{
    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) {
        let mut context = self.0.clone();
        for part in parts {
            context.update(part);
        }
        copy(out, context.finish().as_ref());
    }
}
