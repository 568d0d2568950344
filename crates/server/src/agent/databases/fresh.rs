//! Streams in which the proxy proves itself once more, with a key of its own for each: see
//! [`Danger`](crate::config::danger::Danger).

use std::sync::Arc;

use sallyport_access::{HostRole, Principal};
use sallyport_ca::tls::{ClientAuth, without_resumption};
use sallyport_wire::tunnel;
use time::OffsetDateTime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::cluster_cache::ClusterCache;
use crate::host::Credentials;

/// Ends the TLS in a stream.
pub(super) async fn accept(
    credentials: &Credentials,
    view: &ClusterCache,
    stream: tunnel::Stream,
) -> Result<TlsStream<tunnel::Stream>, String> {
    let trust = view.trust();
    let config = credentials.server(&trust, &[], ClientAuth::Required).map_err(|error| error.to_string())?;
    let mut config = (*config).clone();
    without_resumption(&mut config);
    let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
    let stream = accepted.map_err(|error| error.to_string())?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let identity = shown.ok_or("the proxy showed no certificate")?;
    let identity =
        trust.identify_tls(identity, OffsetDateTime::now_utc()).map_err(|error| error.to_string())?;
    match identity.principal {
        Principal::Host { role: HostRole::Proxy, .. } => Ok(stream),
        _ => Err(format!("{} is no proxy", identity.display_name())),
    }
}
