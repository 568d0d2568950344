//! What the plain SSH face and the proxy say to each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sallyport_access::{Identity, SessionTarget};
use sallyport_ca::Trust;
use tokio_util::sync::CancellationToken;

use crate::BoxedStream;
use crate::capabilities::Sighting;
use crate::transport::accept::NotIn;

/// Why the proxy does not serve a client that has proven who it is, in words that its user may read: they are shown as
/// they are. What else the proxy knows goes to its log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl Refusal {
    /// With these words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

/// The user name on this hop that wants to be asked for a second factor. Others are not: a client in a script cannot answer, and goes
/// where no factor is demanded.
pub const ASKS: &str = "mfa";

/// A second factor that a user is asked for before they are let in, because they have asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What the user reads; several lines.
    pub words: String,
    /// For [`Dial::answer`].
    pub challenge: String,
    /// The sessions that the words name: an answer is for them, and for nothing that was asked for since.
    pub sessions: Vec<SessionTarget>,
}

/// What came of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// There is nothing more to ask: it is proven, or over.
    Done,
    /// The user is asked once more, and reads why.
    Again(String),
}

/// What this face needs from the proxy.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// The cluster's authorities as they are now.
    fn trust(&self) -> Arc<Trust>;

    /// Opens a stream to the SSH service of a node, if this identity may reach it.
    ///
    /// `certificate` is what proved the identity, as one line. `host` is what the user typed: a name, an id, or a name
    /// with the cluster's name behind it. `cut` is cancelled when the identity may not go on there: then the client's end is
    /// closed as well, even if it takes nothing.
    ///
    /// # Errors
    /// [`Refusal`].
    async fn dial(
        &self,
        identity: &Identity,
        certificate: &str,
        host: &str,
        client: SocketAddr,
        cut: CancellationToken,
    ) -> Result<BoxedStream, Refusal>;

    /// Which second factor a user is still to prove for what was refused before, where the user name of this hop asks for it. Default: none.
    async fn question(&self, _: &Identity, _certificate: &str, _: SocketAddr) -> Option<Question> {
        None
    }

    /// What the user has typed; nothing where they have proven it elsewhere.
    async fn answer(&self, _: &Question, _typed: &str, _certificate: &str, _: SocketAddr) -> Answered {
        Answered::Done
    }

    /// A client has proven who it is, or is gone without. Must not wait: the connection does. Default: not remembered.
    fn saw(&self, _: Sighting) {}
}

/// Is told once who has proven themselves on a connection; the error is why the connection is not served.
pub type Admits = Arc<dyn Fn(&Identity) -> Result<(), Refusal> + Send + Sync>;

/// Limits of this face.
#[derive(Debug, Clone)]
pub struct JumpConfig {
    /// Time from the first byte to a proven identity. Default 20 s.
    pub auth_timeout: Duration,
    /// How long a connection may stand with no channel open. Default 2 min.
    pub idle_timeout: Duration,
    /// Silence after which the client is asked for a sign of life; three without an answer end it. Default 30 s.
    pub keepalive: Duration,
    /// Channels open at a time on one connection. Default 32.
    pub max_channels: usize,
    /// Longest time from the request for a node to its answer. Default 20 s.
    pub dial_timeout: Duration,
}

impl Default for JumpConfig {
    fn default() -> Self {
        Self {
            auth_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(120),
            keepalive: Duration::from_secs(30),
            max_channels: 32,
            dial_timeout: Duration::from_secs(20),
        }
    }
}

/// Why this face could not be set up, or a connection to it ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JumpError {
    /// The host key or its certificate cannot be used.
    #[error("the proxy's SSH host {what} cannot be used: {reason}")]
    HostKey {
        /// "key" or "certificate".
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The client did not prove who it is in time.
    #[error("no proven identity within {} s", .0.as_secs())]
    AuthTimeout(Duration),
    /// The connection stood unused.
    #[error("no channel was open for {} s", .0.as_secs())]
    Idle(Duration),
    /// The proxy is shutting down.
    #[error("the proxy is shutting down")]
    Draining,
    /// The client has proven who it is, and is not served for all that.
    #[error("the client was sent away: {0}")]
    SentAway(Refusal),
    /// The client does not offer what the cluster requires; it was told.
    #[error("{software} was sent away: {reason}")]
    KeyExchange {
        /// What it calls itself.
        software: String,
        /// Why.
        reason: String,
    },
    /// The client went away, or did not speak SSH properly.
    #[error("the SSH connection ended")]
    Ssh(#[from] russh::Error),
    /// The same before the client was let in.
    #[error("no SSH connection: {0}")]
    Transport(NotIn),
}
