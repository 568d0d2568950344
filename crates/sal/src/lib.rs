//! The Security Abstraction Layer: algorithms, primitives, suites and key custody.
//!
//! This is the only crate that names a cryptographic library. Everything else asks for what it needs in the
//! vocabulary of this one:
//!
//! * a [`Suite`] says which [`KeyAlgorithm`] serves which [`KeyPurpose`], so that an algorithm is chosen once, by
//!   name, and never at a call site;
//! * a [`Signer`] signs without saying where its private key lives, and a [`PublicKey`] verifies;
//! * a [`custody::Custody`] makes private keys and gives them back later. [`custody::SealedCustody`] keeps them
//!   encrypted under a key file, [`custody::token`] in hardware that speaks PKCS#11;
//! * [`aead`], [`hash`], [`hpke`], [`password`], [`totp`] and [`random`] are the primitives, one parameter set each;
//! * [`tls`] holds the one `CryptoProvider` that every TLS connection of the project uses.
//!
//! The primitives come from aws-lc through `aws-lc-rs` and `rustls`; argon2id comes from RustCrypto, and one-time
//! codes from `totp-rs`. russh brings key exchange and ciphers of its own (aws-lc as well, with RustCrypto for the
//! curves), which do not pass through this layer.
//!
//! Call [`warm_up`] early in a process that serves connections: the first random number of aws-lc can take from 50 to
//! 100 ms, and nobody's handshake should pay for it.

pub mod aead;
pub mod algorithm;
pub mod cpu;
pub mod custody;
mod error;
pub mod formats;
pub mod hash;
pub mod hpke;
mod key;
mod material;
pub mod measure;
pub mod password;
mod primitive;
pub mod provider;
pub mod random;
pub mod report;
pub mod selection;
mod selftest;
pub mod strict;
mod suite;
pub mod tls;
pub mod totp;

pub use algorithm::{KeyAlgorithm, SignatureScheme};
pub use error::{SalError, SignError};
pub use key::{MemoryKey, PublicKey, Signer};
pub use material::PrivateKeyMaterial;
pub use primitive::Primitive;
pub use random::warm_up;
pub use selection::{Policy, Selection};
pub use suite::{KeyPurpose, Suite, UnknownSuite};

/// Compares two secrets in time that depends only on their lengths.
#[must_use]
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left, right).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn equality_needs_equal_length_and_content() {
        assert!(super::constant_time_eq(b"", b""));
        assert!(super::constant_time_eq(b"secret", b"secret"));
        assert!(!super::constant_time_eq(b"secret", b"secreT"));
        assert!(!super::constant_time_eq(b"secret", b"secre"));
    }
}
