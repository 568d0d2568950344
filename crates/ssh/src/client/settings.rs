//! What a connection needs to know.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sallyport_ca::Trust;

use crate::BoxedStream;
use crate::agent::connect_forwarded;

/// Keepalives without an answer before the connection is given up.
pub(super) const KEEPALIVES_UNANSWERED: usize = 3;

/// What a connection needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The OS login to ask for.
    pub login: String,
    /// The name that the host's certificate must carry.
    pub host: String,
    /// The cluster's authorities.
    pub trust: Arc<Trust>,
    /// Silence after which the host is asked for a sign of life; three without an answer end the connection.
    /// Default of the callers: 15 s. `None`: never.
    pub keepalive: Option<Duration>,
    /// Socket of the SSH agent that sessions may forward. Nothing is forwarded unless a session asks.
    pub agent: Option<PathBuf>,
}

/// Where a connection to the user's agent comes from, when a server asks for one.
#[async_trait]
pub(crate) trait AgentSource: Send + Sync + fmt::Debug {
    /// A connection to the agent.
    async fn open(&self) -> std::io::Result<BoxedStream>;
}

/// An agent that listens here.
#[derive(Debug)]
pub(super) struct AgentSocket(pub(super) PathBuf);

#[async_trait]
impl AgentSource for AgentSocket {
    async fn open(&self) -> io::Result<BoxedStream> {
        Ok(Box::new(connect_forwarded(&self.0, None).await?))
    }
}

/// What sort of host was dialled, which its certificate has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Whom {
    /// A node or a server, or the proxy that the authority lets stand before that server.
    #[default]
    Target,
    /// A server itself, and no proxy in its place.
    Server,
    /// A proxy, for the ways on that it opens.
    Proxy,
}

/// What a program between a user and a server needs besides [`Settings`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    /// A host key, one OpenSSH line, that is believed without a certificate.
    pub(crate) pinned: Option<String>,
    /// What sort of host was dialled.
    pub(crate) whom: Whom,
    /// The agent, in place of a socket.
    pub(crate) agent: Option<Arc<dyn AgentSource>>,
}
