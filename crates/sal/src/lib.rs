//! The Security Abstraction Layer: every cryptographic primitive from the best source on the machine.
//!
//! No single library is best at everything. This crate draws on several ([`provider`]), picks a source for each
//! primitive ([`selection`]) after it proved itself with known answers, and gives everything else one vocabulary:
//!
//! * [`algorithm`] has the algorithms as types, with their names in every standard; a [`Suite`] says which
//!   [`KeyAlgorithm`] serves which [`KeyPurpose`], so that an algorithm is chosen once, by name;
//! * a [`Signer`] signs without saying where its private key lives, and a [`PublicKey`] verifies;
//! * a [`custody::Custody`] makes private keys and gives them back later: [`custody::SealedCustody`] keeps them
//!   encrypted under a key file, [`custody::token`] in hardware that speaks PKCS#11;
//! * [`formats`] reads and writes keys as other tools do;
//! * [`aead`], [`hash`], [`hpke`], [`password`], [`totp`] and [`random`] are for direct use;
//! * [`compatibility`] knows what the software of others can do, and who could not follow a change of suite;
//! * [`tls`] composes a rustls `CryptoProvider` from the selected sources;
//! * [`strength`] says how strong a key is, and what of that is an estimate;
//! * [`uses`] says which source was asked for what, and how often;
//! * [`measure`] times every source, whole handshakes and their phases; [`report`] says what is in use and why.
//!
//! ```
//! use sallyport_sal::{KeyAlgorithm, MemoryKey, Primitive, Signer, selection};
//!
//! let key = MemoryKey::generate(KeyAlgorithm::EcdsaP256)?;
//! let signature = key.sign(b"message")?;
//! key.public_key().verify(b"message", &signature)?;
//! println!("by {}", selection::global().source(Primitive::Sign(key.algorithm()))?.credit());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Passwords are hashed by RustCrypto's argon2id, or in FIPS mode by PBKDF2 of the module. russh brings key exchange and
//! ciphers of its own, which do not pass through this layer; [`uses`] counts its connections. [`ssh`] has what SSH alone has.
//!
//! Call [`warm_up`] early in a process that serves connections: the first random number of aws-lc can take from 50 to
//! 100 ms, and no handshake should pay for it.

pub mod aead;
pub mod algorithm;
pub mod breached;
pub mod compatibility;
pub mod cpu;
pub mod custody;
pub mod economy;
mod error;
pub mod formats;
pub mod hash;
pub mod hpke;
mod key;
mod material;
pub mod measure;
pub mod needs;
pub mod password;
mod primitive;
pub mod provider;
pub mod random;
pub mod report;
pub mod selection;
mod selftest;
pub mod ssh;
pub mod strength;
pub mod strict;
pub mod suite;
pub mod tls;
pub mod totp;
pub mod uses;
mod warm;

pub use algorithm::{KeyAlgorithm, SignatureScheme};
pub use economy::KeyPool;
pub use error::{SalError, SignError};
pub use key::{MemoryKey, PublicKey, Signer};
pub use material::PrivateKeyMaterial;
pub use primitive::Primitive;
pub use selection::{Policy, Selection};
pub use suite::{HybridKeyExchange, KeyPurpose, Suite, UnknownPurpose, UnknownSuite};
pub use warm::warm_up;

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
