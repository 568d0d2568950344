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

use getrandom::SysRng;
use zeroize::{Zeroize, Zeroizing};

use super::{
    AeadKey, Agreement, Decapsulation, Fault, HashContext, HmacKey, Offer, PrivateKey, Provider, Secret,
};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial};

const NO_RANDOMNESS: Fault = Fault::Broken("give random bytes");
const BAD_KEY: Fault = Fault::Refused("the private key is malformed");
const BAD_PUBLIC: Fault = Fault::Refused("the public key is malformed");
const BAD_SIGNATURE: Fault = Fault::Refused("the signature is not valid for this key and message");
const BAD_SHARE: Fault = Fault::Refused("the key share is malformed or of low order");
const MISMATCH: Fault = Fault::Refused("the public key does not belong to the private key");

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
                if algorithm.kind() == KeyKind::Rsa =>
            {
                Offer::No
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
            KeyAlgorithm::EcdsaP256 => nist_p256::generate()?,
            KeyAlgorithm::EcdsaP384 => nist_p384::generate()?,
            KeyAlgorithm::EcdsaP521 => nist_p521::generate()?,
            // A seed is any 32 bytes.
            KeyAlgorithm::Ed25519 | KeyAlgorithm::MlDsa44 | KeyAlgorithm::MlDsa65 | KeyAlgorithm::MlDsa87 => {
                let seed = random_array::<32>()?;
                (Zeroizing::new(seed.to_vec()), self.derive_public(algorithm, seed.as_slice())?)
            }
            _ => return Err(Fault::Unsupported),
        };
        Ok(PrivateKeyMaterial::new(algorithm, secret, public))
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        match algorithm {
            KeyAlgorithm::Ed25519 => Ok(ed25519::load(secret)?.verifying_key().to_bytes().to_vec()),
            KeyAlgorithm::EcdsaP256 => nist_p256::derive_public(secret),
            KeyAlgorithm::EcdsaP384 => nist_p384::derive_public(secret),
            KeyAlgorithm::EcdsaP521 => nist_p521::derive_public(secret),
            KeyAlgorithm::MlDsa44 => lattice::derive_public::<ml_dsa::MlDsa44>(secret),
            KeyAlgorithm::MlDsa65 => lattice::derive_public::<ml_dsa::MlDsa65>(secret),
            KeyAlgorithm::MlDsa87 => lattice::derive_public::<ml_dsa::MlDsa87>(secret),
            _ => Err(Fault::Unsupported),
        }
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        match key.algorithm() {
            KeyAlgorithm::Ed25519 => ed25519::load_key(key.secret(), key.public()),
            KeyAlgorithm::EcdsaP256 => nist_p256::load_key(key.secret(), key.public()),
            KeyAlgorithm::EcdsaP384 => nist_p384::load_key(key.secret(), key.public()),
            KeyAlgorithm::EcdsaP521 => nist_p521::load_key(key.secret(), key.public()),
            KeyAlgorithm::MlDsa44 => lattice::load_key::<ml_dsa::MlDsa44>(key, SignatureScheme::MlDsa44),
            KeyAlgorithm::MlDsa65 => lattice::load_key::<ml_dsa::MlDsa65>(key, SignatureScheme::MlDsa65),
            KeyAlgorithm::MlDsa87 => lattice::load_key::<ml_dsa::MlDsa87>(key, SignatureScheme::MlDsa87),
            _ => Err(Fault::Unsupported),
        }
    }

    fn check_public(&self, algorithm: KeyAlgorithm, public: &[u8]) -> Result<(), Fault> {
        match algorithm {
            KeyAlgorithm::Ed25519 => ed25519::load_public(public).map(|_| ()),
            KeyAlgorithm::EcdsaP256 => nist_p256::load_public(public).map(|_| ()),
            KeyAlgorithm::EcdsaP384 => nist_p384::load_public(public).map(|_| ()),
            KeyAlgorithm::EcdsaP521 => nist_p521::load_public(public).map(|_| ()),
            // Every string of the right length is a key (FIPS 204 algorithm 23).
            KeyAlgorithm::MlDsa44 | KeyAlgorithm::MlDsa65 | KeyAlgorithm::MlDsa87 => {
                if algorithm.public_bytes() == Some(public.len()) { Ok(()) } else { Err(BAD_PUBLIC) }
            }
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
            KeyAlgorithm::EcdsaP256 => nist_p256::verify(public, message, signature),
            KeyAlgorithm::EcdsaP384 => nist_p384::verify(public, message, signature),
            KeyAlgorithm::EcdsaP521 => nist_p521::verify(public, message, signature),
            KeyAlgorithm::MlDsa44 => lattice::verify::<ml_dsa::MlDsa44>(public, message, signature),
            KeyAlgorithm::MlDsa65 => lattice::verify::<ml_dsa::MlDsa65>(public, message, signature),
            KeyAlgorithm::MlDsa87 => lattice::verify::<ml_dsa::MlDsa87>(public, message, signature),
            _ => Err(Fault::Unsupported),
        }
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        match group {
            DhGroup::X25519 => self.load_agreement(group, random_array::<32>()?.as_slice()),
            DhGroup::P256 => ecdh::generate::<p256::NistP256>(),
            DhGroup::P384 => ecdh::generate::<p384::NistP384>(),
        }
    }

    fn load_agreement(&self, group: DhGroup, private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        match group {
            DhGroup::X25519 => x25519::load(private),
            DhGroup::P256 => ecdh::load::<p256::NistP256>(private),
            DhGroup::P384 => ecdh::load::<p384::NistP384>(private),
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

fn random_array<const N: usize>() -> Result<Zeroizing<[u8; N]>, Fault> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut_slice()).map_err(|_| NO_RANDOMNESS)?;
    Ok(bytes)
}

mod ed25519 {
    use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

    use super::*;

    pub(super) fn load(secret: &[u8]) -> Result<SigningKey, Fault> {
        Ok(SigningKey::from_bytes(secret.try_into().map_err(|_| BAD_KEY)?))
    }

    pub(super) fn load_key(secret: &[u8], public: &[u8]) -> Result<Box<dyn PrivateKey>, Fault> {
        let key = load(secret)?;
        if key.verifying_key().as_bytes() != public {
            return Err(MISMATCH);
        }
        Ok(Box::new(Key(key)))
    }

    pub(super) fn load_public(public: &[u8]) -> Result<VerifyingKey, Fault> {
        let public: &[u8; 32] = public.try_into().map_err(|_| BAD_PUBLIC)?;
        let key = VerifyingKey::from_bytes(public).map_err(|_| BAD_PUBLIC)?;
        if is_reduced(public) && !key.is_weak() { Ok(key) } else { Err(BAD_PUBLIC) }
    }

    pub(super) fn verify(public: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Fault> {
        let key = load_public(public)?;
        let signature = Signature::from_slice(signature).map_err(|_| BAD_SIGNATURE)?;
        key.verify_strict(message, &signature).map_err(|_| BAD_SIGNATURE)
    }

    /// Whether `y` is below `p`, which is `2^255 - 19`. The sign of `x` in the highest bit is not part of it.
    pub(super) fn is_reduced(public: &[u8; 32]) -> bool {
        let [lowest, middle @ .., highest] = public;
        *lowest < 0xed || middle.iter().any(|byte| *byte != 0xff) || highest & 0x7f != 0x7f
    }

    struct Key(SigningKey);

    impl PrivateKey for Key {
        fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
            if scheme != SignatureScheme::Ed25519 {
                return Err(Fault::Unsupported);
            }
            let signature = self.0.try_sign(message).map_err(|_| Fault::Broken("sign"))?;
            Ok(signature.to_bytes().to_vec())
        }
    }
}

/// ECDSA on one curve. It is a macro because the bounds of generic code over the curves are longer than the code.
macro_rules! nist_curve {
    ($module:ident, $library:ident, $scheme:expr) => {
        mod $module {
            use $library::ecdsa::signature::{RandomizedSigner as _, Verifier as _};
            use $library::ecdsa::{DerSignature, SigningKey, VerifyingKey};
            use $library::elliptic_curve::Generate as _;

            use super::*;

            pub(super) fn generate() -> Result<(Zeroizing<Vec<u8>>, Vec<u8>), Fault> {
                let key = SigningKey::try_generate_from_rng(&mut SysRng).map_err(|_| NO_RANDOMNESS)?;
                let scalar = Zeroizing::new(key.to_bytes());
                let public = key.verifying_key().to_sec1_point(false).as_bytes().to_vec();
                Ok((Zeroizing::new(scalar.to_vec()), public))
            }

            // `from_slice` would pad a scalar that is too short.
            fn load(secret: &[u8]) -> Result<SigningKey, Fault> {
                SigningKey::from_bytes(secret.try_into().map_err(|_| BAD_KEY)?).map_err(|_| BAD_KEY)
            }

            pub(super) fn derive_public(secret: &[u8]) -> Result<Vec<u8>, Fault> {
                Ok(load(secret)?.verifying_key().to_sec1_point(false).as_bytes().to_vec())
            }

            pub(super) fn load_key(secret: &[u8], public: &[u8]) -> Result<Box<dyn PrivateKey>, Fault> {
                let key = load(secret)?;
                if key.verifying_key().to_sec1_point(false).as_bytes() != public {
                    return Err(MISMATCH);
                }
                Ok(Box::new(Key(key)))
            }

            pub(super) fn load_public(public: &[u8]) -> Result<VerifyingKey, Fault> {
                if !is_uncompressed(public) {
                    return Err(BAD_PUBLIC);
                }
                VerifyingKey::from_sec1_bytes(public).map_err(|_| BAD_PUBLIC)
            }

            pub(super) fn verify(public: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Fault> {
                let key = load_public(public)?;
                let signature = DerSignature::try_from(signature).map_err(|_| BAD_SIGNATURE)?;
                key.verify(message, &signature).map_err(|_| BAD_SIGNATURE)
            }

            struct Key(SigningKey);

            impl PrivateKey for Key {
                fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
                    if scheme != $scheme {
                        return Err(Fault::Unsupported);
                    }
                    let signature: DerSignature =
                        self.0.try_sign_with_rng(&mut SysRng, message).map_err(|_| Fault::Broken("sign"))?;
                    Ok(signature.as_bytes().to_vec())
                }
            }
        }
    };
}

nist_curve!(nist_p256, p256, SignatureScheme::EcdsaP256Sha256);
nist_curve!(nist_p384, p384, SignatureScheme::EcdsaP384Sha384);
nist_curve!(nist_p521, p521, SignatureScheme::EcdsaP521Sha512);

/// The identity, compressed and hybrid points have other first bytes (SEC 1 §2.3.3).
fn is_uncompressed(point: &[u8]) -> bool {
    point.first() == Some(&0x04)
}

mod ecdh {
    use p256::elliptic_curve::point::AffinePoint;
    use p256::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
    use p256::elliptic_curve::{
        CurveArithmetic, FieldBytesSize, Generate as _, NonZeroScalar, PublicKey, SecretKey,
    };

    use super::*;

    pub(super) fn generate<C>() -> Result<Box<dyn Agreement>, Fault>
    where
        C: CurveArithmetic,
        AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
        FieldBytesSize<C>: ModulusSize,
    {
        let scalar = NonZeroScalar::<C>::try_generate_from_rng(&mut SysRng).map_err(|_| NO_RANDOMNESS)?;
        let half = half(SecretKey::from(*Zeroizing::new(scalar)));
        Ok(half)
    }

    pub(super) fn load<C>(private: &[u8]) -> Result<Box<dyn Agreement>, Fault>
    where
        C: CurveArithmetic,
        AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
        FieldBytesSize<C>: ModulusSize,
    {
        // `from_slice` would pad a scalar that is too short.
        let private = private.try_into().map_err(|_| BAD_KEY)?;
        Ok(half(SecretKey::<C>::from_bytes(private).map_err(|_| BAD_KEY)?))
    }

    fn half<C>(secret: SecretKey<C>) -> Box<dyn Agreement>
    where
        C: CurveArithmetic,
        AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
        FieldBytesSize<C>: ModulusSize,
    {
        let share = secret.public_key().to_sec1_point(false).as_bytes().to_vec();
        Box::new(Half { secret, share })
    }

    struct Half<C: CurveArithmetic> {
        secret: SecretKey<C>,
        share: Vec<u8>,
    }

    impl<C> Agreement for Half<C>
    where
        C: CurveArithmetic,
        AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
        FieldBytesSize<C>: ModulusSize,
    {
        fn share(&self) -> &[u8] {
            &self.share
        }

        fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
            if !is_uncompressed(peer) {
                return Err(BAD_SHARE);
            }
            let peer = PublicKey::<C>::from_sec1_bytes(peer).map_err(|_| BAD_SHARE)?;
            Ok(Secret::new(self.secret.diffie_hellman(&peer).raw_secret_bytes()))
        }
    }
}

mod x25519 {
    use x25519_dalek::{PublicKey, StaticSecret};

    use super::*;

    pub(super) fn load(private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        let private = Zeroizing::new(<[u8; 32]>::try_from(private).map_err(|_| BAD_KEY)?);
        let secret = StaticSecret::from(*private);
        let share = PublicKey::from(&secret);
        Ok(Box::new(Half { secret, share }))
    }

    struct Half {
        secret: StaticSecret,
        share: PublicKey,
    }

    impl Agreement for Half {
        fn share(&self) -> &[u8] {
            self.share.as_bytes()
        }

        fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
            let peer: [u8; 32] = peer.try_into().map_err(|_| BAD_SHARE)?;
            let secret = self.secret.diffie_hellman(&PublicKey::from(peer));
            // RFC 7748 §6.1: a peer that sends a point of low order fixes the secret.
            if !secret.was_contributory() {
                return Err(BAD_SHARE);
            }
            Ok(Secret::new(secret.as_bytes()))
        }
    }
}

mod lattice {
    use ml_dsa::{ExpandedSigningKey, MlDsaParams, Signature, VerifyingKey};
    use ml_kem::{Decapsulate as _, DecapsulationKey768, EncapsulationKey768, KeyExport as _};

    use super::*;

    fn expand<P: MlDsaParams>(secret: &[u8]) -> Result<ExpandedSigningKey<P>, Fault> {
        Ok(ExpandedSigningKey::from_seed(secret.try_into().map_err(|_| BAD_KEY)?))
    }

    pub(super) fn derive_public<P: MlDsaParams>(secret: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(expand::<P>(secret)?.verifying_key().encode().to_vec())
    }

    pub(super) fn load_key<P: MlDsaParams + 'static>(
        key: &PrivateKeyMaterial,
        scheme: SignatureScheme,
    ) -> Result<Box<dyn PrivateKey>, Fault> {
        let expanded = Box::new(Key { key: expand::<P>(key.secret())?, scheme });
        if expanded.key.verifying_key().encode().as_slice() != key.public() {
            return Err(MISMATCH);
        }
        Ok(expanded)
    }

    pub(super) fn verify<P: MlDsaParams>(
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let public = public.try_into().map_err(|_| BAD_PUBLIC)?;
        let signature = Signature::<P>::try_from(signature).map_err(|_| BAD_SIGNATURE)?;
        if VerifyingKey::<P>::decode(public).verify_with_context(message, &[], &signature) {
            Ok(())
        } else {
            Err(BAD_SIGNATURE)
        }
    }

    struct Key<P: MlDsaParams> {
        key: ExpandedSigningKey<P>,
        scheme: SignatureScheme,
    }

    impl<P: MlDsaParams> PrivateKey for Key<P>
    where
        ExpandedSigningKey<P>: Send + Sync,
    {
        fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
            if scheme != self.scheme {
                return Err(Fault::Unsupported);
            }
            let signature =
                self.key.sign_randomized(message, &[], &mut SysRng).map_err(|_| Fault::Broken("sign"))?;
            Ok(signature.encode().to_vec())
        }
    }

    // Loading expanded keys is deprecated in favour of seeds, but known answers come as either.
    #[allow(deprecated)]
    pub(super) fn load_decapsulation(
        seed: Option<&[u8; 64]>,
        expanded: Option<&[u8]>,
    ) -> Result<Box<dyn Decapsulation>, Fault> {
        let from_seed = seed.map(|seed| DecapsulationKey768::from_seed((*seed).into()));
        let from_expanded = expanded
            .map(|expanded| {
                let expanded = expanded.try_into().map_err(|_| BAD_KEY)?;
                DecapsulationKey768::from_expanded(expanded).map_err(|_| BAD_KEY)
            })
            .transpose()?;
        let key = match (from_seed, from_expanded) {
            (Some(key), Some(other)) if key == other => key,
            (Some(_), Some(_)) => return Err(Fault::Refused("the seed does not give the expanded key")),
            (Some(key), None) | (None, Some(key)) => key,
            (None, None) => return Err(Fault::Unsupported),
        };
        let public = key.encapsulation_key().to_bytes().to_vec();
        Ok(Box::new(Half { key, public }))
    }

    struct Half {
        key: DecapsulationKey768,
        public: Vec<u8>,
    }

    impl Decapsulation for Half {
        fn public(&self) -> &[u8] {
            &self.public
        }

        fn finish(self: Box<Self>, ciphertext: &[u8]) -> Result<Secret, Fault> {
            let mut secret = self
                .key
                .decapsulate_slice(ciphertext)
                .map_err(|_| Fault::Refused("the ML-KEM ciphertext has another length"))?;
            let kept = Secret::new(&secret);
            secret.as_mut_slice().zeroize();
            Ok(kept)
        }
    }

    pub(super) fn encapsulate(public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
        let refused = Fault::Refused("the ML-KEM key is malformed");
        let key = EncapsulationKey768::new(public.try_into().map_err(|_| refused)?).map_err(|_| refused)?;
        // The library's own way to draw the message panics when the system has no randomness.
        let message = random_array::<32>()?;
        let mut message = ml_kem::B32::from(*message);
        let (ciphertext, mut secret) = key.encapsulate_deterministic(&message);
        message.as_mut_slice().zeroize();
        let kept = Secret::new(&secret);
        secret.as_mut_slice().zeroize();
        Ok((ciphertext.to_vec(), kept))
    }
}

mod symmetric {
    use aes_gcm::KeyInit;
    use aes_gcm::aead::AeadInOut;
    use aes_gcm::aead::consts::{U12, U16};
    use hmac::Mac;
    use sha2::Digest;

    use super::*;

    pub(super) fn aead<C>(key: &[u8]) -> Result<Box<dyn AeadKey>, Fault>
    where
        C: KeyInit + AeadInOut<NonceSize = U12, TagSize = U16> + Send + Sync + 'static,
    {
        let cipher = C::new_from_slice(key).map_err(|_| Fault::Refused("the key has another length"))?;
        Ok(Box::new(Cipher(cipher)))
    }

    struct Cipher<C>(C);

    impl<C> AeadKey for Cipher<C>
    where
        C: AeadInOut<NonceSize = U12, TagSize = U16> + Send + Sync,
    {
        fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault> {
            self.0
                .encrypt_inout_detached(&(*nonce).into(), aad, message.into())
                .map(Into::into)
                .map_err(|_| Fault::Broken("encrypt"))
        }

        fn open(
            &self,
            nonce: &[u8; 12],
            aad: &[u8],
            message: &mut [u8],
            tag: &[u8; 16],
        ) -> Result<(), Fault> {
            self.0
                .decrypt_inout_detached(&(*nonce).into(), aad, message.into(), &(*tag).into())
                .map_err(|_| Fault::Refused("the message or its tag is not as it was"))
        }
    }

    pub(super) fn hash<D: Digest>(parts: &[&[u8]], out: &mut [u8]) {
        let mut digest = D::new();
        for part in parts {
            digest.update(part);
        }
        fill(out, &digest.finalize());
    }

    pub(super) fn start_hash<D: Digest + Clone + Send + Sync + 'static>() -> Box<dyn HashContext> {
        Box::new(Running(D::new()))
    }

    struct Running<D>(D);

    impl<D: Digest + Clone + Send + Sync + 'static> HashContext for Running<D> {
        fn update(&mut self, data: &[u8]) {
            self.0.update(data);
        }

        fn fork(&self) -> Box<dyn HashContext> {
            Box::new(Self(self.0.clone()))
        }

        fn finish(self: Box<Self>, out: &mut [u8]) {
            fill(out, &self.0.finalize());
        }
    }

    pub(super) fn hmac<M: Mac + KeyInit + Clone + Send + Sync + 'static>(
        key: &[u8],
    ) -> Result<Box<dyn HmacKey>, Fault> {
        // HMAC takes a key of any length; the error is there for other constructions.
        let keyed = <M as KeyInit>::new_from_slice(key).map_err(|_| Fault::Broken("take a key for HMAC"))?;
        Ok(Box::new(Keyed(keyed)))
    }

    struct Keyed<M>(M);

    impl<M: Mac + Clone + Send + Sync> HmacKey for Keyed<M> {
        fn sign(&self, parts: &[&[u8]], out: &mut [u8]) {
            let mut mac = self.0.clone();
            for part in parts {
                mac.update(part);
            }
            // Through HKDF this is key material.
            let mut tag = mac.finalize().into_bytes();
            fill(out, &tag);
            tag.as_mut_slice().zeroize();
        }
    }

    fn fill(out: &mut [u8], from: &[u8]) {
        for (to, from) in out.iter_mut().zip(from) {
            *to = *from;
        }
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
