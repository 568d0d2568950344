//! What a TLS client of the one port asks for (RFC 7301).

/// The authority's API. TLS ends at the authority, also when the connection comes through a proxy.
pub const AUTH: &[u8] = b"sallyport-auth";
/// An agent's tunnel.
pub const TUNNEL: &[u8] = b"sallyport-tunnel/1";
/// A proxy that carries a client's connection to an authority in another process.
pub const RELAY: &[u8] = b"sallyport-relay/1";
/// gRPC and HTTPS.
pub const H2: &[u8] = b"h2";
/// gRPC of the cluster's members on the one stream of a QUIC connection. Not HTTP/3, which `h3` is: what the stream
/// carries is what TLS carries with [`H2`].
pub const H2_BY_QUIC: &[u8] = b"sallyport-h2/1";
/// HTTPS.
pub const HTTP11: &[u8] = b"http/1.1";
/// PostgreSQL (its documentation, chapter 53.2.10).
pub const POSTGRESQL: &[u8] = b"postgresql";
/// A session with a database, from the user's program to the agent; inside what carries PostgreSQL's bytes otherwise, and as
/// little for a listener.
pub const DATABASE: &[u8] = b"sallyport-database/1";
/// A session with a node, from the user's program to the node. It travels inside what carries SSH, so that no listener
/// ever chooses it.
pub const NATIVE: &[u8] = b"sallyport-native/1";
