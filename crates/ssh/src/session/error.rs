//! Why a session cannot start.

use std::io;
use std::path::PathBuf;

use time::Date;

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

/// Why an account's process has handed over no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSocket {
    /// The process's own words.
    #[error("{0}")]
    Said(String),
    #[error("the account's process ended")]
    Ended,
}

/// Why the machine's shadow file keeps an account out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClosedAccount {
    #[error(
        "this machine refuses the account {login}: its password is locked; its administrator can change that (passwd -u, \
         or node.refuse_locked_accounts)"
    )]
    Locked { login: String },
    #[error(
        "this machine refuses the account {login}: it has expired{}; its administrator can change that (chage -E)",
        .day.map(|day| format!(" ({day})")).unwrap_or_default()
    )]
    Expired {
        login: String,
        /// None when the file's number is no day of the calendar.
        day: Option<Date>,
    },
}

/// Why PAM does not let an account in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// In the words of the process that has asked PAM.
    #[error("{0}")]
    Said(String),
    #[error("PAM refuses {login}")]
    Refused { login: String },
    #[error("PAM has not answered about {login} in {seconds} s")]
    Silent { login: String, seconds: u64 },
    #[error("PAM cannot be asked about {login}")]
    Unasked { login: String, source: io::Error },
}

/// Why PAM has opened no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpeningError {
    /// In the words of the session's process, which has asked PAM.
    #[error("{0}")]
    Said(String),
    /// The process said nothing.
    #[error("the session's process ended before it began")]
    Ended,
    /// The system does not hand over what the process says.
    #[error("the session's process cannot be heard")]
    Unheard(#[source] io::Error),
    /// PAM, or the process, takes too long.
    #[error("no session was opened in {seconds} s")]
    Silent {
        /// How long the node has waited.
        seconds: u64,
    },
}
