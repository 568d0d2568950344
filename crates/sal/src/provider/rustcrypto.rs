//! RustCrypto and dalek: every primitive but RSA in plain Rust, for any CPU.
//!
//! What the libraries do where specifications leave room, or where they are laxer than we are:
//!
//! * Ed25519 verifies by `verify_strict`, which refuses keys and `R` of small order. dalek takes a public key whose `y`
//!   is not reduced, so that is refused here (RFC 8032 §5.1.3); it refuses such an `R` and an `s` that is not reduced.
//! * The curves take compressed points too; only uncompressed ones pass here. Signatures are strict DER, with `r` and
//!   `s` in `1..n`; an `s` in the upper half is taken, as by everyone else.
//! * X25519 takes a `u` that is not reduced, and ignores its highest bit, as RFC 7748 §5 says. The zero secret is
//!   refused.
//! * ECDSA and ML-DSA signatures are hedged: deterministic, with fresh randomness mixed in.
//! * ML-KEM checks an encapsulation key as FIPS 203 §7.2 says.

use zeroize::Zeroizing;

use super::contract::{
    AeadKey, Agreement, BAD_PUBLIC, Decapsulation, Fault, HashContext, HmacKey, Offer, PrivateKey, Provider,
    Secret,
};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial};

mod draws;
mod ed25519;
mod lattice;
mod nist;
#[cfg(feature = "comparison")]
mod rsa;
mod symmetric;
mod x25519;

use draws::{NO_RANDOMNESS, random_array};

/// RustCrypto's crates, with dalek for Curve25519.
#[derive(Debug)]
pub struct RustCrypto;

impl Provider for RustCrypto {
    fn name(&self) -> &'static str {
        "rustcrypto"
    }

    fn credit(&self) -> &'static str {
        "RustCrypto (aes-gcm 0.11, p256 0.14, ml-kem 0.3, ml-dsa 0.1) and ed25519-dalek 3"
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        match primitive {
            Primitive::GenerateKey(algorithm) | Primitive::Sign(algorithm) | Primitive::Verify(algorithm)
                if algorithm.kind() == KeyKind::Rsa && !cfg!(feature = "comparison") =>
            {
                Offer::No
            }
            Primitive::GenerateKey(algorithm) | Primitive::Sign(algorithm)
                if algorithm.kind() == KeyKind::Rsa =>
            {
                Offer::Unsafe("RUSTSEC-2023-0071: what it does with RSA private keys leaks through timing")
            }
            Primitive::GenerateKey(_)
            | Primitive::Sign(_)
            | Primitive::Verify(_)
            | Primitive::Agree(_)
            | Primitive::Decapsulate
            | Primitive::Encapsulate
            | Primitive::Aead(_)
            | Primitive::Hash(_)
            | Primitive::Hmac(_)
            | Primitive::Random => Offer::Yes,
        }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        let (secret, public) = match algorithm {
            KeyAlgorithm::EcdsaP256 => nist::ecdsa_p256::generate()?,
            KeyAlgorithm::EcdsaP384 => nist::ecdsa_p384::generate()?,
            KeyAlgorithm::EcdsaP521 => nist::ecdsa_p521::generate()?,
            // A seed is any 32 bytes.
            KeyAlgorithm::Ed25519 | KeyAlgorithm::MlDsa44 | KeyAlgorithm::MlDsa65 | KeyAlgorithm::MlDsa87 => {
                let seed = random_array::<32>()?;
                (Zeroizing::new(seed.to_vec()), self.derive_public(algorithm, seed.as_slice())?)
            }
            #[cfg(feature = "comparison")]
            _ => rsa::generate(algorithm)?,
            #[cfg(not(feature = "comparison"))]
            _ => return Err(Fault::Unsupported),
        };
        Ok(PrivateKeyMaterial::new(algorithm, secret, public))
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        match algorithm {
            KeyAlgorithm::Ed25519 => Ok(ed25519::load(secret)?.verifying_key().to_bytes().to_vec()),
            KeyAlgorithm::EcdsaP256 => nist::ecdsa_p256::derive_public(secret),
            KeyAlgorithm::EcdsaP384 => nist::ecdsa_p384::derive_public(secret),
            KeyAlgorithm::EcdsaP521 => nist::ecdsa_p521::derive_public(secret),
            KeyAlgorithm::MlDsa44 => lattice::derive_public::<ml_dsa::MlDsa44>(secret),
            KeyAlgorithm::MlDsa65 => lattice::derive_public::<ml_dsa::MlDsa65>(secret),
            KeyAlgorithm::MlDsa87 => lattice::derive_public::<ml_dsa::MlDsa87>(secret),
            #[cfg(feature = "comparison")]
            _ => rsa::derive_public(algorithm, secret),
            #[cfg(not(feature = "comparison"))]
            _ => Err(Fault::Unsupported),
        }
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        match key.algorithm() {
            KeyAlgorithm::Ed25519 => ed25519::load_key(key.secret(), key.public()),
            KeyAlgorithm::EcdsaP256 => nist::ecdsa_p256::load_key(key.secret(), key.public()),
            KeyAlgorithm::EcdsaP384 => nist::ecdsa_p384::load_key(key.secret(), key.public()),
            KeyAlgorithm::EcdsaP521 => nist::ecdsa_p521::load_key(key.secret(), key.public()),
            KeyAlgorithm::MlDsa44 => lattice::load_key::<ml_dsa::MlDsa44>(key, SignatureScheme::MlDsa44),
            KeyAlgorithm::MlDsa65 => lattice::load_key::<ml_dsa::MlDsa65>(key, SignatureScheme::MlDsa65),
            KeyAlgorithm::MlDsa87 => lattice::load_key::<ml_dsa::MlDsa87>(key, SignatureScheme::MlDsa87),
            #[cfg(feature = "comparison")]
            _ => rsa::load_key(key),
            #[cfg(not(feature = "comparison"))]
            _ => Err(Fault::Unsupported),
        }
    }

    fn check_public(&self, algorithm: KeyAlgorithm, public: &[u8]) -> Result<(), Fault> {
        match algorithm {
            KeyAlgorithm::Ed25519 => ed25519::load_public(public).map(|_| ()),
            KeyAlgorithm::EcdsaP256 => nist::ecdsa_p256::load_public(public).map(|_| ()),
            KeyAlgorithm::EcdsaP384 => nist::ecdsa_p384::load_public(public).map(|_| ()),
            KeyAlgorithm::EcdsaP521 => nist::ecdsa_p521::load_public(public).map(|_| ()),
            // Every string of the right length is a key (FIPS 204 algorithm 23).
            KeyAlgorithm::MlDsa44 | KeyAlgorithm::MlDsa65 | KeyAlgorithm::MlDsa87 => {
                if algorithm.public_bytes() == Some(public.len()) { Ok(()) } else { Err(BAD_PUBLIC) }
            }
            #[cfg(feature = "comparison")]
            _ => rsa::check_public(algorithm, public),
            #[cfg(not(feature = "comparison"))]
            _ => Err(Fault::Unsupported),
        }
    }

    fn verify(
        &self,
        algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        if !scheme.fits(algorithm) {
            return Err(Fault::Unsupported);
        }
        match algorithm {
            KeyAlgorithm::Ed25519 => ed25519::verify(public, message, signature),
            KeyAlgorithm::EcdsaP256 => nist::ecdsa_p256::verify(public, message, signature),
            KeyAlgorithm::EcdsaP384 => nist::ecdsa_p384::verify(public, message, signature),
            KeyAlgorithm::EcdsaP521 => nist::ecdsa_p521::verify(public, message, signature),
            KeyAlgorithm::MlDsa44 => lattice::verify::<ml_dsa::MlDsa44>(public, message, signature),
            KeyAlgorithm::MlDsa65 => lattice::verify::<ml_dsa::MlDsa65>(public, message, signature),
            KeyAlgorithm::MlDsa87 => lattice::verify::<ml_dsa::MlDsa87>(public, message, signature),
            #[cfg(feature = "comparison")]
            _ => rsa::verify(algorithm, scheme, public, message, signature),
            #[cfg(not(feature = "comparison"))]
            _ => Err(Fault::Unsupported),
        }
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        match group {
            DhGroup::X25519 => self.load_agreement(group, random_array::<32>()?.as_slice()),
            DhGroup::P256 => nist::start_agreement::<p256::NistP256>(),
            DhGroup::P384 => nist::start_agreement::<p384::NistP384>(),
        }
    }

    fn load_agreement(&self, group: DhGroup, private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        match group {
            DhGroup::X25519 => x25519::load(private),
            DhGroup::P256 => nist::load_agreement::<p256::NistP256>(private),
            DhGroup::P384 => nist::load_agreement::<p384::NistP384>(private),
        }
    }

    fn start_decapsulation(&self) -> Result<Box<dyn Decapsulation>, Fault> {
        let seed = random_array::<64>()?;
        self.load_decapsulation(Some(&seed), None)
    }

    fn load_decapsulation(
        &self,
        seed: Option<&[u8; 64]>,
        expanded: Option<&[u8]>,
    ) -> Result<Box<dyn Decapsulation>, Fault> {
        lattice::load_decapsulation(seed, expanded)
    }

    fn encapsulate(&self, public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
        lattice::encapsulate(public)
    }

    fn aead(&self, algorithm: AeadAlgorithm, key: &[u8]) -> Result<Box<dyn AeadKey>, Fault> {
        match algorithm {
            AeadAlgorithm::Aes128Gcm => symmetric::aead::<aes_gcm::Aes128Gcm>(key),
            AeadAlgorithm::Aes256Gcm => symmetric::aead::<aes_gcm::Aes256Gcm>(key),
            AeadAlgorithm::ChaCha20Poly1305 => symmetric::aead::<chacha20poly1305::ChaCha20Poly1305>(key),
        }
    }

    fn hash(&self, algorithm: HashAlgorithm, parts: &[&[u8]], out: &mut [u8]) -> Result<(), Fault> {
        match algorithm {
            HashAlgorithm::Sha256 => symmetric::hash::<sha2::Sha256>(parts, out),
            HashAlgorithm::Sha384 => symmetric::hash::<sha2::Sha384>(parts, out),
            HashAlgorithm::Sha512 => symmetric::hash::<sha2::Sha512>(parts, out),
        }
        Ok(())
    }

    fn start_hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Fault> {
        Ok(match algorithm {
            HashAlgorithm::Sha256 => symmetric::start_hash::<sha2::Sha256>(),
            HashAlgorithm::Sha384 => symmetric::start_hash::<sha2::Sha384>(),
            HashAlgorithm::Sha512 => symmetric::start_hash::<sha2::Sha512>(),
        })
    }

    fn hmac(&self, algorithm: HashAlgorithm, key: &[u8]) -> Result<Box<dyn HmacKey>, Fault> {
        match algorithm {
            HashAlgorithm::Sha256 => symmetric::hmac::<hmac::Hmac<sha2::Sha256>>(key),
            HashAlgorithm::Sha384 => symmetric::hmac::<hmac::Hmac<sha2::Sha384>>(key),
            HashAlgorithm::Sha512 => symmetric::hmac::<hmac::Hmac<sha2::Sha512>>(key),
        }
    }

    fn random(&self, out: &mut [u8]) -> Result<(), Fault> {
        getrandom::fill(out).map_err(|_| NO_RANDOMNESS)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_exchanges_everything_with_aws_lc() {
        crate::provider::round_trip::check(&RustCrypto);
    }

    #[test]
    fn ed25519_keys_of_low_order_or_not_reduced_are_refused() {
        let check = |public: &[u8; 32], signature: &[u8; 64]| {
            RustCrypto.verify(KeyAlgorithm::Ed25519, SignatureScheme::Ed25519, public, b"message", signature)
        };
        // The identity verifies everything by the plain equation: R = the identity, s = 0.
        let mut identity = [0; 32];
        identity[0] = 1;
        let mut signature = [0; 64];
        signature[0] = 1;
        assert_eq!(check(&identity, &signature), Err(BAD_PUBLIC));

        // The same point with y = p + 1, and y = p + 3, which is a point of the whole group.
        for lowest in [0xee, 0xf0] {
            let mut public = [0xff; 32];
            (public[0], public[31]) = (lowest, 0x7f);
            assert_eq!(check(&public, &signature), Err(BAD_PUBLIC));
        }
        let mut largest = [0xff; 32];
        (largest[0], largest[31]) = (0xec, 0xff);
        assert!(ed25519::is_reduced(&largest));
    }

    #[test]
    fn a_share_of_x25519_need_not_be_reduced() {
        // RFC 7748 §5: u = p + 9 is the base point, and the highest bit is ignored.
        let mut unreduced = [0xff; 32];
        (unreduced[0], unreduced[31]) = (0xf6, 0xff);
        let mut base = [0; 32];
        base[0] = 9;
        let secret = |share: &[u8]| {
            RustCrypto.load_agreement(DhGroup::X25519, &[7; 32]).unwrap().finish(share).unwrap()
        };
        assert_eq!(secret(&unreduced).as_bytes(), secret(&base).as_bytes());
    }

    #[test]
    fn signatures_are_hedged() {
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP521, KeyAlgorithm::MlDsa44] {
            let key = RustCrypto.load_key(&RustCrypto.generate_key(algorithm).unwrap()).unwrap();
            let sign = || key.sign(algorithm.default_scheme(), b"message").unwrap();
            assert_ne!(sign(), sign(), "{algorithm}");
        }
    }
}
