//! Reading keys that are broken. Nothing that guards anything may be built on these.

use super::{Accept, FormatError, FoundPublic, read_any_private, read_any_public};
use crate::{KeyAlgorithm, PrivateKeyMaterial};

/// [`read_private`](super::read_private) that takes RSA keys of 1024 bits as well, for measurements.
///
/// # Errors
/// As [`read_private`](super::read_private).
pub fn read_private_with_broken_sizes(
    bytes: &[u8],
    passphrase: Option<&[u8]>,
) -> Result<PrivateKeyMaterial, FormatError> {
    read_any_private(bytes, passphrase, Accept::Lab)
}

/// [`read_public`](super::read_public) that takes RSA keys of 1024 bits as well, for measurements. The key is given as
/// it stands in a SubjectPublicKeyInfo.
///
/// # Errors
/// As [`read_public`](super::read_public).
pub fn read_public_with_broken_sizes(bytes: &[u8]) -> Result<(KeyAlgorithm, Vec<u8>), FormatError> {
    read_any_public(bytes, Accept::Lab).map(|FoundPublic { algorithm, raw, .. }| (algorithm, raw))
}
