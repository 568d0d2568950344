//! The proxy's plain SSH face, for `ssh -J` and everything built on it.
//!
//! A client proves who it is with a user certificate of the cluster; the user name it gives on this hop means nothing,
//! because the certificate says who it is (stock `ssh -J` sends whatever name the person has on their own machine), but for one: as
//! [`ASKS`] a client is asked for the second factor that was wanted when it was refused before.
//! After that it may open `direct-tcpip` channels to nodes, and nothing else: the bytes inside are the SSH connection
//! between the client and the node, which this hop cannot read. The port in the request is ignored, since a node has
//! one SSH service.
//!
//! Who may reach which node is not decided here but behind [`Dial`].
//!
//! Keys are exchanged and users let in by [`crate::transport`], and the SSH library speaks inside. A client whose certificate is not
//! believed is refused without words ("Permission denied (publickey)").

mod bounds;
mod connection;
mod dial;
mod entering;
mod factor;
mod known;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use russh::SshId;
use russh::keys::PrivateKey;
use sallyport_ca::CaError;
use sallyport_ca::keys::SshKeyPair;
use ssh_key::Certificate;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, info_span};

pub use dial::{ASKS, Admits, Answered, Dial, JumpConfig, JumpError, Question, Refusal};

use crate::capabilities::IDENTIFICATION;
use crate::inbound;
use crate::rsa_keys::{self, HostSigner};
use crate::transport::Host;
pub use crate::transport::accept::NotIn;
use crate::transport::accept::Terms;
use crate::{BoxedStream, Stream, algorithms, node};

/// Keys a client may try before it is sent away. An SSH agent offers all it has.
const MAX_AUTH_ATTEMPTS: usize = 20;

/// The plain SSH face.
pub struct Jump {
    config: JumpConfig,
    ssh: RwLock<Face>,
    dial: Arc<dyn Dial>,
    connections: TaskTracker,
    draining: CancellationToken,
    cut: CancellationToken,
}

/// What connections are begun with. Each keeps it to its end.
#[derive(Clone)]
struct Face {
    /// Inside [`crate::transport`].
    inside: Arc<russh::server::Config>,
    host: Arc<Host>,
    /// Keeps an RSA key signing.
    _signer: Option<Arc<HostSigner>>,
}

impl fmt::Debug for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jump")
            .field("config", &self.config)
            .field("connections", &self.connections.len())
            .finish()
    }
}

impl Jump {
    /// Sets up this face with the proxy's host key (OpenSSH private key text) and its certificate (one line).
    ///
    /// # Errors
    /// [`JumpError::HostKey`] when one of them cannot be read, or they do not belong together.
    pub fn new(
        config: JumpConfig,
        host_key: &str,
        host_certificate: &str,
        dial: Arc<dyn Dial>,
    ) -> Result<Self, JumpError> {
        let ssh = RwLock::new(Face::new(&config, host_key, host_certificate)?);
        Ok(Self {
            config,
            ssh,
            dial,
            connections: TaskTracker::new(),
            draining: CancellationToken::new(),
            cut: CancellationToken::new(),
        })
    }

    /// Uses another host key and certificate for connections from now on.
    ///
    /// # Errors
    /// As [`Jump::new`]; the old ones stay in use then.
    pub fn replace_host_key(&self, host_key: &str, host_certificate: &str) -> Result<(), JumpError> {
        let ssh = Face::new(&self.config, host_key, host_certificate)?;
        *self.ssh.write() = ssh;
        Ok(())
    }

    /// Serves one connection to its end. Dropping the future cuts the connection.
    ///
    /// # Errors
    /// Why it ended, when it was not the client's own doing.
    pub fn serve<S: Stream + 'static>(
        &self,
        stream: S,
        client: SocketAddr,
        admits: Admits,
    ) -> BoxFuture<'_, Result<(), JumpError>> {
        self.serve_boxed(Box::new(stream), client, admits)
    }

    fn serve_boxed(
        &self,
        stream: BoxedStream,
        client: SocketAddr,
        admits: Admits,
    ) -> BoxFuture<'_, Result<(), JumpError>> {
        Box::pin(self.serve_to_the_end(stream, client, admits))
    }

    async fn serve_to_the_end(
        &self,
        stream: BoxedStream,
        client: SocketAddr,
        admits: Admits,
    ) -> Result<(), JumpError> {
        if self.draining.is_cancelled() {
            return Err(JumpError::Draining);
        }
        let face = self.ssh.read().clone();
        // Asked for every connection, so that a change of suite is felt at once.
        let demand = self.dial.trust().suite().key_exchange();
        let span = info_span!("ssh_jump", peer = %client, user = tracing::field::Empty);
        let terms = Terms {
            host: face.host.clone(),
            demand,
            limits: algorithms::SERVER_LIMITS,
            most_failures: MAX_AUTH_ATTEMPTS,
        };
        let settings = connection::Settings {
            config: self.config.clone(),
            ssh: face.inside.clone(),
            terms,
            dial: Arc::clone(&self.dial),
            admits,
            client,
            draining: self.draining.clone(),
            cut: self.cut.child_token(),
        };
        let served = connection::serve(stream, settings).instrument(span);
        let ended = self.connections.track_future(served).await;
        debug!(peer = %client, outcome = ?ended.as_ref().err(), "plain SSH connection ended");
        ended
    }

    /// Connections being served.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Takes no new connection and no new channel, sends unused connections away, and returns when the last one has
    /// ended. The caller sets a time limit and then calls [`Jump::cut`].
    pub async fn drain(&self) {
        self.draining.cancel();
        self.connections.close();
        self.connections.wait().await;
    }

    /// Ends every connection at once.
    pub fn cut(&self) {
        self.draining.cancel();
        self.cut.cancel();
    }
}

impl Face {
    fn new(config: &JumpConfig, host_key: &str, host_certificate: &str) -> Result<Self, JumpError> {
        let bad = |what, reason: String| JumpError::HostKey { what, reason };
        let unusable = |error: CaError| bad("key", error.to_string());
        let pair = SshKeyPair::from_openssh(host_key).map_err(unusable)?;
        let (key, signer) = rsa_keys::host_key(&pair).map_err(unusable)?;
        let certificate = Certificate::from_openssh(host_certificate.trim())
            .map_err(|error| bad("certificate", error.to_string()))?;
        if certificate.public_key() != key.public_key().key_data() {
            return Err(bad("certificate", "it is for another key".to_owned()));
        }
        let host = Arc::new(Host::new(pair.signer(), Some(&certificate)).map_err(unusable)?);
        Ok(Self { inside: Arc::new(node::inside(ssh_config(config, key))), host, _signer: signer })
    }
}

fn ssh_config(config: &JumpConfig, key: PrivateKey) -> russh::server::Config {
    russh::server::Config {
        server_id: SshId::Standard(IDENTIFICATION.into()),
        keys: vec![key],
        window_size: inbound::FIRST_WINDOW_BYTES,
        channel_buffer_size: algorithms::CHANNEL_PACKETS,
        inactivity_timeout: None,
        keepalive_interval: Some(config.keepalive),
        keepalive_max: 3,
        nodelay: true,
        ..russh::server::Config::default()
    }
}
