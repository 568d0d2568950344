//! TCP and TLS to the cluster's one address, and what their failures mean.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::error::{CliError, CliResult, Context, Exit, chain};

/// Long enough for a distant cluster, short enough for a person.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// A TLS connection to the cluster.
pub(super) type Secured = TlsStream<BufReader<Counted<TcpStream>>>;

pub(super) fn unreached(proxy: &str, why: &str) -> CliError {
    CliError::new(format!("cannot connect to {proxy}: {why}"))
        .hint("check the address and that the cluster is up: sallyport status --proxy HOST:PORT")
        .exit(Exit::Connection)
}

/// At most [`CONNECT_TIMEOUT`] of what opens a connection.
pub(super) async fn within<T>(
    proxy: &str,
    opening: impl Future<Output = std::io::Result<T>>,
) -> CliResult<T> {
    tokio::time::timeout(CONNECT_TIMEOUT, opening)
        .await
        .map_err(|_| unreached(proxy, &format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
        .map_err(|error| unreached(proxy, &error.to_string()))
}

/// Opens TCP to the cluster's address.
pub(crate) async fn dial(proxy: &str) -> CliResult<TcpStream> {
    within(proxy, async { connect_tcp(&look_up(proxy).await?).await }).await
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

pub(super) async fn tls_connect(proxy: &str, config: ClientConfig, name: &str) -> CliResult<Secured> {
    tls_over(dial(proxy).await?, proxy, config, name).await
}

pub(super) async fn tls_over(
    stream: TcpStream,
    proxy: &str,
    config: ClientConfig,
    name: &str,
) -> CliResult<Secured> {
    let name = ServerName::try_from(name.to_owned()).doing("name the server")?;
    let stream = BufReader::with_capacity(READ_AHEAD_BYTES, Counted::new(stream));
    let shaking = TlsConnector::from(Arc::new(config)).connect(name, stream);
    tokio::time::timeout(CONNECT_TIMEOUT, shaking.instrument(info_span!(target: PHASE, "tls")))
        .await
        .map_err(|_| {
            CliError::new(format!("{proxy} accepted the connection but did not finish the TLS handshake"))
                .exit(Exit::Connection)
        })?
        .map_err(|error| explain_tls(proxy, &error))
}

/// TLS failures in words: the likely cause first, the library's own words behind it.
fn explain_tls(proxy: &str, error: &std::io::Error) -> CliError {
    let refusal = tls::refusal(error);
    // rustls would show the certificate's fault in its own terms.
    let said = refusal.map_or_else(|| chain(error, &error.to_string()), ToString::to_string);
    let lower = said.to_ascii_lowercase();
    // The far end's refusal names no time; our own names both.
    let clock = match refusal {
        Some(_) => said.clone(),
        None => format!("{said}; this machine's clock says {}", times::timestamp(OffsetDateTime::now_utc())),
    };
    if let Some(CaError::OtherPin { .. }) = refusal {
        CliError::new(format!("{proxy} is not the cluster of this pin: {said}"))
            .hint("get the pin from an administrator (sallyport admin status shows it), or a new invite link")
            .exit(Exit::Connection)
    } else if lower.contains("expired") {
        CliError::new(format!("a certificate has expired, or this machine's clock is wrong ({clock})"))
            .hint("date; then sallyport login")
            .exit(Exit::NotLoggedIn)
    } else if lower.contains("notyetvalid") || lower.contains("not yet valid") {
        CliError::new(format!(
            "a certificate is not valid yet, so this machine's clock is probably wrong ({clock})"
        ))
        .hint("date; a minute of difference is tolerated")
        .exit(Exit::Connection)
    } else if matches!(refusal, Some(CaError::UnknownIssuer { .. })) || lower.contains("unknownissuer") {
        CliError::new(format!(
            "{proxy} is not the cluster you logged in to, or its certificate authority was replaced ({said})"
        ))
        .hint("if you know why, get the new pin from an administrator: sallyport login --proxy HOST:PORT --ca-pin PIN")
        .exit(Exit::Connection)
    } else if lower.contains("invalid message") || lower.contains("corrupt") {
        CliError::new(format!("{proxy} does not speak TLS ({said})"))
            .hint("check the port: a cluster has one address for everything")
            .exit(Exit::Connection)
    } else {
        CliError::new(format!("the TLS handshake with {proxy} failed: {said}")).exit(Exit::Connection)
    }
}
