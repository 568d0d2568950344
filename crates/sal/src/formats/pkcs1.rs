//! PKCS#1 (RFC 8017 appendix A.1): RSA keys and nothing else.
//!
//! The secret half of an RSA key in [`PrivateKeyMaterial`] is this structure, so that the other formats of RSA keys
//! build on this file.

use zeroize::Zeroizing;

use super::error::FormatError;
use super::format::Accept;
use super::proof;
pub(super) use super::rsa::NAME;
use super::rsa::{PRIVATE_SIZES, Private, Public};
use crate::algorithm::KeyKind;
use crate::{KeyAlgorithm, PrivateKeyMaterial};

pub(super) const LABEL: &str = "RSA PRIVATE KEY";
pub(super) const PUBLIC_LABEL: &str = "RSA PUBLIC KEY";
pub(super) const PUBLIC_NAME: &str = "PKCS#1 RSA public key";

/// Reads the DER of an `RSAPrivateKey`.
///
/// # Errors
/// [`FormatError`] for other sizes than 2048, 3072 and 4096 bits, for more than two primes, and for numbers that do not
/// belong together.
pub fn decode(der: &[u8]) -> Result<PrivateKeyMaterial, FormatError> {
    decode_as(der, Accept::Production)
}

/// The DER of an `RSAPrivateKey`.
///
/// # Errors
/// [`FormatError::CannotHold`] for other keys than RSA.
pub fn encode(key: &PrivateKeyMaterial) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    if key.algorithm().kind() != KeyKind::Rsa {
        return Err(FormatError::CannotHold {
            format: "PKCS#1",
            algorithm: key.algorithm(),
            reason: "it is for RSA keys; PKCS#8 holds all",
        });
    }
    Ok(Zeroizing::new(key.secret().to_vec()))
}

/// Reads the DER of an `RSAPublicKey` and gives it back with the key's type.
///
/// # Errors
/// [`FormatError`] for other sizes than 2048, 3072, 4096 and 8192 bits, and for exponents that are even, 1, or longer
/// than 32 bits.
pub fn decode_public(der: &[u8]) -> Result<(KeyAlgorithm, &[u8]), FormatError> {
    decode_public_as(der, Accept::Production)
}

pub(super) fn decode_as(der: &[u8], accept: Accept) -> Result<PrivateKeyMaterial, FormatError> {
    decode_inside(NAME, der, &[], accept)
}

pub(super) fn decode_public_as(der: &[u8], accept: Accept) -> Result<(KeyAlgorithm, &[u8]), FormatError> {
    Ok((Public::of(PUBLIC_NAME, der)?.accept(PUBLIC_NAME, accept)?, der))
}

/// Reads an `RSAPrivateKey` that stands in another format, beside a public half perhaps.
pub(super) fn decode_inside(
    format: &'static str,
    der: &[u8],
    beside: &[Option<&[u8]>],
    accept: Accept,
) -> Result<PrivateKeyMaterial, FormatError> {
    assemble(&Private::read(format, der)?, format, beside, accept)
}

/// Checks everything about a key.
pub(super) fn assemble(
    private: &Private<'_>,
    format: &'static str,
    beside: &[Option<&[u8]>],
    accept: Accept,
) -> Result<PrivateKeyMaterial, FormatError> {
    let algorithm = private.public.algorithm(format, PRIVATE_SIZES)?;
    match (algorithm, accept) {
        (KeyAlgorithm::Rsa1024, Accept::Production) | (KeyAlgorithm::Rsa8192, _) => {
            Err(private.public.wrong_size(format, PRIVATE_SIZES))
        }
        _ => {
            let key = PrivateKeyMaterial::new(algorithm, private.to_vec()?, private.public.to_vec()?);
            proof::rsa(format, &key, private, beside)?;
            Ok(key)
        }
    }
}
