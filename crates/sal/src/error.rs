//! What can go wrong in this layer, sorted by who has to act.

use std::path::PathBuf;

use crate::{KeyAlgorithm, Primitive};

/// A signer could not sign.
#[derive(Debug, thiserror::Error)]
#[error("signing with a key of type {algorithm} failed: {reason}")]
pub struct SignError {
    /// The key's algorithm.
    pub algorithm: KeyAlgorithm,
    /// What the provider said.
    pub reason: String,
}

/// Everything else that this layer refuses or fails at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalError {
    // The peer, or the writer of the bytes.
    /// A public key that is malformed or of an algorithm we do not use.
    #[error("not a public key we can use: {reason}")]
    BadPublicKey {
        /// What is wrong with it.
        reason: String,
    },
    /// The signature does not belong to this key and message.
    #[error("the {algorithm} signature is not valid for this key and message")]
    BadSignature {
        /// The key's algorithm.
        algorithm: KeyAlgorithm,
    },
    /// Ciphertext that was altered, cut short, made with another key or for another context.
    #[error("cannot decrypt {what}: it was damaged, or sealed with another key or for another purpose")]
    Undecryptable {
        /// What was being opened.
        what: String,
    },

    // The operator.
    /// A file operation failed.
    #[error("cannot {action} {path}", path = path.display())]
    File {
        /// What was tried, as a verb: "read", "create".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no sealing key where one is expected.
    #[error(
        "there is no sealing key at {path}: restore it from your backup; without it the keys it sealed are lost",
        path = path.display()
    )]
    NoSealingKey {
        /// The file.
        path: PathBuf,
    },
    /// A sealing key is already there.
    #[error("{path} already exists, and a sealing key is never overwritten", path = path.display())]
    SealingKeyExists {
        /// The file.
        path: PathBuf,
    },
    /// A secret file that others can read or change.
    #[error(
        "{path} has mode {mode:04o}, but only its owner may read a secret: run `chmod 600 {path}`, and consider the key leaked",
        path = path.display()
    )]
    LooseMode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A secret file that belongs to another account.
    #[error(
        "{path} belongs to uid {owner}, but this process runs as uid {expected}: run `chown {expected} {path}` or start as its owner",
        path = path.display()
    )]
    WrongOwner {
        /// The file.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        expected: u32,
    },
    /// A secret file that is a symbolic link, a directory or a device.
    #[error("{path} is {found}, expected a regular file", path = path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A sealing key file without the content of one.
    #[error(
        "{path} is not a sealing key: {got} bytes where {expected} were expected; it was cut short or overwritten, restore it from your backup",
        path = path.display()
    )]
    TruncatedKey {
        /// The file.
        path: PathBuf,
        /// Length found, in bytes.
        got: u64,
        /// Length expected, in bytes.
        expected: u64,
    },

    /// A key in a file that could not be read or written: the error inside says who has to act.
    #[error(transparent)]
    Format(#[from] crate::formats::FormatError),

    // The caller.
    /// A private key that is malformed or of an algorithm we do not use.
    #[error("not a private key we can use: {reason}")]
    BadPrivateKey {
        /// What is wrong with it.
        reason: String,
    },
    /// A password hash in the store that cannot be read.
    #[error("the stored password hash is not readable: {reason}")]
    BadPasswordHash {
        /// What the parser said.
        reason: String,
    },
    /// A stored key that this kind of custody did not make.
    #[error("the stored key {label:?} belongs to custody {got:?}, this is {expected:?}")]
    WrongCustody {
        /// The key's label.
        label: String,
        /// The custody it names.
        got: String,
        /// The custody asked.
        expected: &'static str,
    },
    /// A one-time-password secret that is not base32 or too short.
    #[error("not a usable one-time-password secret: {reason}")]
    BadTotpSecret {
        /// What is wrong with it.
        reason: String,
    },

    /// The selection was used before it was configured.
    #[error("the sources of cryptography were chosen already: configure them before anything uses them")]
    AlreadyInUse,

    // Each of them: it sorts its own.
    /// A token, or the way to it.
    #[error(transparent)]
    Token(#[from] crate::custody::token::TokenError),

    // Ourselves.
    /// No provider is eligible for a primitive.
    #[error("no source of cryptography for {primitive} ({obstacles})", obstacles = obstacles.join("; "))]
    NoSource {
        /// The primitive.
        primitive: Primitive,
        /// What stands against each provider.
        obstacles: Vec<String>,
    },
    /// The provider refused an operation that does not depend on anyone's input.
    #[error("the cryptographic provider could not {operation}")]
    Provider {
        /// What was asked of it.
        operation: &'static str,
    },
}
