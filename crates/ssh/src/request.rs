//! What a session is asked for by: one shape, whichever protocol carries it.
//!
//! The SSH clients make channel requests of it (`client` by the library, `pipelined` by itself), the native protocol sends it
//! whole (`native`), a proxy that records and the helper daemon hand it on (`node::remote`), and a node reads a native client's
//! from it (`node::connection`). What of it a session may have, the node says.

use std::fmt;

use crate::session::Terminal;

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

/// What a session asks for. The login is the connection's, and so are forwarded ports. `D` is the display on the side
/// that speaks: what is said of it, or the display itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest<D = DisplayOffer> {
    /// What runs.
    pub program: Program,
    /// With a terminal, when set.
    pub terminal: Option<Terminal>,
    /// Environment variables; the host takes those that it allows and ignores the others.
    pub environment: Vec<(String, String)>,
    /// Offer the client's SSH agent to the host. An administrator of the host can use it while the session lasts.
    pub forward_agent: bool,
    /// Offer this display to the host's programs.
    pub display: Option<D>,
}

impl<D> SessionRequest<D> {
    /// A program without terminal, environment, agent or display.
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self { program, terminal: None, environment: Vec::new(), forward_agent: false, display: None }
    }

    /// A command line.
    #[must_use]
    pub fn exec(command: impl Into<Vec<u8>>) -> Self {
        Self::new(Program::Exec(command.into()))
    }

    /// The same session, with another side's view of the display.
    pub(crate) fn with_display<E>(self, display: impl FnOnce(D) -> E) -> SessionRequest<E> {
        let Self { program, terminal, environment, forward_agent, display: offered } = self;
        SessionRequest { program, terminal, environment, forward_agent, display: offered.map(display) }
    }
}

/// A display, as a client offers it (RFC 4254 §6.3.1).
#[derive(Clone, PartialEq, Eq)]
pub struct DisplayOffer {
    /// One connection, and no more.
    pub single: bool,
    /// How programs prove themselves.
    pub protocol: String,
    /// By what, in hexadecimal. Not the display's own.
    pub cookie: String,
    /// The screen.
    pub screen: u32,
}

impl fmt::Debug for DisplayOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DisplayOffer").field("screen", &self.screen).finish_non_exhaustive()
    }
}
