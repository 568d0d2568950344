//! Connections that the services make: TCP with the settings that all have, and TLS over it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::config::HostPort;

/// Name resolution, TCP and TLS together. A working path needs three round trips.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Any byte stream.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A byte stream of some kind.
pub(crate) type BoxIo = Box<dyn Io>;

/// Serves a connection to the authority in this process, from the given address, to its end.
pub(crate) type ServeAuthority = Arc<dyn Fn(BoxIo, SocketAddr) -> BoxFuture<'static, ()> + Send + Sync>;

/// A TCP connection with the settings that every connection of ours has.
pub(crate) async fn dial(address: &HostPort) -> io::Result<TcpStream> {
    let connect = TcpStream::connect((address.host.as_str(), address.port));
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connect).await.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer from {address} within {CONNECT_TIMEOUT:?}"),
        )
    })??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// TLS over `io` as a client.
pub(crate) async fn handshake<T: Io>(
    io: T,
    config: Arc<ClientConfig>,
    server: &str,
) -> io::Result<TlsStream<T>> {
    let name = ServerName::try_from(server.to_owned()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{server:?} is not a server name"))
    })?;
    tokio::time::timeout(CONNECT_TIMEOUT, TlsConnector::from(config).connect(name, io))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long"))?
        .map_err(|error| match sallyport_ca::tls::refusal(&error) {
            // rustls would show the certificate's fault in its own terms.
            Some(refusal) => io::Error::new(error.kind(), refusal.to_string()),
            None => error,
        })
}
