//! One session that runs on this server, for those who list, end or join it.

use std::sync::Arc;

use sallyport_access::RoleName;
use sallyport_audit::recording::SessionMetadata;
use sallyport_session::{LiveSession, Participant, Served};

use super::joining::Hub;
use crate::inbound::Inbox;

/// One session that runs on this server.
pub(super) struct RunningSession {
    session: LiveSession,
    inbox: Arc<Inbox>,
    /// Of a session with a terminal.
    hub: Option<Arc<Hub>>,
}

impl RunningSession {
    pub(super) fn new(session: LiveSession, inbox: Arc<Inbox>, hub: Option<Arc<Hub>>) -> Arc<Self> {
        Arc::new(Self { session, inbox, hub })
    }

    pub(super) fn about(&self) -> &SessionMetadata {
        &self.session.about
    }

    pub(super) fn owner_roles(&self) -> &[RoleName] {
        &self.session.owner_roles
    }

    pub(super) fn hub(&self) -> Option<Arc<Hub>> {
        self.hub.clone()
    }
}

impl Served for RunningSession {
    fn end(&self, reason: &str) {
        self.inbox.cut(reason);
    }

    fn participants(&self) -> Vec<Participant> {
        self.hub.as_ref().map(|hub| hub.participants()).unwrap_or_default()
    }
}
