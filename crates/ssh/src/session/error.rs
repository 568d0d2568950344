//! Why a session cannot start.

use std::io;
use std::path::PathBuf;

/// Why a session cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The machine has no such account.
    #[error("this machine has no account {login}; ask its administrator, or use another login")]
    NoAccount {
        /// The login asked for.
        login: String,
    },
    /// Not root, and another account was asked for.
    #[error(
        "this node runs as {own} and can only serve that account, not {login}; log in as {own}, or have the node run as root"
    )]
    NotRoot {
        /// The account that the node runs as.
        own: String,
        /// The login asked for.
        login: String,
    },
    /// The account database cannot be read.
    #[error("cannot look up the account {login}: {reason}")]
    Lookup {
        /// The login asked for.
        login: String,
        /// What the system says.
        reason: String,
    },
    /// No terminal to be had.
    #[error("cannot open a terminal: {0}")]
    Terminal(io::Error),
    /// The session process does not start.
    #[error("cannot start the session process {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
