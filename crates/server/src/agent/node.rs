//! stub
#![allow(missing_docs, dead_code, clippy::all)]
use super::{tunnel::ServeStream, upload::IsLive};
use crate::{ServerError, config::NodeSection, host::Credentials, view::ClusterView};
use sallyport_access::Node;
use sallyport_audit::Sink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
pub(crate) struct Start<'a> {
    pub own: Node,
    pub section: &'a NodeSection,
    pub directory: &'a Path,
    pub spool_bytes: u64,
    pub credentials: Credentials,
    pub view: Arc<ClusterView>,
    pub sink: Arc<dyn Sink>,
    pub renewed: Arc<Notify>,
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
}
#[derive(Debug)]
pub(crate) struct SshNode {
    dir: PathBuf,
}
impl SshNode {
    pub(crate) fn start(s: Start<'_>) -> Result<Self, ServerError> {
        Ok(Self { dir: s.directory.join("recordings") })
    }
    pub(crate) fn connections(&self) -> usize {
        0
    }
    pub(crate) async fn drained(&self, _: Duration) -> usize {
        0
    }
    pub(crate) async fn end_all(&self) {}
    pub(crate) fn recordings(&self) -> &Path {
        &self.dir
    }
    pub(crate) fn is_live(&self) -> IsLive {
        Arc::new(|_| false)
    }
    pub(crate) fn serve(&self) -> ServeStream {
        Arc::new(|_, _| Box::pin(async {}))
    }
}
pub(crate) fn os_user() -> String {
    String::new()
}
