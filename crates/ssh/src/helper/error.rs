//! Why a session's process does not do what it is for. It says so on standard error, which the person sees.

use std::io;
use std::path::PathBuf;

use crate::session::{AccountError, SocketError, StartError};

/// What went wrong in a session's process, by who is to blame.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelperError {
    // A person who has started it.
    #[error("{argument} is for the node's own use; to log in, use: sallyport ssh")]
    NotForPeople { argument: &'static str },

    // The node.
    #[error("the session is not described: {0}")]
    NotDescribed(serde_json::Error),
    #[error("there is no question for PAM")]
    NoQuestion,
    #[error("PAM was not asked")]
    NotAsked,
    #[error("the node has gone")]
    NodeGone,
    #[error("the session was ended before it began")]
    EndedEarly,

    // The machine's administrator.
    #[cfg(not(feature = "pam"))]
    #[error(
        "this node is to ask PAM about accounts, and its program was built without that; its administrator can build it \
         with --features pam, or remove node.pam_account"
    )]
    NoPam,
    #[error(
        "this node is to open PAM sessions, and {place} is gone; its administrator can install util-linux, or remove \
         node.pam_session"
    )]
    NoRunuser { place: &'static str },
    #[cfg(feature = "pam")]
    #[error("PAM cannot be asked about the account {login}: {error}")]
    PamUnasked { login: String, error: nonstick::ErrorCode },
    #[cfg(feature = "pam")]
    #[error("this machine refuses the account {login} (PAM service {service}): {reason}")]
    PamRefused { login: String, service: String, reason: String },
    #[error("this machine opens no session for the account {login} (PAM service {service}): {said}")]
    NoPamSession { login: String, service: &'static str, said: String },
    #[error("PAM has opened no session for the account {login} in {seconds} s")]
    PamSilent { login: String, seconds: u64 },
    /// As the machine's file says it.
    #[error("{0}")]
    NoLogins(String),

    // The account and its processes.
    #[error(transparent)]
    Account(#[from] StartError),
    #[error("process {0} traces this one, which serves nothing like that")]
    Traced(u32),
    #[error("the session's process is another's")]
    OthersProcess,
    /// What the process below PAM says.
    #[error("{0}")]
    Below(String),
    #[error("cannot run {account}'s shell {}: {error}", shell.display())]
    Shell { account: String, shell: PathBuf, error: io::Error },
    #[error(transparent)]
    Become(#[from] AccountError),
    #[error(transparent)]
    Socket(#[from] SocketError),

    // The system.
    #[error("cannot learn whether this process is traced: the system does not say")]
    TracerUnknown,
    #[error("{0} has no process")]
    NoProcess(&'static str),
    #[error("the session's process does not take its ends: {0}")]
    EndsNotTaken(io::Error),
    #[error("cannot {doing}: {error}")]
    System { doing: &'static str, error: io::Error },
}

impl HelperError {
    /// `doing` completes "cannot …".
    pub(super) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, error: error.into() }
    }
}
