//! What the connections of one server share.

use std::sync::Arc;

use sallyport_audit::Sink;
use sallyport_audit::recording::Recorders;
use sallyport_session::{LiveSessions, Roster};

use super::config::NodeConfig;
use super::directory::Directory;
use super::running::RunningSession;
use crate::session::Ends;

/// What the connections of one server share.
pub(super) struct Services {
    pub(super) config: NodeConfig,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sink: Arc<dyn Sink>,
    /// None where nothing runs that would be recorded.
    pub(super) recorders: Option<Recorders>,
    /// The host's list of sessions, with those of its other servers.
    pub(super) live: LiveSessions,
    /// The sessions of this server alone: one is joined by what the roles say about this node.
    pub(super) running: Roster<Arc<RunningSession>>,
    /// Sessions, and what ends those that were cut: both may last longer than their connection.
    pub(super) ends: Ends,
}
