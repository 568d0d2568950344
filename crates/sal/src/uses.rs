//! How often each source was asked, by primitive: what shows that a process keeps to one source.
//!
//! A [`Selection`] counts what passes through it: an operation, or a key that was set up for many. What some library computes by
//! itself, aside from every selection, is an [`Aside`] and counted as well. Counting takes no lock and no memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::provider;
pub use crate::selection::Use;
use crate::selection::{self, Selection};

/// What is computed by a library that no selection chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aside {
    /// argon2id over a password.
    Argon2id,
    /// HMAC-SHA-1 of a one-time code.
    OneTimeCode,
    /// SHA-1 of a password that is looked up in a list of stolen ones.
    BreachedPassword,
    /// The key from a passphrase, and the file of a private key that it encrypts.
    Passphrase,
    /// A connection of SSH whose key exchange, hashes and signatures of ECDSA and Ed25519 the SSH library computes.
    SshConnection,
    /// A key of ChaCha20-Poly1305 as SSH has it ([`crate::ssh`]).
    SshCipher,
    /// A side of a key exchange of SSH over a finite field.
    SshGroup16,
}

impl Aside {
    /// Every one.
    pub const ALL: &[Self] = &[
        Self::Argon2id,
        Self::OneTimeCode,
        Self::BreachedPassword,
        Self::Passphrase,
        Self::SshConnection,
        Self::SshCipher,
        Self::SshGroup16,
    ];

    /// Its name beside those of primitives.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Argon2id => "password/argon2id",
            Self::OneTimeCode => "hmac/sha-1",
            Self::BreachedPassword => "hash/sha-1",
            Self::Passphrase => "passphrase",
            Self::SshConnection => "ssh/connection",
            Self::SshCipher => "ssh/chacha20-poly1305",
            Self::SshGroup16 => "ssh/group16",
        }
    }

    /// The library that computes it: the name of a provider where it is one's.
    #[must_use]
    pub const fn library(self) -> &'static str {
        match self {
            Self::Argon2id | Self::Passphrase | Self::SshGroup16 => "rustcrypto",
            Self::OneTimeCode | Self::BreachedPassword | Self::SshCipher => "aws-lc",
            Self::SshConnection => "russh",
        }
    }
}

static ASIDES: [AtomicU64; Aside::ALL.len()] = [const { AtomicU64::new(0) }; Aside::ALL.len()];

/// Counts one.
pub fn count(aside: Aside) {
    if let Some(times) = ASIDES.get(aside as usize) {
        times.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything that this process asked of any source so far.
#[must_use]
pub fn all() -> Vec<Use> {
    of(selection::global())
}

/// What a selection was asked, and every [`Aside`] of this process.
#[must_use]
pub fn of(selection: &Selection) -> Vec<Use> {
    let asides = Aside::ALL.iter().zip(&ASIDES).map(|(aside, times)| Use {
        primitive: aside.name().to_owned(),
        provider: aside.library(),
        times: times.load(Ordering::Relaxed),
        in_module: provider::by_name(aside.library()).is_some_and(provider::Provider::is_fips)
            && matches!(aside, Aside::OneTimeCode | Aside::BreachedPassword),
    });
    selection.uses().into_iter().chain(asides.filter(|aside| aside.times > 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asides_stand_in_the_order_of_their_numbers() {
        for (at, aside) in Aside::ALL.iter().enumerate() {
            assert_eq!(*aside as usize, at);
        }
    }

    #[test]
    fn only_what_was_asked_is_told() {
        let before = all();
        count(Aside::Argon2id);
        let after = all();
        let times = |uses: &[Use]| {
            uses.iter().filter(|one| one.primitive == "password/argon2id").map(|one| one.times).sum::<u64>()
        };
        assert!(times(&after) > times(&before));
        assert!(after.iter().all(|one| one.times > 0), "{after:?}");
    }
}
