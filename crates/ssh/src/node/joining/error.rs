//! Why a user cannot take part in a session, in the words that the user reads.

use sallyport_access::{IdError, Refusal, SessionId};

/// How the command is written.
const USAGE: &str = "say which session: ssh -t sallyport-join@NODE SESSION [observer|peer|moderator]; see: sallyport sessions ls";

/// Why a user cannot take part in a session.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JoinError {
    #[error("{USAGE}")]
    Usage,
    #[error("{0}; {USAGE}")]
    NoSession(#[from] IdError),
    #[error("no session {0} runs on this node; see: sallyport sessions ls")]
    NotRunning(SessionId),
    #[error("{}", .0.public_message())]
    Policy(#[from] Refusal),
    #[error("only sessions with a terminal can be joined")]
    NoTerminal,
    #[error("{most} people take part in this session already")]
    Full { most: usize },
}
