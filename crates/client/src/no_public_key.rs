//! Why a file has no SSH key of the user's own that a login could have certified.

/// Longest file that is read, in bytes: the authority takes lines of 4 KiB, and a comment goes before they are sent.
pub(crate) const MOST_BYTES: u64 = 16 * 1024;

/// Why a file is not a key that a login can have certified. What it says completes "cannot have FILE certified: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPublicKey {
    /// Neither it nor a public key beside it is there.
    #[error("there is no such file")]
    Missing,
    /// A directory, for one.
    #[error("it is not a file")]
    NoFile,
    /// The system does not let it be read.
    #[error("{0}")]
    Unreadable(String),
    /// Profiles and configurations of ssh keep names as text.
    #[error("its name is not plain text or has ${{ in it, and a configuration of ssh cannot hold it")]
    Name,
    /// Longer than any public key.
    #[error("it has more than {MOST_BYTES} bytes, which no public key has")]
    TooLong,
    /// The private half, alone.
    #[error("it is a private key, and its public key is not beside it")]
    Private,
    /// What is certified is a key.
    #[error("it is a certificate, and a public key is expected")]
    Certificate,
    /// Such as `authorized_keys`.
    #[error("it has several lines, and a public key has one")]
    SeveralLines,
    /// No key, or one of a type that is not certified.
    #[error("{0}")]
    Unsupported(String),
}
