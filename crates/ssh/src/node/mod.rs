//! The server of a node: SSH, and the native protocol ([`crate::native`]) in front of the same sessions.
//!
//! A [`NodeServer`] serves SSH on any byte stream: a TCP connection, or a stream of the tunnel to the proxy. It takes
//! user certificates of the cluster and nothing else, decides by the cluster's policy and locks at every session (not
//! only when the connection begins), and runs sessions through [`crate::session`].
//!
//! Who has an authentic certificate but may not enter is let through authentication, and told why on the standard error
//! of whatever they start, with exit status 255: SSH has no other place for a reason that every client shows. Nothing
//! runs for them. A certificate that is not authentic is refused outright.
//!
//! In FIPS mode keys are exchanged and users let in by [`crate::transport`], and the SSH library speaks inside. In others the library
//! does all of it: it checks a certificate's period by itself and rejects one that is over before anybody can say why; the audit log
//! has `session.refused` for such a connection when it ends. It has no sntrup761, so clients older than OpenSSH 9.9 get
//! no post-quantum key exchange.

mod account_directory;
mod agent;
mod apart;
mod backend;
mod channel;
mod config;
mod connection;
mod copying;
mod door;
mod forward;
mod joining;
mod live;
mod local;
mod opening;
mod record;
mod relay;
mod remote;
mod signals;
mod x11;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use russh::server::Config;
use sallyport_access::{HostId, Identity, Lock, Node, Policies};
use sallyport_audit::Sink;
use sallyport_audit::recording::Recorders;
use sallyport_ca::keys::SshKeyPair;
use sallyport_ca::{CaError, Trust};
use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, Signer};
use ssh_key::{Certificate, PrivateKey};
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};

pub use apart::Apart;
pub use config::NodeConfig;
pub(crate) use config::inside;
pub use joining::{JOIN_LOGIN, Participant};
pub use live::{Change, EndSession, LiveEntry, LiveSession, LiveSessions};
pub use relay::Relay;
pub use remote::{AgentLogin, LoginBy, ServerProof, Upstream};

use crate::capabilities::Sighting;
use crate::rsa_keys::{self, HostSigner};
use crate::session::{Ends, Ready};
use crate::transport::Host;
use crate::transport::accept::Terms;
use crate::{BoxedStream, Stream, algorithms};
use backend::BackEnd;
use connection::{Manner, Shared};
use local::Local;
use opening::Phase;
use remote::Remote;

/// What the node knows of its cluster, and whom it tells of its clients. It answers from memory: the decision waits for
/// it.
pub trait Directory: Send + Sync + fmt::Debug {
    /// The authorities.
    fn trust(&self) -> Arc<Trust>;
    /// The roles.
    fn policies(&self) -> Arc<Policies>;
    /// The locks.
    fn locks(&self) -> Arc<[Lock]>;
    /// This node.
    fn node(&self) -> Arc<Node>;
    /// The host that serves it, by whose id the sessions are told from those of others. Default: the node itself; where a
    /// proxy stands before a server, the proxy.
    fn host(&self) -> HostId {
        self.node().id
    }
    /// A counter that changes whenever one of the others does. Live sessions are checked against the locks then.
    fn changes(&self) -> watch::Receiver<u64>;
    /// A client has proven who it is, or is gone without. Must not wait: the connection does. Default: not remembered.
    fn saw(&self, _: Sighting) {}
}

/// Longest time that a server which stops waits for what it has cut: longer than the ends of sessions take, here and at
/// registered servers.
pub const CUT_PATIENCE: Duration = Duration::from_secs(7);

/// Where a host key is.
#[derive(Debug, Clone)]
pub enum HostKey<'a> {
    /// In this process's memory.
    Memory(&'a SshKeyPair),
    /// In a custody that signs and does not give it out. The SSH library has no hook for these:
    /// [`HostIdentity::new`] refuses them until it has.
    Held(Arc<dyn Signer>),
}

impl<'a> From<&'a SshKeyPair> for HostKey<'a> {
    fn from(key: &'a SshKeyPair) -> Self {
        Self::Memory(key)
    }
}

/// What a node proves itself with: its host key and the cluster's certificate for it.
#[derive(Clone)]
pub struct HostIdentity {
    key: PrivateKey,
    /// None for a key that is believed by itself.
    certificate: Option<Certificate>,
    /// Keeps an RSA key signing.
    signer: Option<Arc<HostSigner>>,
    /// The same for [`crate::transport`].
    host: Arc<Host>,
}

impl HostIdentity {
    /// From a host key and the certificate line that the authority issued for it.
    ///
    /// # Errors
    /// [`NodeError::HostCertificate`] when the certificate is malformed or for another key,
    /// [`NodeError::HostKeyHeld`] when the key is not in memory.
    pub fn new<'a>(key: impl Into<HostKey<'a>>, certificate: &str) -> Result<Self, NodeError> {
        let key = match key.into() {
            HostKey::Memory(key) => key,
            HostKey::Held(signer) => {
                return Err(NodeError::HostKeyHeld { algorithm: signer.algorithm() });
            }
        };
        let certificate = Certificate::from_openssh(certificate)
            .map_err(|error| NodeError::HostCertificate { reason: error.to_string() })?;
        if certificate.public_key() != key.private_key().public_key().key_data() {
            return Err(NodeError::HostCertificate { reason: "it is for another key".to_owned() });
        }
        let unusable = |error: CaError| NodeError::HostCertificate { reason: error.to_string() };
        let host = Arc::new(Host::new(key.signer(), Some(&certificate)).map_err(unusable)?);
        let (key, signer) = rsa_keys::host_key(key).map_err(unusable)?;
        Ok(Self { key, certificate: Some(certificate), signer, host })
    }

    /// A key that is believed by itself: its clients know it beforehand.
    ///
    /// # Errors
    /// [`NodeError::HostKey`] when it cannot sign here.
    pub fn plain(key: &SshKeyPair) -> Result<Self, NodeError> {
        let unusable = |error: CaError| NodeError::HostKey { reason: error.to_string() };
        let host = Arc::new(Host::new(key.signer(), None).map_err(unusable)?);
        let (key, signer) = rsa_keys::host_key(key).map_err(unusable)?;
        Ok(Self { key, certificate: None, signer, host })
    }

    /// When the certificate ends.
    #[must_use]
    pub fn valid_before(&self) -> Option<OffsetDateTime> {
        i64::try_from(self.certificate.as_ref()?.valid_before())
            .ok()
            .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostIdentity")
            .field("certificate", &self.certificate.as_ref().map(Certificate::key_id))
            .finish_non_exhaustive()
    }
}

/// Why a node cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The host certificate is not usable.
    #[error("the host certificate is not usable: {reason}; let the node join again")]
    HostCertificate {
        /// What is wrong with it.
        reason: String,
    },
    /// The host key is not usable.
    #[error("the host key is not usable: {reason}")]
    HostKey {
        /// What is wrong with it.
        reason: String,
    },
    /// The host key is in a custody that does not give it out.
    #[error(
        "the {algorithm} host key is not in memory, and russh signs with host keys from memory only; keep the host key in a file, and the user and CA keys in the token"
    )]
    HostKeyHeld {
        /// Its type.
        algorithm: KeyAlgorithm,
    },
    /// Ourselves: something that is built in does not work.
    #[error("what is built in does not work: {reason}")]
    Internal {
        /// What.
        reason: String,
    },
}

/// Where a connection comes from.
#[derive(Debug, Clone, Default)]
pub struct ConnectionInfo {
    /// The client, as the proxy or the listener saw it.
    pub client_addr: Option<SocketAddr>,
    /// The address is the word of a proxy in another process, and events say so. Default: it was seen here.
    pub told_by_proxy: bool,
    /// Around the connection's beginning, for traces: the phases up to the first byte of the first session become its
    /// parts, and with that byte it ends. Default: none.
    pub opening: Option<tracing::Span>,
}

/// Somebody who has proven who they are to whoever brings their connection.
#[derive(Debug, Clone)]
pub struct NativeLogin {
    /// Who. Its end, locks and policy are checked here, now and at every session; that it is authentic is not.
    pub identity: Identity,
    /// What names the proof in the audit log when they are refused: the fingerprint or number of their certificate.
    pub proof: String,
}

/// The SSH server. Cheap to clone; all clones are one server.
#[derive(Clone)]
pub struct NodeServer(Arc<Inner>);

struct Inner {
    config: NodeConfig,
    ready: Ready,
    ssh: RwLock<Face>,
    directory: Arc<dyn Directory>,
    sink: Arc<dyn Sink>,
    /// None where nothing runs that would be recorded.
    recorders: Option<Recorders>,
    connections: Mutex<HashMap<u64, Arc<Shared>>>,
    live: LiveSessions,
    next: AtomicU64,
    ended: Notify,
    /// Sessions, and what ends those that were cut: both may last longer than their connection.
    ends: Ends,
}

/// What connections are begun with. Each keeps it to its end.
#[derive(Clone)]
struct Face {
    any: Arc<Config>,
    /// Where the suite requires hybrid key exchange.
    hybrid: Arc<Config>,
    /// Inside [`crate::transport`].
    inside: Arc<Config>,
    host: Arc<Host>,
    _signer: Option<Arc<HostSigner>>,
}

impl Face {
    fn new(config: &NodeConfig, host: &HostIdentity) -> Self {
        let with = |demand| Arc::new(config.ssh(host, demand));
        Self {
            any: with(HybridKeyExchange::Preferred),
            hybrid: with(HybridKeyExchange::Required),
            inside: Arc::new(config::inside(config.ssh(host, HybridKeyExchange::Preferred))),
            host: host.host.clone(),
            _signer: host.signer.clone(),
        }
    }

    /// How a connection begins on which key exchanges are to be as `demand` has it.
    fn manner(&self, config: &NodeConfig, demand: HybridKeyExchange) -> Manner {
        if config.transport.is_layer() {
            let terms = Terms {
                host: self.host.clone(),
                demand,
                limits: algorithms::LAYER_SERVER_LIMITS,
                most_failures: config.max_auth_attempts,
            };
            return Manner { config: self.inside.clone(), demand, layer: Some(terms) };
        }
        let config = match demand {
            HybridKeyExchange::Preferred => self.any.clone(),
            HybridKeyExchange::Required => self.hybrid.clone(),
        };
        Manner { config, demand, layer: None }
    }
}

impl NodeServer {
    /// A server that proves itself by `host`, decides by `directory`, tells `sink` and records by `recorders`.
    #[must_use]
    pub fn new(
        config: NodeConfig,
        host: &HostIdentity,
        directory: Arc<dyn Directory>,
        sink: Arc<dyn Sink>,
        recorders: Recorders,
    ) -> Self {
        Self::among(config, host, directory, sink, recorders, LiveSessions::default())
    }

    /// As [`NodeServer::new`], its sessions listed with those of other servers.
    #[must_use]
    pub fn among(
        config: NodeConfig,
        host: &HostIdentity,
        directory: Arc<dyn Directory>,
        sink: Arc<dyn Sink>,
        recorders: Recorders,
        live: LiveSessions,
    ) -> Self {
        Self::of(config, host, directory, sink, Some(recorders), live)
    }

    fn of(
        config: NodeConfig,
        host: &HostIdentity,
        directory: Arc<dyn Directory>,
        sink: Arc<dyn Sink>,
        recorders: Option<Recorders>,
        live: LiveSessions,
    ) -> Self {
        let ssh = RwLock::new(Face::new(&config, host));
        let ready = Ready::new(config.helper.clone());
        Self(Arc::new(Inner {
            config,
            ready,
            ssh,
            directory,
            sink,
            recorders,
            connections: Mutex::default(),
            live,
            next: AtomicU64::new(0),
            ended: Notify::new(),
            ends: Ends::default(),
        }))
    }

    /// Proves itself by another key or certificate from the next connection on.
    pub fn set_host(&self, host: &HostIdentity) {
        *self.0.ssh.write().unwrap_or_else(PoisonError::into_inner) = Face::new(&self.0.config, host);
    }

    /// Serves one connection to its end.
    pub fn serve(&self, stream: impl Stream + 'static, info: ConnectionInfo) -> BoxFuture<'_, ()> {
        self.serve_before(self.local(&info), Box::new(stream), info)
    }

    /// Serves one connection to its end by the native protocol, for somebody who has proven themselves to the caller. What
    /// comes is acted on at once: the caller sees to it that the stream cannot be played twice.
    pub fn serve_native(
        &self,
        stream: impl Stream + 'static,
        login: NativeLogin,
        info: ConnectionInfo,
    ) -> BoxFuture<'_, ()> {
        self.serve_native_boxed(Box::new(stream), login, info)
    }

    fn serve_native_boxed(
        &self,
        stream: BoxedStream,
        login: NativeLogin,
        info: ConnectionInfo,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let back_end = self.local(&info);
            let (shared, _listed) = self.enter(back_end, info, Phase::Hello);
            connection::native::serve(stream, shared, login).await;
        })
    }

    fn local(&self, info: &ConnectionInfo) -> Arc<dyn BackEnd> {
        signals::default_for_sessions();
        let config = &self.0.config;
        Arc::new(Local {
            ready: self.0.ready.clone(),
            gateway_ports: config.gateway_ports,
            login_records: config.login_records.clone(),
            kill_orphans: config.kill_orphans,
            pam_account: config.pam_account.clone(),
            shadow: config.shadow.clone(),
            apart: config.apart.clone(),
            pam_session: config.pam_session,
            out_of_reach: config.out_of_reach,
            ends: self.0.ends.clone(),
            from: info.client_addr.map(|address| address.ip()),
        })
    }

    /// Lists a connection for as long as the second lives.
    fn enter(&self, back_end: Arc<dyn BackEnd>, info: ConnectionInfo, first: Phase) -> (Arc<Shared>, Listed) {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let shared = Shared::new(self.0.clone(), info, back_end, first);
        self.connections().insert(number, shared.clone());
        (shared, Listed { server: self.0.clone(), number })
    }

    /// Serves one connection to its end, with a server elsewhere behind it.
    pub fn serve_for(
        &self,
        upstream: Arc<dyn Upstream>,
        stream: impl Stream + 'static,
        info: ConnectionInfo,
    ) -> BoxFuture<'_, ()> {
        let remote = Remote { upstream, ends: self.ends() };
        self.serve_before(Arc::new(remote), Box::new(stream), info)
    }

    fn serve_before(
        &self,
        back_end: Arc<dyn BackEnd>,
        stream: BoxedStream,
        info: ConnectionInfo,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (shared, _listed) = self.enter(back_end, info, Phase::Version);
            // Keeps an RSA key signing.
            let face = self.face();
            // Asked for every connection, so that a change of suite is felt at once.
            let demand = self.0.directory.trust().suite().key_exchange();
            connection::serve(stream, shared, face.manner(&self.0.config, demand)).await;
        })
    }

    /// Where tasks are counted for which [`NodeServer::drain`] waits.
    fn ends(&self) -> Ends {
        self.0.ends.clone()
    }

    fn face(&self) -> Face {
        self.0.ssh.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The sessions that run, to be listed and ended.
    #[must_use]
    pub fn live(&self) -> LiveSessions {
        self.0.live.clone()
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections_open(&self) -> usize {
        self.connections().len()
    }

    /// Sessions that run.
    #[must_use]
    pub fn sessions_running(&self) -> usize {
        self.connections().values().map(|shared| shared.sessions_running()).sum()
    }

    /// Waits up to `grace` for the connections to end, then cuts those that are left. Waits, at most [`CUT_PATIENCE`], for
    /// the records of sessions and until what they ran has ended where they were cut. The caller has stopped to bring new
    /// connections.
    pub async fn drain(&self, grace: Duration) {
        if tokio::time::timeout(grace, self.empty()).await.is_err() {
            for shared in self.connections().values() {
                shared.cut("this node is stopping");
            }
        }
        let over = async {
            self.empty().await;
            self.0.ends.over().await;
        };
        if tokio::time::timeout(CUT_PATIENCE, over).await.is_err() {
            tracing::warn!("what some sessions ran is not known to have ended");
        }
    }

    async fn empty(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.connections_open() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Shared>>> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NodeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeServer").field("connections", &self.connections_open()).finish_non_exhaustive()
    }
}

/// Takes a connection off the list when its service ends, however it ends.
struct Listed {
    server: Arc<Inner>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.server.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        self.server.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sallyport_sal::MemoryKey;

    use super::*;

    #[test]
    fn a_host_key_that_cannot_be_had_is_refused_in_words() {
        let held = HostKey::Held(Arc::new(MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap()));
        let error = HostIdentity::new(held, "").unwrap_err().to_string();
        assert!(error.contains("russh signs with host keys from memory only"), "{error}");
    }
}
