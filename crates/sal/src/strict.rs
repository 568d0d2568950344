//! What the layer checks itself, so that every source accepts the same.
//!
//! Libraries differ at the edges: in the encodings of a signature that they read, in the points that they take for
//! keys. The layer refuses what any of them has a good reason to refuse, before a provider sees it.

use crate::algorithm::{DhGroup, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::formats::spki::{modulus_bits, take};

/// The order of edwards25519's base point (RFC 8032 §5.1), little endian.
const ED25519_ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// The points of small order on edwards25519 without their sign bit, in every encoding that some library reads: the
/// canonical ones, and those with a y of the field's prime or more. A signature under such a key proves nothing, since
/// it verifies for every message or nearly so.
const ED25519_SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    [
        0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
    [
        0xed, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
    [
        0xee, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
];

/// The primes of the NIST curves (SP 800-186 §3.2.1), big endian.
const P256_PRIME: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
];
const P384_PRIME: [u8; 48] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff,
];
const P521_PRIME: [u8; 66] = [
    0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
];

/// Largest exponent of an RSA public key, in bits: what every source takes (NIST SP 800-56B §6.4.1.2 allows 256).
pub const MAX_RSA_EXPONENT_BITS: usize = 32;

/// Checks the bytes of a public key, as far as that goes without arithmetic.
///
/// # Errors
/// What is wrong with it.
pub fn check_public(algorithm: KeyAlgorithm, raw: &[u8]) -> Result<(), &'static str> {
    if algorithm.public_bytes().is_some_and(|length| length != raw.len()) {
        return Err("it has another length than its type");
    }
    match algorithm.kind() {
        KeyKind::Ed25519 => ed25519_point(raw),
        KeyKind::Ecdsa => uncompressed_point(
            match algorithm {
                KeyAlgorithm::EcdsaP384 => &P384_PRIME,
                KeyAlgorithm::EcdsaP521 => &P521_PRIME,
                _ => &P256_PRIME,
            },
            raw,
        ),
        KeyKind::MlDsa => Ok(()),
        KeyKind::Rsa => rsa_public(algorithm, raw),
    }
}

/// Checks the encoding of a signature.
///
/// # Errors
/// What is wrong with it.
pub fn check_signature(
    algorithm: KeyAlgorithm,
    scheme: SignatureScheme,
    signature: &[u8],
) -> Result<(), &'static str> {
    if !scheme.fits(algorithm) {
        return Err("the scheme belongs to another type of key");
    }
    match algorithm.kind() {
        KeyKind::Ed25519 => {
            let (point, scalar) = signature.split_first_chunk::<32>().ok_or("it has another length")?;
            let scalar: &[u8; 32] = scalar.try_into().map_err(|_| "it has another length")?;
            ed25519_point(point)?;
            // RFC 8032 §5.1.7: S must be below the order, or a second signature for the same message exists.
            if scalar.iter().rev().lt(ED25519_ORDER.iter().rev()) {
                Ok(())
            } else {
                Err("its scalar is out of range")
            }
        }
        KeyKind::Ecdsa => {
            let (numbers, rest) = take(signature, 0x30).ok_or("it is not DER")?;
            let (r, after) = take(numbers, 0x02).ok_or("it is not DER")?;
            let (s, last) = take(after, 0x02).ok_or("it is not DER")?;
            if !rest.is_empty() || !last.is_empty() {
                return Err("it has bytes to spare");
            }
            let width = algorithm.secret_bytes().unwrap_or_default();
            if [r, s].into_iter().all(|number| positive(number).is_some_and(|digits| digits.len() <= width)) {
                Ok(())
            } else {
                Err("its numbers are not positive integers in DER")
            }
        }
        KeyKind::Rsa => match algorithm.modulus_bits() {
            Some(bits) if signature.len() == bits / 8 => Ok(()),
            _ => Err("it is not as long as the modulus"),
        },
        // The lengths of FIPS 204 table 2.
        KeyKind::MlDsa => {
            let length = match algorithm {
                KeyAlgorithm::MlDsa44 => 2420,
                KeyAlgorithm::MlDsa65 => 3309,
                _ => 4627,
            };
            if signature.len() == length { Ok(()) } else { Err("it has another length") }
        }
    }
}

/// Checks the encoding of a peer's share in an agreement.
///
/// # Errors
/// What is wrong with it.
pub fn check_share(group: DhGroup, share: &[u8]) -> Result<(), &'static str> {
    if share.len() != group.share_bytes() {
        return Err("the share has another length");
    }
    match group {
        // RFC 7748 §5 takes every 32 bytes; the zero secret is refused when it comes out.
        DhGroup::X25519 => Ok(()),
        DhGroup::P256 => uncompressed_point(&P256_PRIME, share),
        DhGroup::P384 => uncompressed_point(&P384_PRIME, share),
    }
}

/// SEC 1 §2.3.4: the uncompressed form alone, with both coordinates below the prime. Some libraries take the other
/// forms as well, some reduce the coordinates.
fn uncompressed_point(prime: &[u8], raw: &[u8]) -> Result<(), &'static str> {
    let (Some(0x04), coordinates) = (raw.first(), raw.get(1..).unwrap_or_default()) else {
        return Err("it is not an uncompressed point");
    };
    if coordinates.len() != 2 * prime.len() {
        return Err("it is not an uncompressed point");
    }
    if coordinates.chunks(prime.len()).all(|coordinate| coordinate < prime) {
        Ok(())
    } else {
        Err("a coordinate is not below the prime")
    }
}

/// RFC 8032 §5.1.3 for the encoding, and no point of small order.
fn ed25519_point(raw: &[u8]) -> Result<(), &'static str> {
    let mut y: [u8; 32] = raw.try_into().map_err(|_| "it has another length than its type")?;
    y[31] &= 0x7f;
    if ED25519_SMALL_ORDER.contains(&y) {
        return Err("the point has small order");
    }
    // The prime is 2^255 - 19: what is not below it ends in ff bytes and starts at ed.
    let not_below = y[31] == 0x7f && y[1..31].iter().all(|byte| *byte == 0xff) && y[0] >= 0xed;
    if not_below { Err("the point is not in its canonical encoding") } else { Ok(()) }
}

fn rsa_public(algorithm: KeyAlgorithm, raw: &[u8]) -> Result<(), &'static str> {
    if modulus_bits(raw) != algorithm.modulus_bits() {
        return Err("its modulus has another length");
    }
    let numbers = take(raw, 0x30).map(|(numbers, _)| numbers).unwrap_or_default();
    let (modulus, exponent) = take(numbers, 0x02).ok_or("it is not DER")?;
    let (exponent, _) = take(exponent, 0x02).ok_or("it is not DER")?;
    let exponent = positive(exponent).ok_or("its exponent is not a positive integer")?;
    let odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
    if !odd(modulus) {
        return Err("its modulus is even");
    }
    if !odd(exponent) || exponent == [1] {
        return Err("its exponent is even or 1");
    }
    let bits = exponent.len() * 8 - exponent.first().map_or(0, |first| first.leading_zeros() as usize);
    if bits > MAX_RSA_EXPONENT_BITS { Err("its exponent is longer than 32 bits") } else { Ok(()) }
}

/// The digits of a positive DER integer in its shortest form (X.690 §8.3.2), without the leading zero of a high bit.
fn positive(content: &[u8]) -> Option<&[u8]> {
    match content {
        [0, digits @ ..] if digits.first().is_some_and(|first| *first >= 0x80) => Some(digits),
        [1..=0x7f, ..] => Some(content),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_with_a_second_form_are_refused() {
        let p256 = KeyAlgorithm::EcdsaP256;
        let check = |signature: &[u8]| check_signature(p256, SignatureScheme::EcdsaP256Sha256, signature);
        assert_eq!(check(&[0x30, 6, 2, 1, 1, 2, 1, 1]), Ok(()));
        for wrong in [
            &[0x30, 6, 2, 1, 0, 2, 1, 1][..],
            &[0x30, 6, 2, 1, 0x80, 2, 1, 1],
            &[0x30, 7, 2, 2, 0, 1, 2, 1, 1],
            &[0x30, 0x81, 6, 2, 1, 1, 2, 1, 1],
            &[0x30, 6, 2, 1, 1, 2, 1, 1, 0],
            &[0x30, 3, 2, 1, 1],
            &[],
        ] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
        assert!(check_public(p256, &[2; 65]).is_err());
        assert!(check_public(p256, &[4; 33]).is_err());
        let mut point = [4; 65];
        assert_eq!(check_public(p256, &point), Ok(()));
        assert_eq!(check_share(DhGroup::P256, &point), Ok(()));
        point[33..].copy_from_slice(&P256_PRIME);
        assert!(check_public(p256, &point).is_err());
        assert!(check_share(DhGroup::P256, &point).is_err());
        assert!(check_share(DhGroup::X25519, &[9; 31]).is_err());
        for (at, mut point) in ED25519_SMALL_ORDER.into_iter().enumerate() {
            assert!(check_public(KeyAlgorithm::Ed25519, &point).is_err(), "{at}");
            point[31] |= 0x80;
            assert!(check_public(KeyAlgorithm::Ed25519, &point).is_err(), "{at} with its sign");
        }
        let mut high = [0xff; 32];
        high[0] = 0xf0;
        assert!(check_public(KeyAlgorithm::Ed25519, &high).is_err());
        let mut signature = [7; 64];
        signature[32..].copy_from_slice(&ED25519_ORDER);
        let check =
            |signature: &[u8]| check_signature(KeyAlgorithm::Ed25519, SignatureScheme::Ed25519, signature);
        assert!(check(&signature).is_err());
        signature[32] -= 1;
        assert_eq!(check(&signature), Ok(()));
        assert!(check(&signature[1..]).is_err());
    }
}
