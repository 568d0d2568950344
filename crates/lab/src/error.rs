//! Why something cannot be measured.

use sallyport_bench::{BenchError, FileError};
use sallyport_testing::TestbedError;

/// Why something cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// What is measured, or measured against, cannot be started.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A report cannot be written or read.
    #[error(transparent)]
    Report(#[from] BenchError),
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// A program that takes part is not there.
    #[error("cannot run {program}: {source}; {hint}")]
    Missing {
        /// Its name.
        program: String,
        /// What the system says.
        source: std::io::Error,
        /// Where it comes from.
        hint: &'static str,
    },
    /// A step of the measurement failed.
    #[error("{what} failed: {said}")]
    Failed {
        /// Which one.
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
    /// What the caller gave cannot be measured.
    #[error("{0}")]
    Input(String),
    /// A connection of the lab's own failed.
    #[error("{0}")]
    Connection(String),
}

impl LabError {
    /// Of a connection of the lab's own, with what the other end or the system said.
    pub(crate) fn of_connection(said: impl std::fmt::Display) -> Self {
        Self::Connection(said.to_string())
    }
}
