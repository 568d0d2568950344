//! What the proxy says of the client of a stream.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use sallyport_wire::tunnel;
use tracing::Span;

/// Takes the stream of one connection to this node.
pub(crate) type ServeStream =
    Arc<dyn Fn(tunnel::Stream, ClientContext) -> BoxFuture<'static, ()> + Send + Sync>;

/// What the proxy says of a connection to this node.
#[derive(Debug)]
pub(crate) struct ClientContext {
    /// Where it comes from.
    pub(crate) client: SocketAddr,
    /// Whether it is SSH, whatever comes first.
    pub(crate) ssh_alone: bool,
    /// Around its beginning.
    pub(crate) opening: Span,
}
