//! Why a report cannot be written or read.

use std::path::{Path, PathBuf};

/// Why a report cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is no file, or too long to be a report.
    #[error("{} is not a report: it is not a file of less than {most_mib} MiB", path.display())]
    NotAFile {
        /// Which one.
        path: PathBuf,
        /// The most that a report has.
        most_mib: u64,
    },
    /// It is not JSON, or not what a report has in it.
    #[error("{} is not a report: {source}", path.display())]
    Malformed {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It has no measurements.
    #[error("{} is not a report: it has no measurements", path.display())]
    Empty {
        /// Which one.
        path: PathBuf,
    },
}

/// What the file system refused, and on which file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried.
    pub doing: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// What the system says.
    pub source: std::io::Error,
}

/// Adds which file it was.
pub trait AtFile<T> {
    /// `doing` completes "cannot … PATH".
    ///
    /// # Errors
    /// [`FileError`].
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> AtFile<T> for std::io::Result<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { doing, path: path.to_owned(), source })
    }
}
