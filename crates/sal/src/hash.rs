//! SHA-256 (FIPS 180-4).

use std::fmt;

use aws_lc_rs::digest;

/// Length of a digest, in bytes.
pub const SHA256_BYTES: usize = 32;

/// Hashes bytes that are all at hand.
#[must_use]
pub fn sha256(data: &[u8]) -> [u8; SHA256_BYTES] {
    to_array(&digest::digest(&digest::SHA256, data))
}

/// Hashes bytes as they come.
#[derive(Clone)]
pub struct Sha256(digest::Context);

impl Sha256 {
    /// Starts with nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// Adds bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The digest of everything added.
    #[must_use]
    pub fn finish(self) -> [u8; SHA256_BYTES] {
        to_array(&self.0.finish())
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sha256").finish_non_exhaustive()
    }
}

fn to_array(digest: &digest::Digest) -> [u8; SHA256_BYTES] {
    let mut bytes = [0; SHA256_BYTES];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4 example: SHA-256("abc").
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn matches_the_published_example_in_every_split() {
        assert_eq!(data_encoding::HEXLOWER.encode(&sha256(b"abc")), ABC);
        for split in 0..=3 {
            let (left, right) = b"abc".split_at(split);
            let mut hash = Sha256::new();
            hash.update(left);
            hash.update(right);
            assert_eq!(hash.finish(), sha256(b"abc"));
        }
    }
}
