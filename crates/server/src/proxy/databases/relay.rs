//! Carrying a database session's bytes, chunk by chunk as they come.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use sallyport_wire::tunnel::{self, TunnelError};

use super::client::{Client, Source, Target};

/// Most that goes on at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long the agent has to end a session that is no longer allowed.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Why a session ended before its time.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the agent was lost: {0}")]
pub(super) struct Lost(#[from] TunnelError);

/// Carries bytes until the agent has said everything, or the client is gone. `first` goes before all that the client says.
pub(super) async fn carry(client: impl Client, agent: &tunnel::Stream, first: Bytes) -> Result<(), Lost> {
    let (mut from, mut to) = client.split();
    let (sent, received) = (
        counter!("sallyport_bytes_total", "direction" => "to_database"),
        counter!("sallyport_bytes_total", "direction" => "from_database"),
    );
    let up = async {
        let mut next = Some(first);
        while let Some(mut bytes) = next {
            sent.increment(bytes.len() as u64);
            while !bytes.is_empty() {
                poll_fn(|context| agent.poll_send(&mut bytes, context)).await.map_err(Ended::Agent)?;
            }
            next = from.next().await.map_err(Ended::Client)?;
        }
        agent.finish();
        Ok::<(), Ended>(())
    };
    let down = async {
        loop {
            let bytes = poll_fn(|context| agent.poll_receive(CHUNK_BYTES, context)).await;
            match bytes.map_err(Ended::Agent)? {
                Some(bytes) => {
                    received.increment(bytes.len() as u64);
                    to.send(bytes).await.map_err(Ended::Client)?;
                }
                None => {
                    to.finish().await;
                    return Ok::<(), Ended>(());
                }
            }
        }
    };
    let mut down = std::pin::pin!(down);
    let ended = tokio::select! {
        ended = down.as_mut() => ended,
        ended = up => match ended {
            // A client that has said everything may still be answered.
            Ok(()) => down.await,
            // Why the way ended is what the other direction reads, and what came before it.
            Err(Ended::Agent(_)) => down.await,
            Err(ended) => Err(ended),
        },
    };
    match ended {
        Ok(()) | Err(Ended::Client(_)) => Ok(()),
        Err(Ended::Agent(error)) => Err(error.into()),
    }
}

enum Ended {
    /// Nobody is left who could be told.
    Client(#[allow(dead_code, reason = "for whoever debugs")] io::Error),
    Agent(TunnelError),
}
