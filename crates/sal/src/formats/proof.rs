//! Where every reader of private keys ends: the halves are proven to belong together.

use zeroize::Zeroizing;

use super::arithmetic;
use super::error::FormatError;
use super::rsa::{PRIVATE_SIZES, Private};
use crate::algorithm::{KeyKind, Standing};
use crate::provider::Fault;
use crate::selection::{self, RunError};
use crate::{KeyAlgorithm, Primitive, PrivateKeyMaterial, SalError, selftest};

const NAME: &str = "private key";

/// Proves that the halves of a key belong together and are in range. Every reader has done so already with what it
/// gives; this is for keys that come from elsewhere.
///
/// The public half is derived again and compared. Of an RSA key all numbers are checked, and it signs once, because
/// not every library checks them when it loads a key, and one wrong number makes signatures that give the key away.
///
/// # Errors
/// [`FormatError::Malformed`] and [`FormatError::Inconsistent`] say what does not hold.
pub fn prove(key: &PrivateKeyMaterial) -> Result<(), FormatError> {
    let algorithm = key.algorithm();
    if algorithm.kind() == KeyKind::Rsa {
        let private = Private::of(key)?;
        if private.public.algorithm(NAME, PRIVATE_SIZES)? != algorithm {
            return Err(inconsistent(NAME, algorithm, "the modulus has another length than its type"));
        }
        return rsa(NAME, key, &private, &[Some(key.public())]);
    }
    let expected = algorithm.secret_bytes().unwrap_or_default();
    if key.secret().len() != expected {
        return Err(FormatError::malformed(
            NAME,
            format!("the secret half has {} bytes, expected {expected}", key.secret().len()),
        ));
    }
    derive(NAME, algorithm, key.secret(), &[Some(key.public())]).map(|_| ())
}

/// Makes a key of a secret half, which has the right length, and of the public halves that stand beside it, which may
/// be none or two. On success the secret half is in range and the public half belongs to it.
pub(super) fn assemble(
    format: &'static str,
    algorithm: KeyAlgorithm,
    secret: Zeroizing<Vec<u8>>,
    beside: &[Option<&[u8]>],
) -> Result<PrivateKeyMaterial, FormatError> {
    let public = derive(format, algorithm, &secret, beside)?;
    Ok(PrivateKeyMaterial::new(algorithm, secret, public))
}

/// Proves an RSA key: that the modulus is the product of the primes, that the exponents and the coefficient follow from
/// them, and that a signature verifies.
pub(super) fn rsa(
    format: &'static str,
    key: &PrivateKeyMaterial,
    private: &Private<'_>,
    beside: &[Option<&[u8]>],
) -> Result<(), FormatError> {
    let algorithm = key.algorithm();
    arithmetic::check(private).map_err(|reason| inconsistent(format, algorithm, reason))?;
    if private.public.to_vec()? != key.public() || beside.iter().flatten().any(|one| *one != key.public()) {
        return Err(other_public(format, algorithm));
    }
    // What is for measurements alone has no source that signs with it.
    if algorithm.standing() != Standing::Full {
        return Ok(());
    }
    selection::global()
        .run(Primitive::Sign(algorithm), |provider| {
            selftest::pairwise(provider, key)
                .map_err(|_| Fault::Refused("it does not make signatures that verify: a prime is not one"))
        })
        .map_err(|error| match error {
            RunError::Refused(reason) => inconsistent(format, algorithm, reason),
            RunError::NoSource(_) => FormatError::Provider { operation: "sign with a key of this type" },
        })
}

/// The public half of a secret half, if it is the one that stands beside it.
fn derive(
    format: &'static str,
    algorithm: KeyAlgorithm,
    secret: &[u8],
    beside: &[Option<&[u8]>],
) -> Result<Vec<u8>, FormatError> {
    let derived = selection::derive_public(algorithm, secret).map_err(|error| match error {
        SalError::BadPrivateKey { reason } => {
            inconsistent(format, algorithm, format!("the secret half is refused: {reason}"))
        }
        _ => FormatError::Provider { operation: "derive a public key of this type" },
    })?;
    if beside.iter().flatten().any(|public| !is_same(algorithm, &derived, public)) {
        return Err(other_public(format, algorithm));
    }
    Ok(derived)
}

/// Compares with the derived public half; a point may be compressed (SEC 1 §2.3.3), as some tools write it.
fn is_same(algorithm: KeyAlgorithm, derived: &[u8], public: &[u8]) -> bool {
    if derived == public {
        return true;
    }
    match (algorithm.kind(), derived, public) {
        (KeyKind::Ecdsa, [0x04, point @ ..], [sign @ (0x02 | 0x03), x @ ..]) => {
            let (derived_x, derived_y) = point.split_at(point.len() / 2);
            derived_x == x && derived_y.last().is_some_and(|last| last & 1 == sign & 1)
        }
        _ => false,
    }
}

fn other_public(format: &'static str, algorithm: KeyAlgorithm) -> FormatError {
    inconsistent(format, algorithm, "the public half belongs to another secret half")
}

fn inconsistent(format: &'static str, algorithm: KeyAlgorithm, reason: impl Into<String>) -> FormatError {
    FormatError::Inconsistent { format, algorithm, reason: reason.into() }
}
