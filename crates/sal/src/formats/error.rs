//! Why a key could not be read or written, sorted by who has to act.

use super::format::Format;
use crate::KeyAlgorithm;

/// A key that could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    // The writer of the bytes.
    /// The bytes are something else than was asked for.
    #[error("found {found}, expected {expected}")]
    WrongKind {
        /// What they are.
        found: String,
        /// What would have done.
        expected: &'static str,
    },
    /// The bytes start as a key in a known format, and do not go on as one.
    #[error("not a well-formed {format}: {reason}")]
    Malformed {
        /// The format that they start as.
        format: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A key of a type, size or form that is not taken.
    #[error("the {format} holds {found}, expected {expected}")]
    UnsupportedKey {
        /// The format, which is in order.
        format: &'static str,
        /// What it holds.
        found: String,
        /// What would have done.
        expected: String,
    },
    /// Encryption that is obsolete or not known here.
    #[error("the {format} is encrypted with {found}, expected {expected}; convert it with `{command}`")]
    UnsupportedEncryption {
        /// The format, which is in order.
        format: &'static str,
        /// How it is encrypted.
        found: String,
        /// What would have done.
        expected: &'static str,
        /// The command that makes something readable of it.
        command: &'static str,
    },
    /// Deriving the key from the passphrase would take more time or memory than a file may ask for.
    #[error("the {format} asks for {found}, the most that is spent on a file is {bound}")]
    TooCostly {
        /// The format.
        format: &'static str,
        /// The cost that the file asks for.
        found: String,
        /// The most that is taken.
        bound: String,
    },
    /// The private half is out of range, or belongs to another public half than the one beside it.
    #[error("the {format} holds an {algorithm} key of which {reason}")]
    Inconsistent {
        /// The format.
        format: &'static str,
        /// The key's type.
        algorithm: KeyAlgorithm,
        /// What does not hold.
        reason: String,
    },

    // The person with the passphrase.
    /// The key is encrypted and no passphrase was given.
    #[error("the {format} is encrypted: a passphrase is needed")]
    PassphraseNeeded {
        /// The format.
        format: &'static str,
    },
    /// The key does not open with this passphrase.
    #[error("the {format} does not open with this passphrase: it is another one, or the file is damaged")]
    WrongPassphrase {
        /// The format.
        format: &'static str,
    },

    // The caller.
    /// The format has no way to hold such a key.
    #[error("{format} cannot hold an {algorithm} key: {reason}")]
    CannotHold {
        /// The format asked for.
        format: &'static str,
        /// The key's type.
        algorithm: KeyAlgorithm,
        /// Why, and what can.
        reason: &'static str,
    },
    /// The format has no encryption worth the name.
    #[error(
        "{format} has no encryption worth using: write pkcs8-pem or openssh instead, or leave the passphrase out"
    )]
    CannotEncrypt {
        /// The format asked for.
        format: Format,
    },
    /// In FIPS mode nothing outside the module computes, and the module has no key derivation for these files.
    #[error(
        "a passphrase is turned into a key outside the FIPS module, which selection: fips does not allow: take it off with \
         `ssh-keygen -p -N '' -f FILE` or `openssl pkey -in FILE -out NEW`, or leave it out"
    )]
    PassphraseOutsideModule,
    /// An empty passphrase protects nothing, and other tools take it for none.
    #[error("the passphrase is empty: give one, or ask for an unencrypted key")]
    EmptyPassphrase,

    // Ourselves.
    /// A provider failed at something that does not depend on the bytes.
    #[error("the cryptographic provider could not {operation}")]
    Provider {
        /// What was asked of it.
        operation: &'static str,
    },
}

impl FormatError {
    /// A format that does not go on as it starts.
    pub(super) fn malformed(format: &'static str, reason: impl Into<String>) -> Self {
        Self::Malformed { format, reason: reason.into() }
    }

    /// What a DER reader refused. Its messages name tags and offsets, never content.
    pub(super) fn der(format: &'static str) -> impl Fn(der::Error) -> Self {
        move |error| Self::malformed(format, format!("{error}"))
    }
}
