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

/// Why a process is not the account that it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccountError {
    /// No system call takes such a name.
    #[error("the account name {0:?} contains NUL")]
    Name(String),
    /// This process may not become another account.
    #[error("this process is not {0} and cannot become it")]
    Fixed(String),
    /// It was made another account.
    #[error("this process was to be {0} and is not")]
    Other(String),
    /// It could become root again.
    #[error("privileges could be regained after they were dropped")]
    Regained,
    /// The system does not do it.
    #[error("cannot {doing}: {}", .error.desc())]
    System {
        /// Completes "cannot …".
        doing: &'static str,
        /// What it says.
        error: nix::Error,
    },
}

/// Why an account's process hands over no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// The system's word to the account.
    #[error(transparent)]
    Refused(#[from] io::Error),
    /// A message carries no descriptor here.
    #[error("there is no room for a descriptor")]
    NoRoom,
    /// The node takes none.
    #[error("cannot hand the socket over: {0}")]
    NotHanded(rustix::io::Errno),
}
