//! What is asked of a session, and what comes out of it.

use std::sync::Arc;

use bytes::Bytes;
use russh::Pty;

use super::x11::Display;

/// Longest refusal text kept, in bytes.
pub(super) const REFUSAL_BYTES: usize = 4096;

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The login's shell.
    Shell,
    /// A command line, as the login's shell reads it.
    Exec(Vec<u8>),
    /// A named service, such as `sftp`.
    Subsystem(String),
}

/// The size of a terminal window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Columns of characters.
    pub columns: u16,
    /// Rows of characters.
    pub rows: u16,
    /// Width in pixels; 0 when unknown.
    pub width: u16,
    /// Height in pixels; 0 when unknown.
    pub height: u16,
}

impl Default for WindowSize {
    fn default() -> Self {
        Self { columns: 80, rows: 24, width: 0, height: 0 }
    }
}

/// The terminal a session asks for.
#[derive(Debug, Clone)]
pub struct Terminal {
    /// Value of `TERM`.
    pub term: String,
    /// Size at the start.
    pub size: WindowSize,
    /// Encoded terminal modes (RFC 4254 §8).
    pub modes: Vec<(Pty, u32)>,
}

/// What a session asks for.
#[derive(Debug, Clone)]
pub struct SessionRequest {
    /// What runs.
    pub program: Program,
    /// With a terminal, when set.
    pub terminal: Option<Terminal>,
    /// Environment variables; the host takes those that it allows and ignores the others.
    pub environment: Vec<(String, String)>,
    /// Offer the local SSH agent to the host. Whoever is root there can use it while the session lasts.
    pub forward_agent: bool,
    /// Offer this display to the host's programs.
    pub display: Option<Arc<Display>>,
}

impl SessionRequest {
    /// A program without terminal, environment or agent.
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self { program, terminal: None, environment: Vec::new(), forward_agent: false, display: None }
    }

    /// A command line.
    #[must_use]
    pub fn exec(command: impl Into<Vec<u8>>) -> Self {
        Self::new(Program::Exec(command.into()))
    }
}

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
    Refused,
    /// The host ended the session without saying how.
    Unknown,
    /// The connection was lost.
    Lost {
        /// What the host or the network said.
        reason: String,
    },
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
