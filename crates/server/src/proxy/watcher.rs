//! Ending a session when a lock has taken away what let it in.
//!
//! A task of its own watches over each session, apart from whatever carries the bytes: that may stand still for as long as the
//! peers like. It subscribes to changes before it asks for the first time, so that no lock falls in between.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use sallyport_access::{Identity, Login, Node, Refusal};
use sallyport_audit::{Code, Event, Sink};
use time::OffsetDateTime;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tracing::{Instrument, info};

use crate::cluster_cache::ClusterCache;
use crate::sessions::SessionGuard;
use crate::tasks;

/// Whose session it is, and where.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) node: Arc<Node>,
    /// The login of the session, where the proxy knows it.
    pub(crate) login: Option<Login>,
    pub(crate) sink: Arc<dyn Sink>,
}

/// Watches over one session until it is dropped.
pub(crate) struct Watcher {
    of: Watched,
    cut: Result<String, oneshot::Receiver<String>>,
    task: AbortHandle,
    /// The session counts until it is cut, whether or not its client takes notice.
    counted: Arc<Mutex<Option<SessionGuard>>>,
}

impl Watched {
    /// The lock that keeps the session out now, if there is one.
    fn locked(&self) -> Option<Refusal> {
        let (locks, now) = (self.view.locks(), OffsetDateTime::now_utc());
        self.view.policies().locked(&self.identity, &*self.node, self.login.as_ref(), &locks, now)
    }

    /// An event about the session.
    fn event(&self, code: Code) -> Event {
        let event = Event::new(code, OffsetDateTime::now_utc())
            .user(self.identity.display_name())
            .node(self.node.name.as_str())
            .field("node_id", self.node.id.to_string());
        match &self.login {
            Some(login) => event.login(login.as_str()),
            None => event,
        }
    }

    /// Waits for a lock, and gives what the user reads.
    async fn cut(&self) -> String {
        let refusal = self.view.when(|| self.locked()).await;
        info!(reason = %refusal, "session cut");
        let event = self.event(Code::SessionCut).message(refusal.to_string());
        self.sink.emit(event.field("at", "proxy"));
        format!("session ended: {}", refusal.public_message())
    }
}

impl Watcher {
    /// Watches over a session. When a lock comes, `end` closes the way to the node, without waiting for anything.
    pub(crate) fn new(
        of: Watched,
        counted: Option<SessionGuard>,
        end: impl FnOnce(&str) + Send + 'static,
    ) -> Self {
        let counted = Arc::new(Mutex::new(counted));
        let (tell, cut) = oneshot::channel();
        let (watched, counts) = (of.clone(), Arc::clone(&counted));
        let watching = async move {
            let reason = watched.cut().await;
            // Whoever reads finds the reason there before the end of the way.
            let _ = tell.send(reason.clone());
            end(&reason);
            drop(taken(&counts));
        };
        let task = tasks::start(watching.in_current_span()).abort_handle();
        Self { of, cut: Err(cut), task, counted }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.of.node
    }

    /// The reason for which the session was cut, if it was.
    pub(crate) fn poll_cut(&mut self, context: &mut Context<'_>) -> Option<String> {
        if let Err(cut) = self.cut.as_mut()
            && let Poll::Ready(Ok(reason)) = Pin::new(cut).poll(context)
        {
            self.cut = Ok(reason);
        }
        self.cut.as_ref().ok().cloned()
    }

    /// An event about the session.
    pub(crate) fn event(&self, code: Code) -> Event {
        self.of.event(code)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
        drop(taken(&self.counted));
    }
}

fn taken(counted: &Mutex<Option<SessionGuard>>) -> Option<SessionGuard> {
    counted.lock().unwrap_or_else(PoisonError::into_inner).take()
}
