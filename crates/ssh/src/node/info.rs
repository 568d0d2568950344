//! What is known of a connection, and of its user, before it begins.

use std::net::SocketAddr;

use bytes::Bytes;
use sallyport_access::Identity;

/// Where a connection comes from.
#[derive(Debug, Clone, Default)]
pub struct ConnectionInfo {
    /// The client, as the proxy or the listener saw it.
    pub client_addr: Option<SocketAddr>,
    /// The address is the word of a proxy in another process, and events say so. Default: it was seen here.
    pub told_by_proxy: bool,
    /// Around the connection's beginning, for traces: the phases up to the first byte of the first session become its
    /// parts, and with that byte it ends. Default: none.
    pub opening: Option<tracing::Span>,
}

/// A user whose identity is proven to the caller that brings the connection.
#[derive(Debug, Clone)]
pub struct NativeLogin {
    /// Who. Its end, locks and policy are checked here, now and at every session; that it is authentic is not.
    pub identity: Identity,
    /// What names the proof in the audit log when they are refused: the fingerprint or number of their certificate.
    pub proof: String,
    /// Their certificate, DER, as it was presented.
    pub certificate: Bytes,
}
