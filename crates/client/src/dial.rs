//! TCP and TLS to the cluster's one address, and what their failures mean.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use sallyport_ca::{CaError, tls};
use sallyport_wire::READ_AHEAD_BYTES;
use time::OffsetDateTime;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span, info_span};

use super::times;
use super::trace::{Counted, PHASE, recorder};
use crate::error::{Doing, Error, Result, TlsFailure, chain};

/// Long enough for a distant cluster, short enough for a person.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// A TLS connection to the cluster.
/// TLS over a connection that was dialled.
pub type Secured = TlsStream<BufReader<Counted<TcpStream>>>;

pub(super) fn unreached(proxy: &str, why: &str) -> Error {
    Error::Unreached { proxy: proxy.to_owned(), why: why.to_owned() }
}

/// At most [`CONNECT_TIMEOUT`] of what opens a connection.
pub(super) async fn within<T>(proxy: &str, opening: impl Future<Output = std::io::Result<T>>) -> Result<T> {
    tokio::time::timeout(CONNECT_TIMEOUT, opening)
        .await
        .map_err(|_| unreached(proxy, &format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
        .map_err(|error| unreached(proxy, &error.to_string()))
}

/// Opens TCP to the cluster's address.
pub fn dial(proxy: &str) -> BoxFuture<'_, Result<TcpStream>> {
    Box::pin(async move { within(proxy, async { connect_tcp(&look_up(proxy).await?).await }).await })
}

pub(super) async fn look_up(proxy: &str) -> std::io::Result<Vec<SocketAddr>> {
    let finding = info_span!(target: PHASE, "name");
    Ok(tokio::net::lookup_host(proxy).instrument(finding).await?.collect())
}

pub(super) async fn connect_tcp(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let dialling = info_span!(target: PHASE, "dial", network.peer.address = Empty);
    async {
        let began = Instant::now();
        let stream = TcpStream::connect(addresses).await?;
        stream.set_nodelay(true)?;
        recorder::dialled(began.elapsed());
        if !Span::current().is_disabled() {
            Span::current().record("network.peer.address", display(stream.peer_addr()?));
        }
        Ok(stream)
    }
    .instrument(dialling)
    .await
}

pub(super) async fn tls_connect(proxy: &str, config: ClientConfig, name: &str) -> Result<Secured> {
    tls_over(dial(proxy).await?, proxy, config, name).await
}

pub(super) async fn tls_over(
    stream: TcpStream,
    proxy: &str,
    config: ClientConfig,
    name: &str,
) -> Result<Secured> {
    let name = ServerName::try_from(name.to_owned()).doing("name the server")?;
    let stream = BufReader::with_capacity(READ_AHEAD_BYTES, Counted::new(stream));
    let shaking = TlsConnector::from(Arc::new(config)).connect(name, stream);
    tokio::time::timeout(CONNECT_TIMEOUT, shaking.instrument(info_span!(target: PHASE, "tls")))
        .await
        .map_err(|_| Error::Unshaken { proxy: proxy.to_owned() })?
        .map_err(|error| explain_tls(proxy, &error))
}

/// The likely cause of a failed handshake, with the library's own words behind it.
fn explain_tls(proxy: &str, error: &std::io::Error) -> Error {
    let refusal = tls::refusal(error);
    // rustls would show the certificate's fault in its own terms.
    let said = refusal.map_or_else(|| chain(error, &error.to_string()), ToString::to_string);
    let lower = said.to_ascii_lowercase();
    // The far end's refusal names no time; our own names both.
    let clock = match refusal {
        Some(_) => said.clone(),
        None => format!("{said}; this machine's clock says {}", times::timestamp(OffsetDateTime::now_utc())),
    };
    let proxy = proxy.to_owned();
    let address = proxy.clone();
    let why = if let Some(CaError::OtherPin { .. }) = refusal {
        TlsFailure::OtherPin { proxy, said }
    } else if lower.contains("expired") {
        TlsFailure::Expired { clock }
    } else if lower.contains("notyetvalid") || lower.contains("not yet valid") {
        TlsFailure::NotYetValid { clock }
    } else if matches!(refusal, Some(CaError::UnknownIssuer { .. })) || lower.contains("unknownissuer") {
        TlsFailure::UnknownIssuer { proxy, said }
    } else if lower.contains("invalid message") || lower.contains("corrupt") {
        TlsFailure::NotSpoken { proxy, said }
    } else {
        TlsFailure::Other { proxy, said }
    };
    Error::Tls { proxy: address, why }
}
