//! The digest under which lists of stolen passwords keep them: SHA-1, as Have I Been Pwned publishes them.
//!
//! SHA-1 protects nothing here. It is the key of a public list, which another digest would not find anything in; a collision makes
//! the authority refuse a password that was not stolen. It is AWS-LC's in every build, and approved in the FIPS module for what is not
//! a signature (SP 800-131A §9). Passwords are stored under [`password`](crate::password)'s hashes and no other.

use aws_lc_rs::digest;
use zeroize::Zeroizing;

use crate::SalError;
use crate::uses::{self, Aside};

/// Length of a digest, in bytes.
pub const DIGEST_BYTES: usize = 20;

/// The digest of a password. It is a fast hash of it, and as secret as the password is.
///
/// # Errors
/// [`SalError::Provider`] when the library gives a digest of another length.
pub fn digest(password: &[u8]) -> Result<Zeroizing<[u8; DIGEST_BYTES]>, SalError> {
    uses::count(Aside::BreachedPassword);
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, password);
    let bytes = <[u8; DIGEST_BYTES]>::try_from(digest.as_ref());
    bytes.map(Zeroizing::new).map_err(|_| SalError::Provider { operation: "hash a password to look it up" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    /// FIPS 180-4's example, and the digest that Have I Been Pwned shows for "password".
    #[test]
    fn digests_are_those_of_the_lists() {
        for (password, expected) in [
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("password", "5baa61e4c9b93f3f0682250b6cf8331b7ee68fd8"),
        ] {
            let digest = super::digest(password.as_bytes()).unwrap();
            assert_eq!(data_encoding::HEXLOWER.encode(digest.as_slice()), expected);
        }
    }
}
