//! Why the log cannot be written.

use std::io;
use std::path::Path;

/// Why events cannot be written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The disk.
    #[error("the audit log cannot be written: {path}: {problem}")]
    Io {
        /// The file or directory.
        path: String,
        /// What the system says.
        problem: String,
    },
    /// There is no room on the disk. Nothing of what was to be appended is in the log.
    #[error("the disk of the audit log is full ({path}): make room on it")]
    Full {
        /// The file.
        path: String,
    },
    /// The log does not fit together; nothing is appended to it, and nothing of it is cut off.
    #[error(
        "the audit log is broken: {0}; nothing was changed. To set the log aside, every byte of it, and go on in a new one: sallyport \
         admin audit repair --data-dir DIR"
    )]
    Broken(String),
    /// The writer has stopped.
    #[error("the audit log is closed")]
    Closed,
}

pub(super) fn failed(path: &Path, error: &io::Error) -> LogError {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return LogError::Full { path: path.display().to_string() };
    }
    LogError::Io { path: path.display().to_string(), problem: error.to_string() }
}
