//! Reading keys that are broken, and writing keys that are easy to steal. Nothing that guards anything may be built on
//! these.

use zeroize::Zeroizing;

use super::error::FormatError;
use super::format::{Accept, Format};
pub use super::passphrase::Cost;
use super::{FoundPublic, openssh, read_any_private, read_any_public, write_private_at};
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

/// [`write_private`](super::write_private) with a passphrase that is cheap to try, for tests that write many files.
///
/// # Errors
/// As [`write_private`](super::write_private).
pub fn write_private_at_cost(
    key: &PrivateKeyMaterial,
    format: Format,
    passphrase: Option<&[u8]>,
    cost: Cost,
) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    write_private_at(key, format, passphrase, cost)
}

/// [`openssh::encode`] with a passphrase that is cheap to try, for tests that write many files.
///
/// # Errors
/// As [`openssh::encode`].
pub fn encode_openssh_at_cost(
    key: &PrivateKeyMaterial,
    comment: &str,
    passphrase: Option<&[u8]>,
    cost: Cost,
) -> Result<Zeroizing<String>, FormatError> {
    openssh::encode_at(key, comment, passphrase, cost.bcrypt_rounds)
}
