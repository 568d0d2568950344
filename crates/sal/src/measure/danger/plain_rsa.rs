//! RSA by plain arithmetic, for keys of 1024 bits, which no source signs with any more.
//!
//! It is here to be measured and for nothing else. [`PlainRsa`] is in no list of providers, offers its operations as unsafe,
//! so that no selection takes it, and knows one key of 1024 bits, whose private half is published with this source. It
//! blinds nothing and makes its sums in a portable library, so it is slower than the assembly of the other sources: it
//! takes keys of 2048 bits as well, so that there is a ratio of like to like.

use std::fmt;
use std::sync::Arc;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, NonZero, Odd};
use rustls::SignatureScheme as TlsScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use zeroize::Zeroizing;

use crate::formats::spki;
use crate::provider::{Fault, Offer, PrivateKey, Provider};
use crate::{
    KeyAlgorithm, Primitive, PrivateKeyMaterial, PublicKey, SalError, SignError, SignatureScheme, Signer,
    hash, random,
};

/// Why it is never chosen.
const WARNING: &str = "for measurements: plain arithmetic without blinding";
/// `DigestInfo` of SHA-256 before the digest (RFC 8017 §9.2, note 1).
const SHA256_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];
const REFUSED: Fault = Fault::Refused("the signature does not belong to the message");
const BAD_KEY: Fault = Fault::Refused("the key is malformed");

/// The source. See the module.
#[derive(Debug)]
pub struct PlainRsa;

/// The one there is.
pub static PLAIN_RSA: PlainRsa = PlainRsa;

impl Provider for PlainRsa {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn credit(&self) -> &'static str {
        "crypto-bigint 0.7, plain RSA for measurements"
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        match primitive {
            Primitive::Sign(KeyAlgorithm::Rsa1024 | KeyAlgorithm::Rsa2048)
            | Primitive::Verify(KeyAlgorithm::Rsa1024 | KeyAlgorithm::Rsa2048) => Offer::Unsafe(WARNING),
            _ => Offer::No,
        }
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        Ok(Box::new(Private::new(key).ok_or(BAD_KEY)?))
    }

    fn verify(
        &self,
        _algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let (modulus, exponent) = spki::rsa_numbers(public).ok_or(BAD_KEY)?;
        if signature.len() != modulus.len() {
            return Err(REFUSED);
        }
        let bits = bits(modulus.len()).ok_or(BAD_KEY)?;
        let number = |bytes| BoxedUint::from_be_slice(bytes, bits).map_err(|_| BAD_KEY);
        let ring = ring(number(modulus)?).ok_or(BAD_KEY)?;
        let exponent = BoxedUint::from_be_slice(exponent, 64).map_err(|_| BAD_KEY)?;
        let encoded = BoxedMontyForm::new(number(signature)?, &ring)
            .pow_bounded_exp(&exponent, exponent.bits())
            .retrieve()
            .to_be_bytes();
        let good = match scheme {
            SignatureScheme::RsaPkcs1Sha256 => *encoded == *pkcs1(message, modulus.len()).ok_or(REFUSED)?,
            SignatureScheme::RsaPssSha256 => is_pss(message, &encoded).is_some(),
            _ => return Err(Fault::Unsupported),
        };
        if good { Ok(()) } else { Err(REFUSED) }
    }
}

/// The published key of 1024 bits.
#[must_use]
pub fn material() -> PrivateKeyMaterial {
    let secret = include_bytes!("rsa-1024.pkcs1");
    let public = numbers(secret).map(|[n, e, ..]| spki::rsa_public(n, e)).unwrap_or_default();
    PrivateKeyMaterial::new(KeyAlgorithm::Rsa1024, Zeroizing::new(secret.to_vec()), public)
}

/// The published key of 1024 bits, to sign handshakes and certificates that are measured.
///
/// # Errors
/// [`SalError::BadPrivateKey`] when it is damaged, which it is not.
pub fn signer() -> Result<Arc<dyn Signer>, SalError> {
    let damaged = || SalError::BadPrivateKey { reason: "the key to measure with is damaged".to_owned() };
    let material = material();
    let public = PublicKey::from_raw(KeyAlgorithm::Rsa1024, material.public())?;
    Ok(Arc::new(Published { public, private: Private::new(&material).ok_or_else(damaged)? }))
}

/// What verifies nothing but signatures by RSA keys of 1024 bits. No configuration of the cluster has it.
#[must_use]
pub fn verification() -> WebPkiSupportedAlgorithms {
    type All = [&'static dyn SignatureVerificationAlgorithm; 2];
    static PKCS1: Verifier = Verifier(SignatureScheme::RsaPkcs1Sha256);
    static PSS: Verifier = Verifier(SignatureScheme::RsaPssSha256);
    static ALL: All = [&PKCS1, &PSS];
    static MAPPING: [(TlsScheme, &[&dyn SignatureVerificationAlgorithm]); 2] =
        [(TlsScheme::RSA_PSS_SHA256, &[&PSS]), (TlsScheme::RSA_PKCS1_SHA256, &[&PKCS1])];
    WebPkiSupportedAlgorithms { all: &ALL, mapping: &MAPPING }
}

#[derive(Debug)]
struct Verifier(SignatureScheme);

impl SignatureVerificationAlgorithm for Verifier {
    fn verify_signature(
        &self,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        if spki::modulus_bits(public) != Some(1024) {
            return Err(InvalidSignature);
        }
        PLAIN_RSA
            .verify(KeyAlgorithm::Rsa1024, self.0, public, message, signature)
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        match self.0 {
            SignatureScheme::RsaPssSha256 => alg_id::RSA_PSS_SHA256,
            _ => alg_id::RSA_PKCS1_SHA256,
        }
    }
}

struct Published {
    public: PublicKey,
    private: Private,
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Signer for Published {
    fn algorithm(&self) -> KeyAlgorithm {
        KeyAlgorithm::Rsa1024
    }

    fn public_key(&self) -> PublicKey {
        self.public.clone()
    }

    fn sign_with(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let failed = |fault: Fault| SignError { algorithm: self.algorithm(), reason: fault.to_string() };
        self.private.sign(scheme, message).map_err(failed)
    }
}

/// A private key, ready for the Chinese remainder theorem (RFC 8017 §5.1.2).
struct Private {
    /// Length of the modulus, in bytes.
    length: usize,
    p: BoxedMontyParams,
    q: BoxedMontyParams,
    dp: BoxedUint,
    dq: BoxedUint,
    /// The inverse of q mod p.
    inverse: BoxedMontyForm,
}

impl Private {
    fn new(key: &PrivateKeyMaterial) -> Option<Self> {
        let [n, _, _, p, q, dp, dq, inverse] = numbers(key.secret())?;
        let half = bits(n.len() / 2)?;
        let number = |bytes| BoxedUint::from_be_slice(bytes, half).ok();
        let (p, q) = (ring(number(p)?)?, ring(number(q)?)?);
        let inverse = BoxedMontyForm::new(number(inverse)?, &p);
        Some(Self { length: n.len(), p, q, dp: number(dp)?, dq: number(dq)?, inverse })
    }

    /// The signature of an encoded message.
    fn power(&self, encoded: &[u8]) -> Option<Vec<u8>> {
        let full = bits(self.length)?;
        let message = BoxedUint::from_be_slice(encoded, full).ok()?;
        let by_p = reduced(&message, &self.p)?.pow(&self.dp);
        let by_q = reduced(&message, &self.q)?.pow(&self.dq).retrieve();
        let difference = by_p.sub(&reduced(&by_q, &self.p)?);
        let widened = |number: &BoxedUint| BoxedUint::from_be_slice(&number.to_be_bytes(), full).ok();
        let h = widened(&difference.mul(&self.inverse).retrieve())?;
        let q = widened(self.q.modulus().as_ref())?;
        let signature = h.wrapping_mul(&q).wrapping_add(&widened(&by_q)?);
        Some(signature.to_be_bytes().into_vec())
    }
}

impl PrivateKey for Private {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        let encoded = match scheme {
            SignatureScheme::RsaPkcs1Sha256 => pkcs1(message, self.length),
            SignatureScheme::RsaPssSha256 => pss(message, self.length),
            _ => return Err(Fault::Unsupported),
        };
        encoded.and_then(|encoded| self.power(&encoded)).ok_or(Fault::Broken("sign"))
    }
}

fn bits(bytes: usize) -> Option<u32> {
    u32::try_from(bytes * 8).ok()
}

fn ring(modulus: BoxedUint) -> Option<BoxedMontyParams> {
    Option::from(Odd::new(modulus)).map(BoxedMontyParams::new_vartime)
}

/// A number of any length, within a ring.
fn reduced(number: &BoxedUint, ring: &BoxedMontyParams) -> Option<BoxedMontyForm> {
    let modulus: NonZero<BoxedUint> = Option::from(NonZero::new(ring.modulus().as_ref().clone()))?;
    let rest = number.rem_vartime(&modulus).to_be_bytes();
    let length = usize::try_from(ring.bits_precision() / 8).ok()?;
    let tail = rest.get(rest.len().saturating_sub(length)..)?;
    Some(BoxedMontyForm::new(BoxedUint::from_be_slice(tail, ring.bits_precision()).ok()?, ring))
}

/// n, e, d, p, q, d mod (p - 1), d mod (q - 1), q^-1 mod p of an `RSAPrivateKey` (RFC 8017 appendix A.1.2).
fn numbers(der: &[u8]) -> Option<[&[u8]; 8]> {
    let (content, _) = spki::take(der, 0x30)?;
    let (_version, mut rest) = spki::take(content, 0x02)?;
    let mut all: [&[u8]; 8] = [&[]; 8];
    for one in &mut all {
        let (number, after) = spki::take(rest, 0x02)?;
        *one = number.strip_prefix(&[0]).unwrap_or(number);
        rest = after;
    }
    Some(all)
}

/// EMSA-PKCS1-v1_5 with SHA-256 (RFC 8017 §9.2).
fn pkcs1(message: &[u8], length: usize) -> Option<Vec<u8>> {
    let digest = hash::sha256(message);
    let padding = length.checked_sub(3 + SHA256_INFO.len() + digest.len())?;
    Some([&[0, 1][..], &vec![0xff; padding], &[0], &SHA256_INFO, &digest].concat())
}

/// EMSA-PSS with SHA-256 and a salt as long (RFC 8017 §9.1.1), for a modulus of whole bytes.
fn pss(message: &[u8], length: usize) -> Option<Vec<u8>> {
    let salt: [u8; 32] = random::bytes().ok()?;
    let hashed = salted(message, &salt);
    let padding = length.checked_sub(2 * 32 + 2)?;
    let mut encoded = [&vec![0; padding][..], &[1], &salt].concat();
    mask(&mut encoded, &hashed);
    // The number has one bit less than the modulus.
    *encoded.first_mut()? &= 0x7f;
    encoded.extend_from_slice(&hashed);
    encoded.push(0xbc);
    Some(encoded)
}

/// RFC 8017 §9.1.2.
fn is_pss(message: &[u8], encoded: &[u8]) -> Option<()> {
    let (body, last) = encoded.split_at_checked(encoded.len().checked_sub(1)?)?;
    let (masked, hashed) = body.split_at_checked(body.len().checked_sub(32)?)?;
    let mut block = masked.to_vec();
    mask(&mut block, hashed);
    let padding = block.len().checked_sub(33)?;
    *block.first_mut()? &= 0x7f;
    let (zeros, rest) = block.split_at_checked(padding)?;
    let (one, salt) = rest.split_first()?;
    let sound = last == [0xbc] && *one == 1 && zeros.iter().all(|byte| *byte == 0);
    (sound && salted(message, salt) == hashed).then_some(())
}

fn salted(message: &[u8], salt: &[u8]) -> [u8; 32] {
    hash::sha256(&[&[0; 8][..], &hash::sha256(message), salt].concat())
}

/// MGF1 with SHA-256 (RFC 8017 appendix B.2.1), over the block.
fn mask(block: &mut [u8], seed: &[u8]) {
    for (counter, chunk) in (0_u32..).zip(block.chunks_mut(32)) {
        let stream = hash::sha256(&[seed, &counter.to_be_bytes()].concat());
        for (byte, mask) in chunk.iter_mut().zip(stream) {
            *byte ^= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::provider::ALL;
    use crate::selection::{self, Obstacle, Policy};
    use crate::{MemoryKey, Selection, selftest};

    #[test]
    fn its_signatures_are_those_of_everybody_else() {
        let material = selftest::known_key(KeyAlgorithm::Rsa2048).unwrap();
        let public = PublicKey::from_raw(KeyAlgorithm::Rsa2048, material.public()).unwrap();
        let other = MemoryKey::from_material(material.clone()).unwrap();
        let private = PLAIN_RSA.load_key(&material).unwrap();
        for scheme in [SignatureScheme::RsaPkcs1Sha256, SignatureScheme::RsaPssSha256] {
            let signature = private.sign(scheme, b"message").unwrap();
            public.verify_with(scheme, b"message", &signature).unwrap();
            let theirs = other.sign_with(scheme, b"message").unwrap();
            let verify = |message: &[u8], signature: &[u8]| {
                PLAIN_RSA.verify(KeyAlgorithm::Rsa2048, scheme, material.public(), message, signature)
            };
            verify(b"message", &theirs).unwrap();
            assert!(verify(b"messagE", &theirs).is_err());
            assert!(verify(b"message", theirs.get(1..).unwrap()).is_err());
        }
    }

    #[test]
    fn the_published_key_signs_and_is_verified_elsewhere() {
        let signer = signer().unwrap();
        let public = signer.public_key();
        let scheme = SignatureScheme::RsaPkcs1Sha256;
        let signature = signer.sign_with(scheme, b"message").unwrap();
        // aws-lc verifies such signatures "for legacy use only".
        public.verify_with(scheme, b"message", &signature).unwrap();
        let pss = signer.sign_with(SignatureScheme::RsaPssSha256, b"message").unwrap();
        let verify = |scheme, message: &[u8], signature: &[u8]| {
            PLAIN_RSA.verify(KeyAlgorithm::Rsa1024, scheme, public.raw(), message, signature)
        };
        verify(SignatureScheme::RsaPssSha256, b"message", &pss).unwrap();
        assert!(verify(SignatureScheme::RsaPssSha256, b"messagE", &pss).is_err());
        assert!(signer.sign_with(SignatureScheme::RsaPkcs1Sha512, b"message").is_err());
    }

    #[test]
    fn nothing_that_guards_anything_can_use_it() {
        assert!(ALL.iter().all(|provider| provider.name() != PLAIN_RSA.name()));
        // Even a selection that has it does not take it.
        let with: Vec<&'static dyn Provider> =
            ALL.iter().copied().chain([&PLAIN_RSA as &'static dyn Provider]).collect();
        let selection: &'static Selection = Box::leak(Box::new(Selection::new(&with, Policy::default())));
        let primitive = Primitive::Sign(KeyAlgorithm::Rsa1024);
        assert!(selection.source(primitive).is_err());
        let ranking = selection.ranking(primitive);
        let place = ranking.iter().find(|place| place.provider.name() == PLAIN_RSA.name()).unwrap();
        assert_eq!(place.obstacle, Some(Obstacle::Unsafe(WARNING)));
        assert!(MemoryKey::from_material_in(selection, material()).is_err());
        // Production verifies handshakes by lists without it.
        let composed = crate::tls::compose(selection::global(), crate::algorithm::KexGroup::DEFAULT).unwrap();
        let signature = signer().unwrap().sign(b"message").unwrap();
        let all = composed.signature_verification_algorithms.all;
        assert!(
            all.iter()
                .all(|one| { one.verify_signature(material().public(), b"message", &signature).is_err() })
        );
    }
}
