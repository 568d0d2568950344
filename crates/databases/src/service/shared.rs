//! What the sessions of a service share.

use std::sync::Arc;
use std::time::Duration;

use sallyport_access::NodeName;
use sallyport_audit::Sink;
use sallyport_audit::recording::Recorders;
use sallyport_session::LiveSessions;
use tokio::io::{AsyncRead, AsyncWrite};

use super::pace::Pace;
use super::ports::{Credentials, Directory};
use super::running::Sessions;
use super::users::Users;

/// A client's bytes, whatever they come through.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// What clients read when their agent is stopped.
pub(super) const STOPPING: &str = "the agent is being stopped; connect again";

/// What a service is made of.
#[derive(Clone)]
pub struct Settings {
    /// Databases and decisions.
    pub directory: Arc<dyn Directory>,
    /// Logins.
    pub credentials: Arc<dyn Credentials>,
    /// The list of this host's sessions, of every kind.
    pub live: LiveSessions,
    /// Takes events.
    pub sink: Arc<dyn Sink>,
    /// Where sessions are recorded.
    pub recorders: Recorders,
    /// The cluster's name.
    pub cluster: String,
    /// This agent's name.
    pub agent: NodeName,
    /// This agent's id.
    pub agent_id: String,
    /// How long a session may take to begin, from the client's first byte on: longest wait for each of the client's startup
    /// message, the connection, TLS and the login. Default 10 s.
    pub patience: Duration,
}

pub(crate) struct Shared {
    pub(super) settings: Settings,
    pub(super) pace: Pace,
    pub(super) sessions: Sessions,
    pub(super) users: Users,
}
