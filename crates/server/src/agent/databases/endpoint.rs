//! TLS from a user's program to this agent, inside the stream that the proxy carries: the user has proven the certificate
//! here, whatever the proxy says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sallyport_access::Identity;
use sallyport_ca::Trust;
use sallyport_ca::tls::{ClientAuth, without_resumption};
use sallyport_wire::{alpn, database, tunnel};
use time::OffsetDateTime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::ServerError;
use crate::cluster_cache::ClusterCache;
use crate::host::{Credentials, HostIdentity};

/// From the first byte to a proven user who has said which session this is.
const PATIENCE: Duration = Duration::from_secs(15);

/// What this agent accepts with, made again when its certificate or the trust has changed.
#[derive(Default)]
pub(super) struct Endpoint(Mutex<Option<Built>>);

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
    /// The user's word for this session, which the authority looks at.
    pub(super) word: Bytes,
}

impl Endpoint {
    fn config(&self, host: &Credentials, trust: &Arc<Trust>) -> Result<Arc<ServerConfig>, ServerError> {
        let identity = host.identity();
        let mut built = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = built.as_ref()
            && built.identity.is_alike(&identity)
            && Arc::ptr_eq(&built.trust, trust)
        {
            return Ok(Arc::clone(&built.config));
        }
        let mut config =
            ServerConfig::clone(&*host.server(trust, &[alpn::DATABASE], ClientAuth::Required)?);
        // Each session is proven by itself.
        without_resumption(&mut config);
        let config = Arc::new(config);
        *built = Some(Built { identity, trust: Arc::clone(trust), config: Arc::clone(&config) });
        Ok(config)
    }

    /// Ends the TLS in a stream. The error says why nobody was let in, which TLS has told the program as well as it can.
    pub(super) async fn accept(
        &self,
        host: &Credentials,
        view: &ClusterCache,
        stream: tunnel::Stream,
    ) -> Result<Proven, String> {
        let trust = view.trust();
        let config = self.config(host, &trust).map_err(|error| ServerError::chain(&error))?;
        let proving = async {
            let mut stream =
                TlsAcceptor::from(config).accept(stream).await.map_err(|error| error.to_string())?;
            let (_, tls) = stream.get_ref();
            // A client that asks for no protocol in particular would pass; it is none of ours.
            if tls.alpn_protocol() != Some(alpn::DATABASE) {
                return Err("the program asked for another protocol".to_owned());
            }
            let chain = tls.peer_certificates().unwrap_or_default();
            let now = OffsetDateTime::now_utc();
            let identity = trust.identify_peer(chain, now).map_err(|error| error.to_string())?;
            if identity.user().is_none() {
                return Err(format!("{} is a host, and hosts open no sessions", identity.display_name()));
            }
            let certificate = chain.first().map(|leaf| Bytes::copy_from_slice(leaf)).unwrap_or_default();
            let word = database::read_preamble(&mut stream).await.map_err(|error| error.to_string())?;
            Ok(Proven { stream, identity, certificate, word })
        };
        let late = || format!("the program did not prove itself within {} s", PATIENCE.as_secs());
        tokio::time::timeout(PATIENCE, proving).await.map_err(|_| late())?
    }
}
