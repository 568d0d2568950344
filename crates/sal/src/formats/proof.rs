//! Where every reader of private keys ends: the halves are proven to belong together.

use zeroize::Zeroizing;

use super::FormatError;
use crate::algorithm::KeyKind;
use crate::selection::{self, RunError};
use crate::{KeyAlgorithm, Primitive, PrivateKeyMaterial, SalError};

/// Makes a key of a secret half and of the public halves that stand beside it, which may be none or two.
///
/// On success the secret half is in range and the public half belongs to it; of an RSA key, the modulus is the product
/// of the primes, and the exponents and the coefficient follow from them.
pub(super) fn assemble(
    format: &'static str,
    algorithm: KeyAlgorithm,
    secret: Zeroizing<Vec<u8>>,
    beside: &[Option<&[u8]>],
) -> Result<PrivateKeyMaterial, FormatError> {
    let inconsistent = |reason: String| FormatError::Inconsistent { format, algorithm, reason };
    let refused = |error: SalError| match error {
        SalError::BadPrivateKey { reason } => inconsistent(format!("the secret half is refused: {reason}")),
        _ => FormatError::Provider { operation: "check a private key of this type" },
    };
    let derived = selection::derive_public(algorithm, &secret).map_err(refused)?;
    if beside.iter().flatten().any(|public| !is_same_public(algorithm, &derived, public)) {
        return Err(inconsistent("the public half belongs to another secret half".to_owned()));
    }
    let key = PrivateKeyMaterial::new(algorithm, secret, derived);
    if algorithm.kind() == KeyKind::Rsa {
        // The public half of an RSA key is copied out of the secret one, so that it proves nothing by itself.
        selection::global()
            .run(Primitive::Sign(algorithm), |provider| provider.load_key(&key).map(|_| ()))
            .map_err(|error| match error {
            RunError::Refused(reason) => inconsistent(format!("the numbers are refused: {reason}")),
            RunError::NoSource(error) => refused(error),
        })?;
    }
    Ok(key)
}

/// Compares with the derived public half; a point may be compressed (SEC 1 §2.3.3), as some tools write it.
fn is_same_public(algorithm: KeyAlgorithm, derived: &[u8], public: &[u8]) -> bool {
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
