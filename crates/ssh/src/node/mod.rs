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
//! Keys are exchanged and users let in by [`crate::transport`], and the SSH library speaks inside. It has no sntrup761, so clients older
//! than OpenSSH 9.9 get no post-quantum key exchange.

mod account_directory;
mod agent;
mod apart;
mod backend;
mod channel;
mod client;
mod config;
mod connection;
mod copying;
mod directory;
mod endpoint;
mod error;
mod forward;
mod identity;
mod info;
mod joining;
mod local;
mod opening;
mod record;
mod relay;
mod relayed;
mod remote;
mod reserved;
mod running;
mod services;
mod signals;
mod wanted;
mod x11;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use russh::server::Config;
use sallyport_audit::Sink;
use sallyport_audit::recording::Recorders;
use sallyport_sal::HybridKeyExchange;
use sallyport_session::{LiveSessions, Patience, Place, Roster, Stop};

pub use apart::Apart;
pub use config::NodeConfig;
pub(crate) use config::inside;
pub use directory::Directory;
pub use error::UpstreamError;
pub use identity::{HostIdentity, HostKey, NodeError};
pub use info::{ConnectionInfo, NativeLogin};
pub use relay::Relay;
pub use remote::{AgentLogin, LoginBy, ServerProof, Upstream};
pub use reserved::JOIN_LOGIN;

use crate::rsa_keys::HostSigner;
use crate::session::{Ends, Ready};
use crate::transport::Host;
use crate::transport::accept::Terms;
use crate::{BoxedStream, Stream, algorithms};
use backend::BackEnd;
use connection::{Manner, Shared};
use local::Local;
use opening::Phase;
use remote::Remote;
use services::Services;

/// Longest time that a server which stops waits for the sessions that it cut: longer than the ends of sessions take,
/// here and at registered servers.
pub const CUT_PATIENCE: Duration = Duration::from_secs(7);

/// The SSH server. Cheap to clone; all clones are one server.
#[derive(Clone)]
pub struct NodeServer(Arc<Inner>);

struct Inner {
    services: Arc<Services>,
    ready: Ready,
    ssh: RwLock<Face>,
    connections: Roster<Arc<Shared>>,
}

/// What connections are begun with. Each keeps it to its end.
#[derive(Clone)]
struct Face {
    config: Arc<Config>,
    host: Arc<Host>,
    _signer: Option<Arc<HostSigner>>,
}

impl Face {
    fn new(config: &NodeConfig, host: &HostIdentity) -> Self {
        Self { config: Arc::new(config.ssh(host)), host: host.host.clone(), _signer: host.signer.clone() }
    }

    /// How a connection begins on which key exchanges are to be as `demand` has it.
    fn manner(&self, config: &NodeConfig, demand: HybridKeyExchange) -> Manner {
        let terms = Terms {
            host: self.host.clone(),
            demand,
            limits: algorithms::SERVER_LIMITS,
            most_failures: config.max_auth_attempts,
        };
        Manner { config: self.config.clone(), terms }
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
        let ends = Ends::default();
        let running = Roster::default();
        let services = Arc::new(Services { config, directory, sink, recorders, live, running, ends });
        Self(Arc::new(Inner { services, ready, ssh, connections: Roster::default() }))
    }

    /// Proves itself by another key or certificate from the next connection on.
    pub fn set_host(&self, host: &HostIdentity) {
        *self.0.ssh.write() = Face::new(&self.0.services.config, host);
    }

    /// Serves one connection to its end.
    pub fn serve(&self, stream: impl Stream + 'static, info: ConnectionInfo) -> BoxFuture<'_, ()> {
        self.serve_before(self.local(&info), Box::new(stream), info)
    }

    /// Serves one connection to its end by the native protocol, for a user whose identity the caller has proven. What
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
            let open = self.enter(back_end, info, Phase::Hello);
            connection::native::serve(stream, open.entry().clone(), login).await;
        })
    }

    fn local(&self, info: &ConnectionInfo) -> Arc<dyn BackEnd> {
        signals::default_for_sessions();
        let config = &self.0.services.config;
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
            ends: self.0.services.ends.clone(),
            from: info.client_addr.map(|address| address.ip()),
        })
    }

    /// Counts a connection for as long as the result lives.
    fn enter(&self, back_end: Arc<dyn BackEnd>, info: ConnectionInfo, first: Phase) -> Place<Arc<Shared>> {
        self.0.connections.enter(Shared::new(self.0.services.clone(), info, back_end, first))
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
            let open = self.enter(back_end, info, Phase::Version);
            // Keeps an RSA key signing.
            let face = self.face();
            // Asked for every connection, so that a change of suite is felt at once.
            let demand = self.0.services.directory.trust().suite().key_exchange();
            let manner = face.manner(&self.0.services.config, demand);
            connection::serve(stream, open.entry().clone(), manner).await;
        })
    }

    /// Where tasks are counted for which [`NodeServer::drain`] waits.
    fn ends(&self) -> Ends {
        self.0.services.ends.clone()
    }

    fn face(&self) -> Face {
        self.0.ssh.read().clone()
    }

    /// The sessions that run, to be listed and ended.
    #[must_use]
    pub fn live(&self) -> LiveSessions {
        self.0.services.live.clone()
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections_open(&self) -> usize {
        self.0.connections.len()
    }

    /// Sessions that run.
    #[must_use]
    pub fn sessions_running(&self) -> usize {
        self.0.connections.entries().iter().map(|shared| shared.sessions_running()).sum()
    }

    /// Waits at most so long for the connections to end; gives how many are left.
    pub async fn emptied(&self, patience: Duration) -> usize {
        self.0.connections.emptied(patience).await
    }

    /// Waits up to `grace` for the connections to end, then cuts those that are left. Waits, at most [`CUT_PATIENCE`], for
    /// the records of sessions and until what they ran has ended where they were cut. The caller has stopped to bring new
    /// connections.
    pub async fn drain(&self, grace: Duration) {
        let cut = |shared: &Arc<Shared>| shared.cut(Stop::Draining("this node is stopping"));
        let patience = Patience { grace, cut: CUT_PATIENCE };
        if !self.0.connections.drain(patience, cut, self.0.services.ends.over()).await {
            tracing::warn!("what some sessions ran is not known to have ended");
        }
    }
}

impl fmt::Debug for NodeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeServer").field("connections", &self.connections_open()).finish_non_exhaustive()
    }
}
