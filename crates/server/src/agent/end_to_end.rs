//! TLS from a user's program to this agent, inside the stream that the proxy carries: the user has proven the certificate
//! here, whatever the proxy says.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sallyport_access::Identity;
use sallyport_ca::Trust;
use sallyport_ca::tls::{ClientAuth, without_resumption};
use sallyport_wire::{preamble, tunnel};
use time::OffsetDateTime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::ServerError;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::{Credentials, HostIdentity};

/// From the first byte to a proven user who has said which session this is.
const PATIENCE: Duration = Duration::from_secs(15);

/// What this agent accepts with for one protocol, made again when its certificate or the trust has changed.
pub(super) struct Endpoint {
    alpn: &'static [u8],
    built: Mutex<Option<Built>>,
}

struct Built {
    identity: Arc<HostIdentity>,
    trust: Arc<Trust>,
    config: Arc<ServerConfig>,
}

/// A user who has come.
pub(super) struct Proven {
    pub(super) stream: TlsStream<tunnel::Stream>,
    pub(super) identity: Identity,
    /// The certificate, DER.
    pub(super) certificate: Bytes,
    /// What the program has said first: which session this is.
    pub(super) said: Bytes,
}

/// Why the agent did not let a client in, which TLS has told the program as well as it can.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unproven {
    /// This agent cannot make TLS.
    #[error("{}", ServerError::chain(.0))]
    Settings(#[from] ServerError),
    /// The handshake, or what was to come behind it, failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A client that asks for no protocol in particular would pass; it is none of ours.
    #[error("the program asked for another protocol")]
    Protocol,
    /// The certificate is none of this cluster that is valid now.
    #[error("{0}")]
    Certificate(String),
    /// It is a host's.
    #[error("{0} is a host, and hosts open no sessions")]
    Host(String),
    /// It took too long.
    #[error("the program did not prove itself within {} s", PATIENCE.as_secs())]
    Late,
}

impl Endpoint {
    /// Accepts programs that ask for this protocol, and no others.
    pub(super) fn new(alpn: &'static [u8]) -> Self {
        Self { alpn, built: Mutex::default() }
    }

    fn config(&self, host: &Credentials, trust: &Arc<Trust>) -> Result<Arc<ServerConfig>, ServerError> {
        let identity = host.identity();
        let mut built = self.built.lock();
        if let Some(built) = built.as_ref()
            && built.identity.is_alike(&identity)
            && Arc::ptr_eq(&built.trust, trust)
        {
            return Ok(Arc::clone(&built.config));
        }
        let mut config = ServerConfig::clone(&*host.server(trust, &[self.alpn], ClientAuth::Required)?);
        // Each session is proven by itself.
        without_resumption(&mut config);
        let config = Arc::new(config);
        *built = Some(Built { identity, trust: Arc::clone(trust), config: Arc::clone(&config) });
        Ok(config)
    }

    /// Ends the TLS in a stream.
    pub(super) async fn accept(
        &self,
        host: &Credentials,
        view: &ClusterCache,
        stream: tunnel::Stream,
    ) -> Result<Proven, Unproven> {
        let trust = view.trust();
        let config = self.config(host, &trust)?;
        let proving = async {
            let mut stream = TlsAcceptor::from(config).accept(stream).await?;
            let (_, tls) = stream.get_ref();
            if tls.alpn_protocol() != Some(self.alpn) {
                return Err(Unproven::Protocol);
            }
            let chain = tls.peer_certificates().unwrap_or_default();
            let now = OffsetDateTime::now_utc();
            let identity =
                trust.identify_peer(chain, now).map_err(|error| Unproven::Certificate(error.to_string()))?;
            if identity.user().is_none() {
                return Err(Unproven::Host(identity.display_name().to_string()));
            }
            let certificate = chain.first().map(|leaf| Bytes::copy_from_slice(leaf)).unwrap_or_default();
            let said = preamble::read(&mut stream).await?;
            Ok(Proven { stream, identity, certificate, said })
        };
        tokio::time::timeout(PATIENCE, proving).await.map_err(|_| Unproven::Late)?
    }
}
