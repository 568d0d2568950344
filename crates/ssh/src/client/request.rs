//! What is asked of a session, and what comes out of it.

use std::sync::Arc;

use bytes::Bytes;

use super::x11::Display;
use crate::request;

/// Longest refusal text kept, in bytes.
pub(super) const REFUSAL_BYTES: usize = 4096;

/// What a session asks for, with a display of this side.
pub type SessionRequest = request::SessionRequest<Arc<Display>>;

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// With a status.
    Status(u32),
    /// By a signal.
    Signal {
        /// Its name without `SIG`.
        name: String,
        /// A core file was written.
        core_dumped: bool,
        /// What the host says about it.
        message: String,
    },
    /// The host refused to run the program.
    Refused {
        /// Whether it has said why, as what comes on standard error.
        explained: bool,
    },
    /// The host ended the session without saying how.
    Unknown,
    /// The connection was lost.
    Lost {
        /// What the host or the network said.
        reason: String,
    },
}

impl Exit {
    /// Takes what came on standard error: a host that has refused says there why.
    pub(super) fn explained_by(&mut self, text: &[u8]) {
        if let Self::Refused { explained } = self {
            *explained |= !text.trim_ascii().is_empty();
        }
    }
}

/// What comes out of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Standard output, or everything where there is a terminal.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// The program runs.
    Started,
    /// The host gives no terminal; the program may run without one.
    TerminalRefused,
    /// The host takes no agent; the program runs without one.
    AgentRefused,
    /// The host takes no display; the program runs without one.
    DisplayRefused,
    /// The end. Nothing comes after it.
    Exit(Exit),
}
