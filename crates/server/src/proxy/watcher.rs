//! Noticing that a lock has taken away what let a session in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sallyport_access::{Identity, Login, Node};
use sallyport_audit::{Code, Event, Sink};
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::info;

use crate::view::ClusterView;

/// Watches over one session.
pub(crate) struct Watcher {
    view: Arc<ClusterView>,
    identity: Arc<Identity>,
    node: Arc<Node>,
    /// The login of the session, where the proxy knows it.
    login: Option<Login>,
    sink: Arc<dyn Sink>,
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

async fn change(mut changes: watch::Receiver<u64>) {
    if changes.changed().await.is_err() {
        // The view is gone with the service; nothing will change any more.
        std::future::pending::<()>().await;
    }
}

impl Watcher {
    pub(crate) fn new(
        view: Arc<ClusterView>,
        identity: Arc<Identity>,
        node: Arc<Node>,
        login: Option<Login>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let changed = Box::pin(change(view.changes()));
        Self { view, identity, node, login, sink, changed }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// The reason to end the session, if there is one now.
    pub(crate) fn poll_cut(&mut self, context: &mut Context<'_>) -> Option<String> {
        while let Poll::Ready(()) = self.changed.as_mut().poll(context) {
            self.changed = Box::pin(change(self.view.changes()));
            let now = OffsetDateTime::now_utc();
            let locks = self.view.locks();
            let policies = self.view.policies();
            let locked = policies.locked(&self.identity, Some(&self.node), self.login.as_ref(), &locks, now);
            if let Some(refusal) = locked {
                info!(reason = %refusal, "session cut");
                self.sink
                    .emit(self.event(Code::SessionCut).message(refusal.to_string()).field("at", "proxy"));
                return Some(format!("session ended: {}", refusal.public_message()));
            }
        }
        None
    }

    /// An event about the session.
    pub(crate) fn event(&self, code: Code) -> Event {
        let event = Event::new(code, OffsetDateTime::now_utc())
            .user(self.identity.display_name())
            .node(self.node.name.as_str())
            .field("node_id", self.node.id.to_string());
        match &self.login {
            Some(login) => event.login(login.as_str()),
            None => event,
        }
    }
}
