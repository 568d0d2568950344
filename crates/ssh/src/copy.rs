//! Copying files to and from a node over SFTP, as `scp` does.
//!
//! Requests are pipelined within a file and files are copied several at a time, out of one budget of bytes under way,
//! so that a distant node costs round trips per copy and not per file. What fails is reported and does not stop the
//! rest.

mod download;
mod error;
mod glob;
mod ground;
mod remote;
mod upload;

use std::fmt;
use std::sync::Arc;

pub use error::{CopyError, DestinationProblem, ServiceError};
use parking_lot::Mutex;
pub use remote::Remote;

use error::FileError;

/// Files copied at a time.
const FILES_AT_A_TIME: usize = 8;

/// Directories inside each other, at most: a bound for links that lead in circles.
const MAX_DEPTH: usize = 128;

/// What to do with symbolic links inside a copied tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Links {
    /// Copy what they point to, as `scp` does.
    #[default]
    Follow,
    /// Copy the link itself.
    Keep,
}

/// How to copy.
#[derive(Clone, Default)]
pub struct Options {
    /// Directories too. Default: a directory is a failure.
    pub recursive: bool,
    /// Times and the full mode. Default: the mode as far as the umask allows, and the time of the copy.
    pub preserve: bool,
    /// Symbolic links inside trees.
    pub links: Links,
    /// Told as it goes. Called from within the copying, so it must not block.
    pub progress: Option<Listener>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("recursive", &self.recursive)
            .field("preserve", &self.preserve)
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}

/// Told what happens during a copy.
pub type Listener = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// What happens during a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A file begins. Its size may still change.
    Begun {
        /// The source, as it was named.
        path: &'a str,
        /// Bytes expected.
        bytes: u64,
    },
    /// More of it is there.
    Moved {
        /// The source.
        path: &'a str,
        /// Bytes since the last time.
        bytes: u64,
    },
    /// It is complete, or failed.
    Ended {
        /// The source.
        path: &'a str,
        /// Whether it is complete.
        complete: bool,
    },
}

/// One thing that was not copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub path: String,
    /// Why, in words.
    pub reason: String,
}

/// What a copy did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files copied whole.
    pub files: u64,
    /// Directories made or found.
    pub directories: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Bytes in the files copied whole.
    pub bytes: u64,
    /// What failed; everything else was copied.
    pub failures: Vec<Failure>,
}

/// Collects what happens in tasks that run side by side.
struct Tally {
    options: Options,
    outcome: Mutex<Outcome>,
}

impl Tally {
    fn new(options: Options) -> Self {
        Self { options, outcome: Mutex::new(Outcome::default()) }
    }

    fn with(&self, act: impl FnOnce(&mut Outcome)) {
        act(&mut self.outcome.lock());
    }

    fn failed(&self, path: impl Into<String>, reason: impl Into<String>) {
        let failure = Failure { path: path.into(), reason: reason.into() };
        self.with(|outcome| outcome.failures.push(failure));
    }

    fn tell(&self, progress: Progress<'_>) {
        if let Some(listener) = &self.options.progress {
            listener(progress);
        }
    }

    /// Records how a file went.
    fn ended(&self, path: &str, copied: Result<u64, FileError>) {
        self.tell(Progress::Ended { path, complete: copied.is_ok() });
        match copied {
            Ok(bytes) => self.with(|outcome| {
                outcome.files += 1;
                outcome.bytes += bytes;
            }),
            Err(error) => self.failed(path, error.to_string()),
        }
    }

    fn finish(self) -> Outcome {
        self.outcome.into_inner()
    }
}
