//! Tasks of the services, each started boxed: what the runtime generates for a task, some 2,500 lines of LLVM's, is then
//! generated once and not for each kind of future.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Tasks that a service waits for when it ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tasks(TaskTracker);

impl Tasks {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.0.spawn(boxed(task))
    }

    /// Lets [`Self::wait`] return when the tasks have ended.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Waits until the tasks have ended and no more are to come.
    pub(crate) async fn wait(&self) {
        self.0.wait().await;
    }

    /// Tasks that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Starts a task that no service waits for.
pub(crate) fn start(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(boxed(task))
}

fn boxed(task: impl Future<Output = ()> + Send + 'static) -> futures::future::BoxFuture<'static, ()> {
    Box::pin(task)
}
