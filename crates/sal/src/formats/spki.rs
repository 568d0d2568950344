//! SubjectPublicKeyInfo (RFC 5280 §4.1.2.7), in its one canonical form.

use crate::{KeyAlgorithm, SalError};

/// The DER of a SubjectPublicKeyInfo around the bytes of a public key.
#[must_use]
pub fn encode(algorithm: KeyAlgorithm, raw: &[u8]) -> Vec<u8> {
    let identifier = algorithm.spki_algorithm_der();
    let mut bits = Vec::with_capacity(raw.len() + 8);
    bits.push(0x03);
    put_length(&mut bits, raw.len() + 1);
    bits.push(0);
    bits.extend_from_slice(raw);
    let mut out = Vec::with_capacity(identifier.len() + bits.len() + 5);
    out.push(0x30);
    put_length(&mut out, identifier.len() + bits.len());
    out.extend_from_slice(identifier);
    out.extend_from_slice(&bits);
    out
}

/// Type and bytes of the public key in a SubjectPublicKeyInfo. Only the encoding that [`encode`] gives is accepted.
///
/// # Errors
/// [`SalError::BadPublicKey`] for another algorithm or encoding.
pub fn decode(der: &[u8]) -> Result<(KeyAlgorithm, &[u8]), SalError> {
    let bad = || SalError::BadPublicKey {
        reason: "the SubjectPublicKeyInfo has another algorithm or is not DER".to_owned(),
    };
    let (content, rest) = take(der, 0x30).ok_or_else(bad)?;
    if !rest.is_empty() {
        return Err(bad());
    }
    let algorithm = KeyAlgorithm::ALL
        .iter()
        .copied()
        .find(|algorithm| content.starts_with(algorithm.spki_algorithm_der()))
        .ok_or_else(bad)?;
    let bits = content.get(algorithm.spki_algorithm_der().len()..).ok_or_else(bad)?;
    let (bits, rest) = take(bits, 0x03).ok_or_else(bad)?;
    let (0, raw) = bits.split_first().map(|(unused, raw)| (*unused, raw)).ok_or_else(bad)? else {
        return Err(bad());
    };
    if !rest.is_empty() {
        return Err(bad());
    }
    if algorithm.modulus_bits().is_none() {
        return Ok((algorithm, raw));
    }
    let bits = modulus_bits(raw).ok_or_else(bad)?;
    let algorithm = KeyAlgorithm::rsa(bits).ok_or_else(|| odd_size(bits))?;
    Ok((algorithm, raw))
}

pub(crate) fn odd_size(bits: usize) -> SalError {
    SalError::BadPublicKey {
        reason: format!("its RSA modulus has {bits} bits; this build takes 2048, 3072, 4096 and 8192"),
    }
}

/// `RSAPublicKey` (RFC 8017 appendix A.1.1) of two numbers, big endian.
pub(crate) fn rsa_public(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(modulus.len() + 16);
    for number in [modulus, exponent] {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let digits = number.get(zeros..).unwrap_or_default();
        let sign = usize::from(digits.first().is_none_or(|first| *first >= 0x80));
        numbers.push(0x02);
        put_length(&mut numbers, digits.len() + sign);
        numbers.extend_from_slice([0].get(..sign).unwrap_or_default());
        numbers.extend_from_slice(digits);
    }
    let mut out = Vec::with_capacity(numbers.len() + 4);
    out.push(0x30);
    put_length(&mut out, numbers.len());
    out.extend_from_slice(&numbers);
    out
}

/// Modulus and exponent of an `RSAPublicKey`, without leading zeros.
pub(crate) fn rsa_numbers(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let (numbers, _) = take(raw, 0x30)?;
    let (modulus, rest) = take(numbers, 0x02)?;
    let (exponent, _) = take(rest, 0x02)?;
    Some((modulus.strip_prefix(&[0]).unwrap_or(modulus), exponent.strip_prefix(&[0]).unwrap_or(exponent)))
}

/// Length of the modulus in an `RSAPublicKey`, in bits.
#[must_use]
pub fn modulus_bits(public: &[u8]) -> Option<usize> {
    let (content, rest) = take(public, 0x30)?;
    let (modulus, exponent) = take(content, 0x02)?;
    let (_, after) = take(exponent, 0x02)?;
    if !rest.is_empty() || !after.is_empty() {
        return None;
    }
    match modulus {
        [0, first, ..] if *first >= 0x80 => Some((modulus.len() - 1) * 8),
        [first, ..] if (1..0x80).contains(first) => {
            Some(modulus.len() * 8 - usize::try_from(first.leading_zeros()).ok()?)
        }
        _ => None,
    }
}

/// Takes one DER element of a tag: its content, and what follows.
pub(crate) fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = take_length(rest)?;
    Some((rest.get(..length)?, rest.get(length..)?))
}

/// X.690 §8.1.3 and §10.1: the shortest form alone.
fn take_length(der: &[u8]) -> Option<(usize, &[u8])> {
    match der {
        [short @ 0..=0x7f, rest @ ..] => Some((usize::from(*short), rest)),
        [0x81, one, rest @ ..] if *one >= 0x80 => Some((usize::from(*one), rest)),
        [0x82, high, low, rest @ ..] if *high >= 1 => {
            Some((usize::from(*high) << 8 | usize::from(*low), rest))
        }
        _ => None,
    }
}

/// Writes a length in the shortest form. What is longer than 65,535 bytes does not occur in keys.
pub(crate) fn put_length(out: &mut Vec<u8>, length: usize) {
    let [.., high, low] = length.to_be_bytes();
    match length {
        0..=0x7f => out.push(low),
        0x80..=0xff => out.extend_from_slice(&[0x81, low]),
        _ => out.extend_from_slice(&[0x82, high, low]),
    }
}
