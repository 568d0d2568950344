//! A node's native listener, for `sallyport ssh` and `scp`: through the helper where there is one, else by a connection of this
//! process.

use std::sync::Arc;

use futures::future::LocalBoxFuture;
use sallyport_client::error::Doing;
use sallyport_ssh::endpoint::EndpointStream;
use time::OffsetDateTime;
use tokio_util::either::Either;
use tracing::{Instrument, debug, info_span};

use super::stream::{self, HelperStream, Offered};
use crate::error::Result;
use sallyport_client::channel::Channel;
use sallyport_client::native::{client, explain, is_ssh_alone};
use sallyport_client::profile::Stored;
use sallyport_client::trace::PHASE;
use sallyport_client::transport::{self, Ending, NodeStream};
use sallyport_client::{connect, native_history};

/// A stream to a node's native listener, proven in both directions.
pub type NativeStream = Either<HelperStream, EndpointStream<NodeStream>>;

/// What came of asking for the native listener.
pub enum Asked {
    /// A stream of the native protocol, and how the proxy ends it.
    Native(Box<NativeStream>, Ending),
    /// The node knows SSH alone. The connection to the proxy, where this program made one.
    SshAlone(Option<Channel>),
}

/// Connects to the native listener of a node: through the helper daemon where there is one, else alone.
pub fn ask<'a>(stored: &'a Stored, node: &'a str, login: &'a str) -> LocalBoxFuture<'a, Result<Asked>> {
    Box::pin(async move {
        match stream::open_native(stored, node, login).await? {
            // The helper remembers it, and what it was before.
            Offered::Native(stream, ending) => {
                return Ok(Asked::Native(Box::new(Either::Left(stream)), ending));
            }
            Offered::SshAlone => return Ok(Asked::SshAlone(None)),
            Offered::Nothing => {}
        }
        let channel = connect::proxy(stored).await?;
        let client = client(stored, node)?;
        let (stream, ending) =
            transport::open_native(channel.clone(), &Arc::new(stored.clone()), node, login);
        let mut stream =
            EndpointStream::connect(stream, &client, OffsetDateTime::now_utc()).doing("set up TLS")?;
        match stream.handshake().instrument(info_span!(target: PHASE, "native.handshake")).await {
            Ok(()) => {
                native_history::natively(stored, node);
                Ok(Asked::Native(Box::new(Either::Right(stream)), ending))
            }
            // An SSH server may be gone before its greeting arrives, because it has not understood what came.
            Err(error)
                if is_ssh_alone(&error)
                    || ending.is_unimplemented()
                    || (ending.was_reached() && stream.is_unheard()) =>
            {
                debug!(node, "the node knows SSH alone");
                native_history::by_ssh(stored, node)?;
                Ok(Asked::SshAlone(Some(channel)))
            }
            // When the proxy ended the stream, its words are the cause and TLS's only the effect.
            Err(error) => Err(ending.error(node, login).unwrap_or_else(|| explain(node, &error)).into()),
        }
    })
}
