//! Streams in which the proxy proves itself once more, with a key of its own for each: see
//! [`Danger`](crate::config::danger::Danger).

use std::io;
use std::sync::Arc;

use sallyport_access::{HostRole, Principal};
use sallyport_ca::CaError;
use sallyport_ca::tls::{ClientAuth, without_resumption};
use sallyport_wire::tunnel;
use time::OffsetDateTime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::ServerError;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::Credentials;

/// Why the peer of a stream is not taken for a proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAProxy {
    /// This host has no certificate to show.
    #[error(transparent)]
    Own(#[from] ServerError),
    /// The peer's is not of this cluster.
    #[error(transparent)]
    Certificate(#[from] CaError),
    #[error(transparent)]
    Tls(#[from] io::Error),
    #[error("the proxy showed no certificate")]
    NoCertificate,
    #[error("{0} is no proxy")]
    Another(String),
}

/// Ends the TLS in a stream.
pub(super) async fn accept(
    credentials: &Credentials,
    view: &ClusterCache,
    stream: tunnel::Stream,
) -> Result<TlsStream<tunnel::Stream>, NotAProxy> {
    let trust = view.trust();
    let config = credentials.server(&trust, &[], ClientAuth::Required)?;
    let mut config = (*config).clone();
    without_resumption(&mut config);
    let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let identity = shown.ok_or(NotAProxy::NoCertificate)?;
    let identity = trust.identify_tls(identity, OffsetDateTime::now_utc())?;
    match identity.principal {
        Principal::Host { role: HostRole::Proxy, .. } => Ok(stream),
        _ => Err(NotAProxy::Another(identity.display_name())),
    }
}
