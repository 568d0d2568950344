//! Hashes, HMAC and HKDF over the SHA-2 family (FIPS 180-4, RFC 2104, RFC 5869).

use std::fmt;

use zeroize::Zeroizing;

use crate::algorithm::HashAlgorithm;
use crate::provider::{HashContext, HmacKey};
use crate::{Primitive, SalError, selection};

/// Length of a SHA-256 digest, in bytes.
pub const SHA256_BYTES: usize = 32;

/// The SHA-256 of bytes that are all at hand.
///
/// # Panics
/// Never in practice: it would take that every source of SHA-256 failed its self-test, and nothing could go on then.
#[must_use]
pub fn sha256(data: &[u8]) -> [u8; SHA256_BYTES] {
    let mut out = [0; SHA256_BYTES];
    digest(HashAlgorithm::Sha256, &[data], &mut out);
    out
}

/// Hashes parts, one after the other. The digest fills `out` as far as it goes.
///
/// # Panics
/// As [`sha256`].
pub fn digest(algorithm: HashAlgorithm, parts: &[&[u8]], out: &mut [u8]) {
    let hashed = selection::global().run(Primitive::Hash(algorithm), |provider| {
        let mut full = [0; HashAlgorithm::MAX_BYTES];
        let full = full.get_mut(..algorithm.bytes()).unwrap_or_default();
        provider.hash(algorithm, parts, full)?;
        for (to, from) in out.iter_mut().zip(full) {
            *to = *from;
        }
        Ok(())
    });
    hashed.expect("some source of SHA-2 gives the digest of FIPS 180-4's examples");
}

/// A hash of bytes as they come.
pub struct Hash {
    algorithm: HashAlgorithm,
    context: Box<dyn HashContext>,
}

impl Hash {
    /// Starts with nothing.
    ///
    /// # Panics
    /// As [`sha256`].
    #[must_use]
    pub fn new(algorithm: HashAlgorithm) -> Self {
        let context = selection::global()
            .run(Primitive::Hash(algorithm), |provider| provider.start_hash(algorithm))
            .expect("some source of SHA-2 gives the digest of FIPS 180-4's examples");
        Self { algorithm, context }
    }

    /// Adds bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.context.update(data);
    }

    /// Writes the digest of everything added, as far as `out` goes.
    pub fn finish_into(self, out: &mut [u8]) {
        self.context.finish(out);
    }
}

impl Clone for Hash {
    fn clone(&self) -> Self {
        Self { algorithm: self.algorithm, context: self.context.fork() }
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hash").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The SHA-256 of bytes as they come.
#[derive(Debug, Clone)]
pub struct Sha256(Hash);

impl Sha256 {
    /// Starts with nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Hash::new(HashAlgorithm::Sha256))
    }

    /// Adds bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The digest of everything added.
    #[must_use]
    pub fn finish(self) -> [u8; SHA256_BYTES] {
        let mut out = [0; SHA256_BYTES];
        self.0.finish_into(&mut out);
        out
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

/// A key for HMAC.
pub struct Hmac {
    algorithm: HashAlgorithm,
    key: Box<dyn HmacKey>,
}

impl Hmac {
    /// Takes a key of any length; at least that of the digest is wise (RFC 2104 §3).
    ///
    /// # Errors
    /// [`SalError::NoSource`] when no source computes it.
    pub fn new(algorithm: HashAlgorithm, key: &[u8]) -> Result<Self, SalError> {
        let key = selection::global()
            .run(Primitive::Hmac(algorithm), |provider| provider.hmac(algorithm, key))
            .map_err(|error| error.into_sal(|_| SalError::Provider { operation: "set up HMAC" }))?;
        Ok(Self { algorithm, key })
    }

    /// The tag over parts, one after the other; it fills `out` as far as it goes.
    pub fn sign(&self, parts: &[&[u8]], out: &mut [u8]) {
        self.key.sign(parts, out);
    }

    /// Whether a tag is right, in time that does not depend on where it differs. Only whole tags count.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        let mut expected = Zeroizing::new([0; HashAlgorithm::MAX_BYTES]);
        let expected = expected.get_mut(..self.algorithm.bytes()).unwrap_or_default();
        self.key.sign(parts, expected);
        crate::constant_time_eq(expected, tag)
    }
}

impl fmt::Debug for Hmac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hmac").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// HKDF (RFC 5869): extracts from `secret` with `salt`, and expands with `info` into all of `out`.
///
/// # Errors
/// [`SalError::Provider`] when more than 255 digests are asked for (§2.3), [`SalError::NoSource`] as [`Hmac::new`].
pub fn hkdf(
    algorithm: HashAlgorithm,
    salt: &[u8],
    secret: &[u8],
    info: &[u8],
    out: &mut [u8],
) -> Result<(), SalError> {
    let zeros = [0; HashAlgorithm::MAX_BYTES];
    let salt = if salt.is_empty() { zeros.get(..algorithm.bytes()).unwrap_or_default() } else { salt };
    let mut pseudorandom = Zeroizing::new(vec![0; algorithm.bytes()]);
    Hmac::new(algorithm, salt)?.sign(&[secret], &mut pseudorandom);
    expand(algorithm, &pseudorandom, info, out)
}

/// The second half of [`hkdf`] (RFC 5869 §2.3), from a pseudorandom key.
///
/// # Errors
/// As [`hkdf`].
pub fn expand(
    algorithm: HashAlgorithm,
    pseudorandom: &[u8],
    info: &[u8],
    out: &mut [u8],
) -> Result<(), SalError> {
    if out.len() > 255 * algorithm.bytes() {
        return Err(SalError::Provider { operation: "expand a secret into more than 255 blocks" });
    }
    let key = Hmac::new(algorithm, pseudorandom)?;
    let mut previous = Zeroizing::new(Vec::new());
    for (number, block) in out.chunks_mut(algorithm.bytes()).enumerate() {
        let number = u8::try_from(number + 1).unwrap_or(u8::MAX);
        let mut next = Zeroizing::new(vec![0; algorithm.bytes()]);
        key.sign(&[&previous, info, &[number]], &mut next);
        for (to, from) in block.iter_mut().zip(next.iter()) {
            *to = *from;
        }
        previous = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            let fork = hash.clone();
            hash.update(right);
            assert_eq!(hash.finish(), sha256(b"abc"));
            assert_eq!(fork.finish(), sha256(left));
        }
    }

    /// RFC 5869 appendix A.1 and A.3.
    #[test]
    fn hkdf_matches_the_published_vectors() {
        let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let mut out = [0; 42];
        let salt = hex("000102030405060708090a0b0c");
        hkdf(HashAlgorithm::Sha256, &salt, &[0x0b; 22], &hex("f0f1f2f3f4f5f6f7f8f9"), &mut out).unwrap();
        assert_eq!(
            out.to_vec(),
            hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
        );
        hkdf(HashAlgorithm::Sha256, b"", &[0x0b; 22], b"", &mut out).unwrap();
        assert_eq!(
            out.to_vec(),
            hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8")
        );
        assert!(hkdf(HashAlgorithm::Sha256, b"", b"", b"", &mut vec![0; 255 * 32 + 1]).is_err());
    }

    #[test]
    fn a_tag_is_right_only_whole() {
        let key = Hmac::new(HashAlgorithm::Sha256, b"key").unwrap();
        let mut tag = [0; 32];
        key.sign(&[b"a", b"b"], &mut tag);
        assert!(key.verify(&[b"ab"], &tag));
        assert!(!key.verify(&[b"ab"], tag.get(..16).unwrap()));
        assert!(!key.verify(&[b"ac"], &tag));
    }
}
