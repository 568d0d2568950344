//! Where clients may not have the node connect to.

mod here;

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpStream, lookup_host};

use here::{interface, is_here, plain};

/// Addresses of the cluster's own that a node keeps apart from what it connects to for clients (`ssh -L`, `-D`, `-W`): there they
/// would come as from the node, past a firewall that lets it through. Default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apart {
    /// By name or address, and port. Names are resolved for each connection.
    pub named: Vec<(String, u16)>,
    /// Ports of this machine, on each of its addresses.
    pub own_ports: Vec<u16>,
}

impl Apart {
    /// Connects to where a client wishes, unless it is kept apart. What is connected to is the address that was looked at.
    ///
    /// # Errors
    /// The system's, or [`io::ErrorKind::PermissionDenied`].
    pub(super) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        if self.named.is_empty() && self.own_ports.is_empty() {
            return TcpStream::connect((host, port)).await;
        }
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in lookup_host((host, port)).await?.map(plain) {
            if self.has(address).await {
                let reason = "the cluster's own listeners are not forwarded to (node.forwards_to_cluster)";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn has(&self, address: SocketAddr) -> bool {
        if self.own_ports.contains(&address.port()) && is_here(address) {
            return true;
        }
        for (host, port) in self.named.iter().filter(|(_, port)| *port == address.port()) {
            match lookup_host((host.as_str(), *port)).await {
                Ok(mut there) => {
                    if there.any(|there| is_same(there, address)) {
                        return true;
                    }
                }
                // It may be that very address.
                Err(_) => return true,
            }
        }
        false
    }
}

/// A listener of this machine's may be reached by any of its addresses.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let (first, second) = (interface(one), interface(other));
    // Without its interface a link-local address could be that on any.
    let scopes = first == second || first == 0 || second == 0;
    (scopes && one.ip().to_canonical() == other.ip().to_canonical()) || (is_here(one) && is_here(other))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_clusters_own_are_not_connected_to_however_they_are_written() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Apart { named: Vec::new(), own_ports: vec![port] };
        let named = Apart { named: vec![("localhost".to_owned(), port)], own_ports: Vec::new() };
        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "0.0.0.0", "127.0.0.2"] {
            for apart in [&own, &named] {
                let refused = apart.connect(host, port).await.unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{host}: {refused}");
            }
        }
        // Others are, and by default all.
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let refused = own.connect("127.0.0.1", other).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        Apart::default().connect("localhost", port).await.unwrap();
        // A name that cannot be resolved could be any.
        let lost = Apart { named: vec![("no-such-name.invalid".to_owned(), port)], own_ports: Vec::new() };
        assert_eq!(
            lost.connect("127.0.0.1", port).await.unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }
}
