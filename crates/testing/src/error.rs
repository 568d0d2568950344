//! Why something cannot be started or measured.

use std::path::PathBuf;

/// Why something cannot be started or measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// A program that is measured, or measured against, is not there.
    #[error("cannot run {program}: {source}; {hint}")]
    Missing {
        /// Its name.
        program: String,
        /// What the system says.
        source: std::io::Error,
        /// Where it comes from.
        hint: &'static str,
    },
    /// Something that the lab started failed.
    #[error("{what} failed: {said}")]
    Failed {
        /// What it was.
        what: String,
        /// Its last words.
        said: String,
    },
    /// Something did not happen in time.
    #[error("waited {seconds} s for {what}; the last of its log: {log}")]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// What the caller gave cannot be measured.
    #[error("{0}")]
    Input(String),
    /// A connection of the lab's own failed.
    #[error("{0}")]
    Connection(String),
}

/// Adds which file it was.
pub trait AtFile<T> {
    /// `doing` completes "cannot … PATH".
    ///
    /// # Errors
    /// [`TestbedError::File`].
    fn at(self, doing: &'static str, path: &std::path::Path) -> Result<T, TestbedError>;
}

impl<T> AtFile<T> for std::io::Result<T> {
    fn at(self, doing: &'static str, path: &std::path::Path) -> Result<T, TestbedError> {
        self.map_err(|source| TestbedError::File { doing, path: path.to_owned(), source })
    }
}
