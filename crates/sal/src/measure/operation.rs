//! One operation of a primitive by one provider, ready to be repeated.

use super::MeasureError;
use super::danger::plain_rsa::{self, PLAIN_RSA};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind};
use crate::provider::{Offer, Provider};
use crate::{Primitive, PrivateKeyMaterial, selftest};

/// What is repeated.
pub type Work = Box<dyn FnMut() + Send>;

/// A part of a primitive that is worth a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The operation by which sources are compared.
    Whole,
    /// The fresh share or key alone, of an agreement or a decapsulation.
    Share,
    /// Encryption or hashing of so many bytes.
    Bytes(usize),
}

/// Sizes of messages for ciphers and hashes, in bytes: a keystroke, a packet, a full TLS record.
pub const SIZES: [usize; 3] = [64, 1024, 16 * 1024];

/// The parts that are measured for a primitive.
#[must_use]
pub fn parts(primitive: Primitive) -> Vec<Part> {
    match primitive {
        Primitive::Agree(_) | Primitive::Decapsulate => vec![Part::Share, Part::Whole],
        Primitive::Aead(_) | Primitive::Hash(_) => SIZES.into_iter().map(Part::Bytes).collect(),
        _ => vec![Part::Whole],
    }
}

/// The part by which sources are compared.
#[must_use]
pub fn deciding_part(primitive: Primitive) -> Part {
    match primitive {
        Primitive::Aead(_) => Part::Bytes(16 * 1024),
        Primitive::Hash(_) => Part::Bytes(1024),
        _ => Part::Whole,
    }
}

/// Whether a provider can be measured on this machine for a primitive: it offers it, with or without a warning, and the
/// CPU has what it needs.
#[must_use]
pub fn is_measurable(provider: &dyn Provider, primitive: Primitive) -> bool {
    provider.offer(primitive) != Offer::No && provider.needs().iter().all(|feature| feature.is_present())
}

/// Prepares an operation. `helper` makes the keys and peers that it needs and is not measured.
///
/// # Errors
/// What the provider failed at.
pub fn prepare(
    provider: &'static dyn Provider,
    helper: &'static dyn Provider,
    primitive: Primitive,
    part: Part,
) -> Result<Work, MeasureError> {
    match primitive {
        Primitive::GenerateKey(algorithm) => {
            provider.generate_key(algorithm)?;
            Ok(Box::new(move || drop(std::hint::black_box(provider.generate_key(algorithm)))))
        }
        Primitive::Sign(algorithm) => {
            let key = provider.load_key(&key(algorithm, helper)?)?;
            let scheme = scheme(provider, algorithm);
            key.sign(scheme, TRANSCRIPT)?;
            Ok(Box::new(move || drop(std::hint::black_box(key.sign(scheme, TRANSCRIPT)))))
        }
        Primitive::Verify(algorithm) => {
            let material = key(algorithm, helper)?;
            let scheme = scheme(provider, algorithm);
            let signature = helper.load_key(&material).and_then(|key| key.sign(scheme, TRANSCRIPT))?;
            let verify =
                move || provider.verify(algorithm, scheme, material.public(), TRANSCRIPT, &signature);
            verify()?;
            Ok(Box::new(move || {
                let _ = std::hint::black_box(verify());
            }))
        }
        Primitive::Agree(group) => agree(provider, helper, group, part),
        Primitive::Decapsulate => {
            let key = provider.start_decapsulation()?;
            let (ciphertext, _) = helper.encapsulate(key.public())?;
            if part == Part::Share {
                return Ok(Box::new(move || drop(std::hint::black_box(provider.start_decapsulation()))));
            }
            Ok(Box::new(move || {
                let key = provider.start_decapsulation();
                drop(std::hint::black_box(key.and_then(|key| key.finish(&ciphertext))));
            }))
        }
        Primitive::Encapsulate => {
            let key = helper.start_decapsulation()?;
            let public = key.public().to_vec();
            provider.encapsulate(&public)?;
            Ok(Box::new(move || drop(std::hint::black_box(provider.encapsulate(&public)))))
        }
        Primitive::Aead(algorithm) => aead(provider, algorithm, part),
        Primitive::Hash(algorithm) => hash(provider, algorithm, part),
        Primitive::Hmac(algorithm) => {
            let key = vec![7; algorithm.bytes()];
            Ok(Box::new(move || {
                let mut out = [0; HashAlgorithm::MAX_BYTES];
                if let Ok(key) = provider.hmac(algorithm, std::hint::black_box(&key)) {
                    key.sign(&[&[1; 64]], &mut out);
                }
                std::hint::black_box(out);
            }))
        }
        Primitive::Random => Ok(Box::new(move || {
            let mut out = [0; 32];
            let _ = provider.random(&mut out);
            std::hint::black_box(out);
        })),
    }
}

/// As long as what a TLS 1.3 handshake signs (RFC 8446 §4.4.3).
const TRANSCRIPT: &[u8; 130] = &[0x20; 130];

fn agree(
    provider: &'static dyn Provider,
    helper: &'static dyn Provider,
    group: DhGroup,
    part: Part,
) -> Result<Work, MeasureError> {
    let peer = helper.start_agreement(group)?.share().to_vec();
    provider.start_agreement(group).and_then(|side| side.finish(&peer))?;
    if part == Part::Share {
        return Ok(Box::new(move || drop(std::hint::black_box(provider.start_agreement(group)))));
    }
    Ok(Box::new(move || {
        let side = provider.start_agreement(group);
        drop(std::hint::black_box(side.and_then(|side| side.finish(&peer))));
    }))
}

fn aead(provider: &'static dyn Provider, algorithm: AeadAlgorithm, part: Part) -> Result<Work, MeasureError> {
    let Part::Bytes(length) = part else { return Err(MeasureError::NoSize("ciphers")) };
    let key = provider.aead(algorithm, &vec![3; algorithm.key_bytes()])?;
    let mut message = vec![5; length];
    let mut number = 0_u64;
    Ok(Box::new(move || {
        number += 1;
        let mut nonce = [0; 12];
        for (to, from) in nonce.iter_mut().zip(number.to_be_bytes()) {
            *to = from;
        }
        let _ = std::hint::black_box(key.seal(&nonce, &[1; 5], &mut message));
    }))
}

fn hash(provider: &'static dyn Provider, algorithm: HashAlgorithm, part: Part) -> Result<Work, MeasureError> {
    let Part::Bytes(length) = part else { return Err(MeasureError::NoSize("hashes")) };
    let message = vec![5; length];
    Ok(Box::new(move || {
        let mut full = [0; HashAlgorithm::MAX_BYTES];
        let out = full.get_mut(..algorithm.bytes()).unwrap_or_default();
        let _ = provider.hash(algorithm, &[&message], out);
        std::hint::black_box(full);
    }))
}

/// What the lab signs with: PSS for RSA, as TLS 1.3 does, but where a source has RSA-1024 for signatures of old alone.
fn scheme(provider: &dyn Provider, algorithm: KeyAlgorithm) -> crate::SignatureScheme {
    match algorithm.kind() {
        KeyKind::Rsa if algorithm != KeyAlgorithm::Rsa1024 || provider.name() == PLAIN_RSA.name() => {
            crate::SignatureScheme::RsaPssSha256
        }
        _ => algorithm.default_scheme(),
    }
}

/// A key to measure with. RSA keys are those of the self-tests, because making one takes longer than the measurement.
fn key(algorithm: KeyAlgorithm, helper: &'static dyn Provider) -> Result<PrivateKeyMaterial, MeasureError> {
    match selftest::known_key(algorithm) {
        Some(key) => Ok(key),
        None if algorithm == KeyAlgorithm::Rsa1024 => Ok(plain_rsa::material()),
        None => Ok(helper.generate_key(algorithm)?),
    }
}
