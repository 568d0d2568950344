//! Serves database sessions: from a client's startup message to a database and back, with a record of what was asked.
//!
//! What is between a client and this is somebody else's, and so is where databases, decisions and credentials come from:
//! [`Directory`] and [`Credentials`] are the ports.

mod admin;
mod cancel;
mod connect;
mod control;
pub mod danger;
mod folding;
mod live;
mod notes;
mod probe;
mod provision;
mod read_ahead;
mod record;
pub mod rehearsal;
mod relay;
mod session;
mod settle;
mod squeeze;
mod tap;
mod text;
mod unseen;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sallyport_access::{Database, DatabaseName, DatabasePermit, Identity, NodeName, Refusal, SessionId};
use sallyport_audit::Sink;
use sallyport_audit::recording::{Recorders, SessionMetadata};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;
use tracing::Span;
use uuid::Uuid;
use zeroize::Zeroizing;

pub use self::connect::ConnectError;
use self::danger::Pace;
pub use self::probe::probe;
pub use self::session::not_end_to_end;
use crate::postgres::startup::CancelKey;

/// A client's bytes, whatever they come through.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// What clients read when their agent is stopped.
const STOPPING: &str = "the agent is being stopped; connect again";

/// What an agent knows of its cluster. It answers from memory: sessions wait for it.
pub trait Directory: Send + Sync {
    /// A database that this agent serves.
    fn database(&self, name: &DatabaseName) -> Option<Arc<Database>>;

    /// The decision of the policy, with the locks.
    ///
    /// # Errors
    /// The refusal.
    fn decide(
        &self,
        identity: &Identity,
        database: &Database,
        db_user: &str,
        db_name: &str,
        now: OffsetDateTime,
    ) -> Result<DatabasePermit, Refusal>;

    /// A counter that changes whenever a decision may have. Live sessions are decided upon anew then.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// How a client has come to the agent, which is who has proven what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Inside TLS from the user's own program to the agent: the user has proven the certificate here.
    EndToEnd,
    /// By a proxy, at which the client's TLS ends: that the user is there the agent has by the proxy's word alone.
    ByProxy,
}

impl Came {
    /// The word for events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EndToEnd => "end_to_end",
            Self::ByProxy => "by_proxy",
        }
    }
}

/// What a connection to a database is wanted for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The database.
    pub database: Arc<Database>,
    /// Who may use it how.
    pub permit: Arc<DatabasePermit>,
    /// The login that the user's certificate is of: credentials are kept for each of it, the database and the user.
    pub login_id: Uuid,
    /// The user's certificate, DER.
    pub proof: Bytes,
    /// The word that this session was opened, for whoever gives out permits and credentials; not looked at here.
    pub opened: Bytes,
    /// How the client has come.
    pub came: Came,
    /// As the account that makes users ([`Database::admin_user`]) instead of the permit's user.
    pub provisioning: bool,
}

impl Wanted {
    /// The database user that is logged in as.
    #[must_use]
    pub fn user(&self) -> &str {
        let admin = self.database.admin_user.as_deref().filter(|_| self.provisioning);
        admin.unwrap_or_else(|| self.permit.db_user())
    }

    /// The database of the server that is connected to.
    #[must_use]
    pub fn db_name(&self) -> &str {
        if self.provisioning { admin::MEETING } else { self.permit.db_name() }
    }
}

/// Why there are no credentials for a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// They are denied.
    #[error("{0}")]
    Refused(String),
    /// They cannot be had now, or what is configured is no good.
    #[error("{0}")]
    Unavailable(String),
}

/// What an agent logs in to databases with.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// Asks for the authority's permit of one session that a proxy has opened ([`Came::ByProxy`]). Each is for that session
    /// alone, and none begins without; beside this [`Credentials::tls`] may be asked already.
    async fn permit(&self, wanted: &Wanted) -> Result<(), CredentialsError>;

    /// The TLS configuration: whom to trust, and for a login by certificate the certificate of [`Wanted::user`]. Whoever
    /// implements this keeps it for as long as the certificate is good; then TLS sessions are resumed, too. Not asked
    /// for a database without TLS.
    async fn tls(&self, wanted: &Wanted) -> Result<Arc<ClientConfig>, CredentialsError>;

    /// The TLS configuration that is held for this already, where the server takes it still; nobody is asked. It is for ending what a
    /// session has left there, also where its user is given nothing any more: no session begins by it.
    fn held(&self, wanted: &Wanted) -> Option<Arc<ClientConfig>>;

    /// Makes sure that a session which goes on can be logged in for once more, for as long as its user may: whoever implements this
    /// renews a certificate that ends soon. What fails is tried again by the next time.
    async fn renew(&self, wanted: &Wanted) -> Result<(), CredentialsError>;

    /// The password of [`Wanted::user`] at the database, for a login by password.
    fn password(&self, wanted: &Wanted) -> Option<Zeroizing<String>>;
}

/// Keeps the list of sessions that go on, from which they are ended.
pub trait Live: Send + Sync {
    /// A session begins; when what this gives is dropped, it is over. `recording` says where it is recorded: `node` or `off`.
    /// `end` cuts the session, and its client reads the reason.
    fn enter(
        &self,
        about: &SessionMetadata,
        owner: &Identity,
        recording: &'static str,
        end: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Box<dyn Send + Sync>;
}

/// What a session is asked for by whoever accepted the client's connection.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which database.
    pub database: DatabaseName,
    /// Who, proven.
    pub identity: Identity,
    /// The certificate that proves it, DER.
    pub proof: Bytes,
    /// See [`Wanted::opened`].
    pub opened: Bytes,
    /// How the client has come.
    pub came: Came,
    /// Where the client is.
    pub client: String,
    /// What the client is told to cancel its queries with; [`Service::cancel`] takes it.
    pub cancel: CancelKey,
    /// The session.
    pub session: SessionId,
    /// What its beginning is a part of, for traces: it ends when the client hears that its session is ready.
    /// [`Span::none`] where nobody asks.
    pub opening: Span,
}

/// What a service is made of.
#[derive(Clone)]
pub struct Settings {
    /// Databases and decisions.
    pub directory: Arc<dyn Directory>,
    /// Logins.
    pub credentials: Arc<dyn Credentials>,
    /// Is told of sessions.
    pub live: Arc<dyn Live>,
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

/// Serves database sessions. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    settings: Settings,
    pace: Pace,
    live: live::Table,
    users: provision::Users,
    /// No session begins any more.
    draining: AtomicBool,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("live", &self.shared.live.len()).finish_non_exhaustive()
    }
}

impl Service {
    /// A service without sessions.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let pace = Pace::of(settings.patience);
        Self::paced(settings, pace)
    }

    fn paced(settings: Settings, pace: Pace) -> Self {
        let shared = Shared {
            settings,
            pace,
            live: live::Table::default(),
            users: provision::Users::default(),
            draining: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Serves one client, whose bytes come from its startup message on, to the end. What goes wrong is told to the client,
    /// and in events.
    pub fn serve<S>(&self, stream: S, asked: Asked) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_boxed(Box::new(stream), asked)
    }

    fn serve_boxed(
        &self,
        stream: Box<dyn Io>,
        asked: Asked,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(session::serve(&self.shared, stream, asked))
    }

    /// Cancels what a session is doing, for a client at this address. A key that nobody has does nothing, as at a database.
    pub async fn cancel(&self, key: &CancelKey, client: &str) {
        cancel::cancel(&self.shared, key, client).await;
    }

    /// Sessions that go on.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.live.len()
    }

    /// Ends a session; the client reads why. Whether there was one.
    pub fn end(&self, session: &SessionId, reason: &str) -> bool {
        self.shared.live.end(Some(session), reason)
    }

    /// Begins no session any more, waits so long for those that go on, and ends those that are left then.
    pub async fn drain(&self, patience: Duration) {
        self.shared.draining.store(true, Ordering::Relaxed);
        if tokio::time::timeout(patience, self.shared.live.empty()).await.is_err() {
            self.shared.live.end(None, STOPPING);
            // Each of them tells its client and its recording, within bounds of its own.
            let _ = tokio::time::timeout(Duration::from_secs(5), self.shared.live.empty()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_may_run_on_any_thread() {
        fn may_move(_: impl Send) {}
        #[allow(dead_code, reason = "it compiles")]
        fn serves(service: &Service, stream: tokio::net::TcpStream, asked: Asked, key: &CancelKey) {
            may_move(service.serve(stream, asked));
            may_move(service.cancel(key, ""));
        }
    }
}
