//! The authority: certificate authorities, users, policy, audit log and recordings. The only writer of state.
//!
//! ```text
//! DATA_DIR/auth/seal.key      mode 0600; everything secret in state.db is sealed under it
//!               state.db      users, roles, tokens, hosts, sealed keys
//!               audit/        the hash-chained log and its checkpoints
//!               recordings/   sealed recordings
//! DATA_DIR/admin.sock         mode 0600; a program that can open it is the local administrator
//! ```
//!
//! It is composed of services that own their state; `authority::services` draws which takes which.

mod accounts;
mod api;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]
mod attacks;
mod audit;
mod caller;
mod catalogue;
mod certificates;
mod challenges;
mod config;
mod counted;
mod databases;
mod devices;
mod errors;
mod factors;
pub(crate) mod fips;
mod gate;
mod hosts;
mod identities;
mod inventory;
mod issuance;
mod open;
mod policy;
mod recordings;
mod records;
mod reports;
mod resources;
mod rotation;
mod scim;
mod secrets;
mod services;
mod session_factors;
mod sessions;
mod sso;
mod storage;
mod streams;
mod suites;
mod watches;
mod workers;

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use sallyport_access::HostId;
use sallyport_ca::{Trust, TrustBundle};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

pub use self::config::AuthConfig;
pub use crate::dialling::PeerInfo;

pub(crate) use self::audit::disk_reserve::Trouble;

use self::api::serve;
use self::issuance::authorities::Authorities;
use self::policy::Policy;
use self::services::Services;
use crate::ServerError;
use crate::dialling::BoxIo;

/// The authority. Clones share it.
#[derive(Debug, Clone)]
pub struct Authority {
    services: Arc<Services>,
}

impl Authority {
    /// Opens the authority of a data directory, and makes it on the first start.
    ///
    /// # Errors
    /// [`ServerError`]: the directory is not writable, half-made, damaged, in use, or sealed with another key.
    pub fn open(config: AuthConfig, now: OffsetDateTime) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(async move {
            let services = open::open(config, |backend| backend, now).await?;
            Ok(Self { services: Arc::new(services) })
        })
    }

    /// Serves one connection until it ends: TLS, then the API.
    pub fn serve<T>(&self, io: T, peer: PeerInfo) -> BoxFuture<'_, ()>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_boxed(Box::new(io), peer)
    }

    pub(crate) fn serve_boxed(&self, io: BoxIo, peer: PeerInfo) -> BoxFuture<'_, ()> {
        Box::pin(serve::tls(&self.services.api, io, peer))
    }

    /// Serves administration on a socket that only this user can open, until the authority stops.
    ///
    /// # Errors
    /// [`ServerError`] when the socket cannot be made.
    pub fn serve_admin_socket<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<(), ServerError>> {
        Box::pin(serve::admin_socket(&self.services.api, path))
    }

    /// Certificates for a proxy or node in the authority's own process. The id stays the same for a role and name.
    ///
    /// # Errors
    /// [`ServerError`] when the request is malformed or the state cannot be written.
    pub async fn issue_host(&self, request: v1::JoinRequest) -> Result<v1::HostCertificates, ServerError> {
        let issued = self.services.membership.issue_in_process(request).await;
        issued.map_err(|status| ServerError::Authority {
            action: "certify a host of its own process".to_owned(),
            source: status.message().to_owned().into(),
        })
    }

    /// What hosts and clients must trust.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.services.issuance.authorities().trust().clone()
    }

    /// Where clients of this process are remembered.
    pub(crate) fn sightings(&self) -> crate::member::client_sightings::Sightings {
        self.services.inventory.sightings()
    }

    /// The locks as they change, for a host of this process.
    pub(crate) fn follow_locks(&self) -> FollowLocks {
        FollowLocks { policy: Arc::clone(&self.services.policy), changed: self.services.policy.changes() }
    }

    /// The trust as it changes, for a host of this process.
    pub(crate) fn follow_trust(&self) -> FollowTrust {
        FollowTrust(self.services.issuance.follow())
    }

    /// What a host of this process confirms: it has no connection to do it by.
    pub(crate) async fn confirm_trust(&self, id: HostId, bundle: &TrustBundle, signed_by: Option<String>) {
        let now = OffsetDateTime::now_utc();
        let said = (signed_by.unwrap_or_default(), false);
        let confirmed = self.services.confirmations.confirm(id, bundle.rotations.clone(), said, now).await;
        if let Err(status) = confirmed {
            tracing::warn!(message = status.message(), "a host of this process could not confirm its trust");
        }
    }

    /// Writes an event of this process to the log, without waiting. When the log cannot be written it is tried again
    /// until the authority stops; such events are few.
    pub fn emit(&self, event: sallyport_audit::Event) {
        self.services.journal.emit(event);
    }

    /// What is the matter with the authority's disk, as it changes.
    pub(crate) fn follow_disk(&self) -> watch::Receiver<Trouble> {
        self.services.reserve.subscribe()
    }

    /// Ends connections, signs the audit log's end and lets go of the state.
    pub async fn shutdown(&self) {
        let Services { stop, tasks, journal, checkpoints, store, .. } = self.services.as_ref();
        stop.cancel();
        tasks.close();
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), tasks.wait()).await;
        let stopped =
            sallyport_audit::Event::new(sallyport_audit::Code::AuthStopped, OffsetDateTime::now_utc())
                .user("auth");
        if let Err(error) = journal.close(stopped).await {
            tracing::error!(%error, "the audit log could not be closed");
        }
        checkpoints.keep_last_head().await;
        store.backend().close().await;
    }
}

/// The trust as it changes.
#[derive(Debug)]
pub(crate) struct FollowTrust(watch::Receiver<Arc<Authorities>>);

impl FollowTrust {
    /// The trust now.
    pub(crate) fn current(&mut self) -> TrustBundle {
        self.0.borrow_and_update().trust().to_bundle()
    }

    /// Waits for another one; for ever when the authority has gone.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// The locks as they change.
#[derive(Debug)]
pub(crate) struct FollowLocks {
    policy: Arc<Policy>,
    changed: watch::Receiver<u64>,
}

impl FollowLocks {
    /// The locks now.
    pub(crate) fn current(&mut self) -> Arc<[sallyport_access::Lock]> {
        self.changed.mark_unchanged();
        Arc::clone(&self.policy.cache().locks)
    }

    /// Waits until they may be others; for ever when the authority has gone.
    pub(crate) async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
