//! TLS settings of a listener, made again only when the certificate or the trust behind them changed.

use std::sync::{Arc, Mutex, PoisonError};

use sallyport_access::Identity;
use sallyport_ca::Trust;
use sallyport_ca::tls::ClientAuth;
use sallyport_wire::alpn;
use time::OffsetDateTime;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::ServerError;
use crate::host::{Credentials, HostIdentity};

/// What a TLS connection is accepted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// gRPC and HTTPS; a certificate is welcome.
    Http,
    /// An agent's tunnel.
    Tunnel,
    /// A proxy's relay.
    Relay,
}

#[derive(Debug)]
struct Built {
    identity: Arc<HostIdentity>,
    trust: Arc<Trust>,
    http: Arc<ServerConfig>,
    tunnel: Arc<ServerConfig>,
    relay: Arc<ServerConfig>,
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct TlsSettings {
    credentials: Credentials,
    built: Mutex<Option<Built>>,
}

impl TlsSettings {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self { credentials, built: Mutex::new(None) }
    }

    /// The settings for one connection.
    pub(crate) fn current(
        &self,
        trust: &Arc<Trust>,
        purpose: Purpose,
    ) -> Result<Arc<ServerConfig>, ServerError> {
        let identity = self.credentials.identity();
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = match built.as_ref() {
            Some(old) => !Arc::ptr_eq(&old.identity, &identity) || !Arc::ptr_eq(&old.trust, trust),
            None => true,
        };
        if fresh {
            let make = |alpn: &[&[u8]], clients| self.credentials.server(trust, alpn, clients);
            *built = Some(Built {
                identity,
                trust: Arc::clone(trust),
                http: make(&[alpn::H2, alpn::HTTP11], ClientAuth::Optional)?,
                tunnel: make(&[alpn::TUNNEL], ClientAuth::Required)?,
                relay: make(&[alpn::RELAY], ClientAuth::Required)?,
            });
        }
        let Some(built) = built.as_ref() else { return Err(ServerError::Stopped("the TLS settings")) };
        Ok(Arc::clone(match purpose {
            Purpose::Http => &built.http,
            Purpose::Tunnel => &built.tunnel,
            Purpose::Relay => &built.relay,
        }))
    }
}

/// Whom the far end's certificate proves; `None` when it showed none.
pub(crate) fn proven<T>(
    stream: &TlsStream<T>,
    trust: &Trust,
    now: OffsetDateTime,
) -> Result<Option<Identity>, sallyport_ca::CaError> {
    let (_, connection) = stream.get_ref();
    match connection.peer_certificates() {
        Some(chain) => trust.identify_peer(chain, now).map(Some),
        None => Ok(None),
    }
}
