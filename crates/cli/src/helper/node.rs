//! A node's native listener, for `sallyport ssh` and `scp`: through the helper where there is one, else by a connection of this
//! process.

use std::sync::Arc;

use sallyport_ssh::door::DoorStream;
use time::OffsetDateTime;
use tokio_util::either::Either;
use tracing::{Instrument, debug, info_span};

use super::stream::{self, HelperStream, Offered};
use crate::client::channel::Channel;
use crate::client::native::{client, explain, is_ssh_alone};
use crate::client::profile::Stored;
use crate::client::trace::PHASE;
use crate::client::transport::{self, Ending, NodeStream};
use crate::client::{connect, native_history};
use crate::error::{CliResult, Context};

/// A stream to a node's native front door, proven in both directions.
pub(crate) type NativeStream = Either<HelperStream, DoorStream<NodeStream>>;

/// What came of asking for the native door.
pub(crate) enum Asked {
    Native(Box<NativeStream>, Ending),
    /// The node knows SSH alone. The connection to the proxy, where this program made one.
    SshAlone(Option<Channel>),
}

/// Connects to the native door of a node: through the helper daemon where there is one, else alone.
pub(crate) async fn ask(stored: &Stored, node: &str, login: &str) -> CliResult<Asked> {
    match stream::open_native(stored, node, login).await? {
        // The helper remembers it, and what it was before.
        Offered::Native(stream, ending) => return Ok(Asked::Native(Box::new(Either::Left(stream)), ending)),
        Offered::SshAlone => return Ok(Asked::SshAlone(None)),
        Offered::Nothing => {}
    }
    let channel = connect::proxy(stored).await?;
    let client = client(stored, node)?;
    let (stream, ending) = transport::open_native(channel.clone(), &Arc::new(stored.clone()), node, login);
    let mut stream = DoorStream::connect(stream, &client, OffsetDateTime::now_utc()).doing("set up TLS")?;
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
        Err(error) => Err(ending.error(node, login).unwrap_or_else(|| explain(node, &error))),
    }
}
