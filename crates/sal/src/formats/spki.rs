//! SubjectPublicKeyInfo (RFC 5280 §4.1.2.7), in its one canonical form.

use der::asn1::BitStringRef;
use der::{Decode as _, Reader as _, SliceReader};
use pkcs5::AlgorithmIdentifierRef;

use super::error::FormatError;
use super::format::Accept;
use super::identifier;
use super::rsa::Public;
use crate::algorithm::KeyKind;
use crate::{KeyAlgorithm, SalError};

pub(super) const LABEL: &str = "PUBLIC KEY";
pub(super) const NAME: &str = "SubjectPublicKeyInfo";

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

/// Type and bytes of the public key in a SubjectPublicKeyInfo. Only the encoding that [`encode`] gives is accepted, and
/// the form of the key is checked; whether a point is on its curve is for [`PublicKey`](crate::PublicKey) to find out.
///
/// # Errors
/// [`FormatError`] says what was found, and what was expected.
pub fn decode(der: &[u8]) -> Result<(KeyAlgorithm, &[u8]), FormatError> {
    decode_as(der, Accept::Production)
}

pub(super) fn decode_as(der: &[u8], accept: Accept) -> Result<(KeyAlgorithm, &[u8]), FormatError> {
    let read = || -> der::Result<_> {
        let mut reader = SliceReader::new(der)?;
        let parts = reader.sequence(|reader| {
            Ok::<_, der::Error>((AlgorithmIdentifierRef::decode(reader)?, BitStringRef::decode(reader)?))
        })?;
        reader.finish()?;
        Ok(parts)
    };
    let (identifier, bits) = read().map_err(FormatError::der(NAME))?;
    let algorithm = identifier::identify(NAME, identifier)?;
    let raw =
        bits.as_bytes().ok_or_else(|| FormatError::malformed(NAME, "the key does not end on a byte"))?;
    if algorithm.kind() == KeyKind::Rsa {
        return Ok((Public::of(NAME, raw)?.accept(NAME, accept)?, raw));
    }
    check_raw(NAME, algorithm, raw)?;
    Ok((algorithm, raw))
}

/// Checks the form of a key that is not RSA.
pub(super) fn check_raw(
    format: &'static str,
    algorithm: KeyAlgorithm,
    raw: &[u8],
) -> Result<(), FormatError> {
    if algorithm.kind() == KeyKind::Ecdsa && matches!(raw.first(), Some(0x02 | 0x03)) {
        return Err(FormatError::UnsupportedKey {
            format,
            found: "a compressed point".to_owned(),
            expected: "an uncompressed one; convert it with `openssl ec -pubin -conv_form uncompressed`"
                .to_owned(),
        });
    }
    let expected = algorithm.public_bytes().unwrap_or_default();
    if raw.len() != expected {
        return Err(FormatError::malformed(
            format,
            format!("an {algorithm} public key of {} bytes, expected {expected}", raw.len()),
        ));
    }
    if algorithm.kind() == KeyKind::Ecdsa && raw.first() != Some(&0x04) {
        return Err(FormatError::malformed(format, "the point does not start with 04 (SEC 1 §2.3.3)"));
    }
    Ok(())
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
