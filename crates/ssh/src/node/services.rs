//! What the connections of one server share.

use std::sync::Arc;

use sallyport_audit::Sink;
use sallyport_audit::recording::Recorders;

use super::config::NodeConfig;
use super::directory::Directory;
use super::live::LiveSessions;
use crate::session::Ends;

/// What the connections of one server share.
pub(super) struct Services {
    pub(super) config: NodeConfig,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sink: Arc<dyn Sink>,
    /// None where nothing runs that would be recorded.
    pub(super) recorders: Option<Recorders>,
    pub(super) live: LiveSessions,
    /// Sessions, and what ends those that were cut: both may last longer than their connection.
    pub(super) ends: Ends,
}
