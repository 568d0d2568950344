//! What is refused.

/// Why nothing was signed, verified, read or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No backend is registered.
    NoBackend,
    /// The backend does not know the key, or the signature is not the key's.
    Refused,
    /// RSA keys are read, written and made elsewhere.
    NotHere,
}

/// With [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoBackend => "no backend is registered for RSA in SSH",
            Self::Refused => "the RSA key is not known, or the signature is not its own",
            Self::NotHere => "RSA keys are not read, written or made by the SSH library",
        })
    }
}

impl std::error::Error for Error {}

impl From<Error> for signature::Error {
    fn from(error: Error) -> Self {
        Self::from_source(error)
    }
}
