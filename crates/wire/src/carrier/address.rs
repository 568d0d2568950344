//! Which address of this machine leads to a server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// From where packets to `server` would leave now. Nothing is sent.
///
/// # Errors
/// When there is no way there.
pub(super) fn local_address(server: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(unspecified(server))?;
    socket.connect(server)?;
    socket.local_addr().map(|address| address.ip())
}

pub(super) fn unspecified(server: SocketAddr) -> SocketAddr {
    match server.ip() {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
