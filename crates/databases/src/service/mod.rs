//! Serves database sessions: from a client's startup message to a database and back, with a record of what was asked.
//!
//! The agent brings the client's stream; databases, decisions and credentials come from the agent, too:
//! [`Directory`] and [`Credentials`] are the ports.

mod admin;
mod asked;
mod cancel;
mod connect;
mod control;
pub mod danger;
mod folding;
mod notes;
mod observer;
mod pace;
mod ports;
mod probe;
mod provision;
mod read_ahead;
pub mod rehearsal;
mod relay;
mod running;
mod session;
mod settle;
mod shared;
mod squeeze;
mod text;
mod unseen;
mod users;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sallyport_session::{Patience, Stop};
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::asked::{Asked, Came, Wanted};
pub use self::connect::ConnectError;
use self::pace::Pace;
pub use self::ports::{Credentials, CredentialsError, Directory};
pub use self::probe::probe;
use self::running::{Entry, Sessions};
pub use self::session::{factor_missing, not_end_to_end};
pub use self::shared::Settings;
use self::shared::{Io, STOPPING, Shared};
use self::users::Users;
use crate::postgres::startup::CancelKey;

/// How long a drain waits for sessions that it has cut: each tells its client and its recording, within bounds of its own.
const CUT_PATIENCE: Duration = Duration::from_secs(5);

/// Serves database sessions. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("sessions", &self.sessions()).finish_non_exhaustive()
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
        let shared = Shared { settings, pace, sessions: Sessions::default(), users: Users::default() };
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

    /// Cancels what a session is doing, for a client at this address. An unknown key does nothing, as at a database.
    pub async fn cancel(&self, key: &CancelKey, client: &str) {
        cancel::cancel(&self.shared, key, client).await;
    }

    /// Sessions that go on.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.sessions.len()
    }

    /// Waits at most so long for the sessions to end; gives how many are left.
    pub async fn emptied(&self, patience: Duration) -> usize {
        self.shared.sessions.emptied(patience).await
    }

    /// Begins no session any more, waits so long for those that go on, and ends those that are left then.
    pub async fn drain(&self, patience: Duration) {
        let cut = |entry: &Arc<Entry>| {
            entry.ending.end(Stop::Draining(STOPPING));
        };
        let patience = Patience { grace: patience, cut: CUT_PATIENCE };
        let _ = self.shared.sessions.drain(patience, cut, async {}).await;
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
