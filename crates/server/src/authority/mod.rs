//! The authority: certificate authorities, users, policy, audit log and recordings. The only writer of state.
//!
//! ```text
//! DATA_DIR/auth/seal.key      mode 0600; everything secret in state.db is sealed under it
//!               state.db      users, roles, tokens, hosts, sealed keys
//!               audit/        the hash-chained log and its checkpoints
//!               recordings/   sealed recordings
//! DATA_DIR/admin.sock         mode 0600; whoever can open it is the local administrator
//! ```

mod admin;
mod answers;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]
mod attacks;
mod authorities;
mod budgets;
mod caller;
mod certificates;
mod cluster;
mod custodies;
mod databases;
mod entered;
pub(crate) mod fips;
mod fleet;
mod guesses;
mod heads;
mod heard;
mod holding;
mod hosts;
mod issued;
mod joining;
mod live;
mod login;
mod login_words;
mod names;
mod open;
mod openssh;
mod passwords;
mod people;
mod recording_keys;
mod refusals;
mod resources;
mod room;
mod rotation;
mod seen;
mod selection;
mod serve;
mod sessions;
mod state;
mod streams;
mod suites;
mod tokens;
mod told;
mod view;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::tasks::Tasks;
use futures::future::BoxFuture;
use sallyport_access::{ClusterName, HostId, HostRole};
use sallyport_audit::log::AuditLog;
use sallyport_audit::recording::RecordingStore;
use sallyport_ca::{Lifetimes, PublicKeys, RotationStatus, Trust, TrustBundle};
use sallyport_sal::Suite;
use sallyport_sal::custody::SealingKey;
use sallyport_sal::hpke::RecipientPublic;
use sallyport_store::Store;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

pub use caller::PeerInfo;
pub(crate) use room::Trouble;

use crate::ServerError;
use crate::config::{AuditSection, CaKeysSection, SecondFactor};
use crate::dialling::BoxIo;

/// What an authority needs to know.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// Name of the installation.
    pub cluster: ClusterName,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Whether every user must have a second factor.
    pub second_factor: SecondFactor,
    /// `host:port` for invite links; may be empty.
    pub public_addr: String,
    /// The suite that a new cluster is made with; unset: `balanced-v1`, `hsm-v1` where CA keys are made in a token,
    /// `fips-v1` in FIPS mode. A cluster that is there keeps its own.
    pub suite: Option<Suite>,
    /// Where CA keys are made.
    pub ca_keys: CaKeysSection,
    /// How long what is issued may live.
    pub lifetimes: Lifetimes,
    /// Bounds of the audit log, and where its checkpoints go.
    pub audit: AuditSection,
    /// How long an answer may wait for a caller who takes nothing of it, before the connection is closed.
    pub answer_patience: std::time::Duration,
    /// Only hosts and clients are taken that say that they take all cryptography from a FIPS module.
    pub require_fips: bool,
}

/// How soon an event that could not be written is tried again.
const EMIT_AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// The authority. Clones share it.
#[derive(Debug, Clone)]
pub struct Authority {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: AuthConfig,
    store: Store,
    seal: Arc<SealingKey>,
    custodies: Arc<custodies::Custodies>,
    authorities: watch::Sender<Arc<authorities::Authorities>>,
    /// Held while records of authorities change.
    changing_authorities: tokio::sync::Mutex<()>,
    recording_key: RecipientPublic,
    log: AuditLog,
    /// Where its checkpoints are taken besides the state.
    elsewhere: Vec<Arc<heads::Place>>,
    index: issued::Index,
    recordings: Arc<RecordingStore>,
    room: room::Room,
    view: RwLock<Arc<view::View>>,
    /// Held while the view is read anew.
    refreshing: tokio::sync::Mutex<()>,
    presence: view::Presence,
    names: names::Names,
    heard: heard::Heard,
    bindings: told::Bindings,
    databases: databases::Databases,
    login_words: login_words::LoginWords,
    live: live::Live,
    clients: seen::Clients,
    /// Of connections to the authority itself.
    sightings: crate::seen::Seen,
    people: people::People,
    passwords: passwords::Pool,
    guesses: guesses::Guesses,
    refusals: refusals::Refusals,
    budgets: budgets::Budgets,
    /// Threads for reading recordings, the log and documents.
    reading: crate::workers::Workers,
    places: streams::Places,
    /// Answers that callers have not taken yet.
    unread: answers::Waiting,
    /// Counts changes of what callers may do.
    changed: watch::Sender<u64>,
    confirmations: rotation::Confirmations,
    tls: RwLock<Arc<ServerConfig>>,
    auth_id: sallyport_access::HostId,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Authority {
    /// Opens the authority of a data directory, and makes it on the first start.
    ///
    /// # Errors
    /// [`ServerError`]: the directory is not writable, half-made, damaged, in use, or sealed with another key.
    pub fn open(config: AuthConfig, now: OffsetDateTime) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(open::open(config, now))
    }

    /// Serves one connection until it ends: TLS, then the API.
    pub fn serve<T>(&self, io: T, peer: PeerInfo) -> BoxFuture<'_, ()>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_boxed(Box::new(io), peer)
    }

    pub(crate) fn serve_boxed(&self, io: BoxIo, peer: PeerInfo) -> BoxFuture<'_, ()> {
        Box::pin(serve::tls(&self.inner, io, peer))
    }

    /// Serves administration on a socket that only this user can open, until the authority stops.
    ///
    /// # Errors
    /// [`ServerError`] when the socket cannot be made.
    pub fn serve_admin_socket<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<(), ServerError>> {
        Box::pin(serve::admin_socket(&self.inner, path))
    }

    /// Certificates for a proxy or node in the authority's own process. The id stays the same for a role and name.
    ///
    /// # Errors
    /// [`ServerError`] when the request is malformed or the state cannot be written.
    pub async fn issue_host(&self, request: v1::JoinRequest) -> Result<v1::HostCertificates, ServerError> {
        let issued = self.inner.issue_in_process(request).await;
        issued.map_err(|status| ServerError::Authority {
            action: "certify a host of its own process".to_owned(),
            source: status.message().to_owned().into(),
        })
    }

    /// What hosts and clients must trust.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.inner.authorities().trust().clone()
    }

    /// Where clients of this process are remembered.
    pub(crate) fn sightings(&self) -> crate::seen::Seen {
        self.inner.sightings.clone()
    }

    /// The locks as they change, for a host of this process.
    pub(crate) fn follow_locks(&self) -> FollowLocks {
        FollowLocks { inner: Arc::clone(&self.inner), changed: self.inner.changed.subscribe() }
    }

    /// The trust as it changes, for a host of this process.
    pub(crate) fn follow_trust(&self) -> FollowTrust {
        FollowTrust(self.inner.follow_authorities())
    }

    /// What a host of this process confirms, who has no connection to do it by.
    pub(crate) async fn confirm_trust(&self, id: HostId, bundle: &TrustBundle, signed_by: Option<String>) {
        let now = OffsetDateTime::now_utc();
        let confirmed = self
            .inner
            .confirm(id, bundle.rotations.clone(), (signed_by.unwrap_or_default(), false), now)
            .await;
        if let Err(status) = confirmed {
            tracing::warn!(message = status.message(), "a host of this process could not confirm its trust");
        }
    }

    /// Writes an event of this process to the log, without waiting. When the log cannot be written it is tried again
    /// until the authority stops; such events are few.
    pub fn emit(&self, event: sallyport_audit::Event) {
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.spawn(async move {
            while let Err(error) = inner.log.append(vec![event.clone()]).await {
                inner.room.unwritten(&error);
                tokio::select! {
                    () = tokio::time::sleep(EMIT_AGAIN) => {}
                    () = inner.stop.cancelled() => {
                        tracing::error!(%error, code = %event.code, message = event.message, "an audit event is lost");
                        return;
                    }
                }
            }
        });
    }

    /// What is the matter with the authority's disk, as it changes.
    pub(crate) fn follow_disk(&self) -> watch::Receiver<Trouble> {
        self.inner.room.subscribe()
    }

    /// Ends connections, signs the audit log's end and lets go of the state.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), self.inner.tasks.wait()).await;
        let stopped =
            sallyport_audit::Event::new(sallyport_audit::Code::AuthStopped, OffsetDateTime::now_utc())
                .user("auth");
        let mut last = self.inner.refusals.due(OffsetDateTime::now_utc(), true);
        last.push(stopped);
        let closed = async {
            self.inner.log.append(last).await?;
            self.inner.log.close().await
        };
        if let Err(error) = closed.await {
            tracing::error!(%error, "the audit log could not be closed");
        }
        self.inner.keep_last_head().await;
        self.inner.store.backend().close().await;
    }
}

/// The trust as it changes.
#[derive(Debug)]
pub(crate) struct FollowTrust(watch::Receiver<Arc<authorities::Authorities>>);

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
    inner: Arc<Inner>,
    changed: watch::Receiver<u64>,
}

impl FollowLocks {
    /// The locks now.
    pub(crate) fn current(&mut self) -> Arc<[sallyport_access::Lock]> {
        self.changed.mark_unchanged();
        Arc::clone(&self.inner.view().locks)
    }

    /// Waits until they may be others; for ever when the authority has gone.
    pub(crate) async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Inner {
    fn view(&self) -> Arc<view::View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn trust_bundle(&self) -> v1::TrustBundle {
        wire_bundle(self.authorities().trust())
    }
}

/// A trust in the words of the API.
fn wire_bundle(trust: &Trust) -> v1::TrustBundle {
    let bundle = trust.to_bundle();
    let keys = |keys: PublicKeys| v1::CaPublicKeys { ssh: keys.ssh, tls: keys.tls, jwt: keys.jwt };
    v1::TrustBundle {
        user_ssh_keys: bundle.user_ssh_keys,
        host_ssh_keys: bundle.host_ssh_keys,
        user_tls_certificates: bundle.user_tls_certificates,
        host_tls_certificates: bundle.host_tls_certificates,
        recording_key: bundle.recording_key.into(),
        others: bundle.others.into_iter().map(|(kind, of)| (kind.name().to_owned(), keys(of))).collect(),
        suite: bundle.suite,
        fips: fips::in_fips_mode(),
        rotations: bundle
            .rotations
            .into_iter()
            .map(|(kind, status)| (kind.name().to_owned(), rotation(status)))
            .collect(),
    }
}

/// The words of the API for where a rotation stands.
fn rotation(status: RotationStatus) -> v1::CaRotation {
    v1::CaRotation { generation: status.generation, phase: status.phase.name().to_owned() }
}

/// The words of the API for roles of hosts.
fn host_role(text: &str) -> Option<HostRole> {
    match text {
        "node" => Some(HostRole::Node),
        "proxy" => Some(HostRole::Proxy),
        "openssh" => Some(HostRole::OpenSsh),
        _ => None,
    }
}

fn host_role_name(role: HostRole) -> &'static str {
    role.name()
}

/// An address for events about nobody in particular.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
