//! What stands behind the SSH server: where sessions run and connections go. On a node that is its own machine
//! ([`super::local::Local`]).

use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use russh::server::Handle;
use sallyport_access::Identity;
use sallyport_access::permit::Permit;
use ssh_key::Certificate;

use crate::BoxedStream;
use crate::session::{Ended, Input, Kind, Output, Tap, Terminal};

/// Serves those who have been let in.
#[async_trait]
pub(crate) trait BackEnd: Send + Sync + fmt::Debug {
    /// The place of a login, asked for once a connection, when it has been let in.
    ///
    /// # Errors
    /// What the person reads when the login has none.
    async fn enter(
        &self,
        identity: &Identity,
        certificate: &Certificate,
        permit: &Permit,
    ) -> Result<Arc<dyn Place>, String>;
}

/// What one login can have done for it. Every check is behind whoever calls.
#[async_trait]
pub(crate) trait Place: Send + Sync + fmt::Debug {
    /// Runs a session to its end. Dropping the future hangs it up. What cannot start has been cut for that reason.
    async fn run(
        &self,
        session: Asked,
        input: Box<dyn Input>,
        output: Arc<dyn Output>,
        tap: Arc<dyn Tap>,
    ) -> Ended;

    /// Lets a session that is about to run reach its client's agent, by channels that are opened through `client`.
    async fn agent(&self, client: Handle) -> io::Result<Reach>;

    /// Connects to somewhere else. Whoever calls bounds the time.
    async fn connect(&self, target: &Target) -> io::Result<BoxedStream>;
}

/// A session that somebody asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// What to run.
    pub(crate) kind: Kind,
    /// A terminal, when the client wants one.
    pub(crate) terminal: Option<Terminal>,
    /// Variables on top of the account's own.
    pub(crate) environment: Vec<(String, String)>,
}

/// Something of the client's that a session can reach, for as long as this lives.
pub(crate) struct Reach {
    /// What tells the session's programs where it is.
    pub(crate) environment: Vec<(String, String)>,
    /// What takes it away when dropped.
    pub(crate) _guard: Box<dyn Send>,
}

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A port of a machine, by name or address.
    Port {
        /// As the client named it.
        host: String,
        /// Never 0.
        port: u16,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { host, port } => write!(f, "{host}:{port}"),
        }
    }
}
