//! Connections that the services make: TCP with the settings that all have, and TLS over it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_access::HostId;
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

/// Where a connection to the authority comes from.
#[derive(Debug, Clone, Copy)]
pub struct PeerInfo {
    /// The client's address.
    pub address: SocketAddr,
    /// The proxy that relays the connection and says where its client is; none where the process of the authority sees it itself.
    pub relayed_by: Option<HostId>,
}

impl PeerInfo {
    /// A client that no proxy relays.
    #[must_use]
    pub const fn direct(address: SocketAddr) -> Self {
        Self { address, relayed_by: None }
    }
}

/// Serves a connection to the authority in this process to its end.
pub(crate) type ServeAuthority = Arc<dyn Fn(BoxIo, PeerInfo) -> BoxFuture<'static, ()> + Send + Sync>;

/// A TCP connection with the settings that every connection of ours has.
pub(crate) async fn dial(address: &HostPort) -> io::Result<TcpStream> {
    connected(address, TcpStream::connect((address.host.as_str(), address.port))).await
}

/// As [`dial`], but only where every address of the name is public. What is connected to is what was judged.
pub(crate) async fn dial_outside(address: &HostPort) -> io::Result<TcpStream> {
    let connecting = async {
        let found = addresses(address).await?;
        if let Some(inside) = found.iter().find(|found| is_inside(found.ip())) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is at {}, which is no public address", address.host, inside.ip()),
            ));
        }
        TcpStream::connect(found.as_slice()).await
    };
    connected(address, connecting).await
}

async fn connected(
    address: &HostPort,
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer from {address} within {CONNECT_TIMEOUT:?}"),
        )
    })??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Where a name leads.
pub(crate) async fn addresses(address: &HostPort) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((address.host.as_str(), address.port)).await?.collect())
}

/// Whether an address is of this machine or of a network that is not the Internet (RFC 6890): there services answer to those who
/// reach them, such as a cloud's metadata.
pub(crate) fn is_inside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_multicast()
                || a == 0
                || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(v6) => {
            let [first, second, .., high, low] = v6.segments();
            // RFC 6052: an address of IPv4 in one of IPv6.
            let embeds = v6.to_ipv4_mapped().is_some() || (first, second) == (0x64, 0xff9b);
            let embedded = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || (embeds && is_inside(embedded.into()))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_that_are_not_of_the_internet_are_inside() {
        for inside in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "::1",
            "::",
            "fd00:ec2::254",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
        ] {
            assert!(is_inside(inside.parse().unwrap()), "{inside}");
        }
        for outside in
            ["1.1.1.1", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
        {
            assert!(!is_inside(outside.parse().unwrap()), "{outside}");
        }
        let refused = dial_outside(&"localhost:1".parse().unwrap()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    }
}
