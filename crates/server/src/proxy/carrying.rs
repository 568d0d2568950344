//! Carrying what a client and an agent say to each other, chunk by chunk as it comes, whatever they say. It is over when the agent has
//! said everything.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use sallyport_wire::tunnel::{self, TunnelError};
use tracing::Span;

use super::client::{Client, Source, Target};

/// Most that goes on at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long a client has to take the last message.
const GRACE: Duration = Duration::from_secs(3);

/// Why it was over before its time.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the agent was lost: {0}")]
pub(crate) struct Lost(#[from] TunnelError);

/// What differs from protocol to protocol.
pub(crate) trait Speaks: Send {
    /// What `sallyport_bytes_total` calls the ways to the agent and from it.
    const DIRECTIONS: [&'static str; 2];

    /// These bytes go to the client.
    fn passes(&mut self, bytes: &[u8]);

    /// Tells the client that the agent is lost, where there is room for it.
    fn lost(&mut self, to: &mut impl Target, error: &TunnelError) -> impl Future<Output = ()> + Send;
}

enum Ended {
    /// No client is left who could be told.
    Client,
    Agent(TunnelError),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Client
    }
}

/// Carries bytes until the agent has said everything, or the client is gone. `first` goes before all that the client says.
/// `first_byte` ends with the first that the agent says.
pub(crate) async fn carry<S: Speaks>(
    client: impl Client,
    agent: &tunnel::Stream,
    first: Option<Bytes>,
    first_byte: Span,
    mut speaks: S,
) -> Result<(), Lost> {
    let (mut from, mut to) = client.split();
    let [sent, received] =
        S::DIRECTIONS.map(|direction| counter!("sallyport_bytes_total", "direction" => direction));
    let up = async {
        let mut next = match first {
            Some(first) => Some(first),
            None => from.next().await?,
        };
        while let Some(mut bytes) = next {
            sent.increment(bytes.len() as u64);
            while !bytes.is_empty() {
                poll_fn(|context| agent.poll_send(&mut bytes, context)).await.map_err(Ended::Agent)?;
            }
            next = from.next().await?;
        }
        agent.finish();
        Ok(())
    };
    let down = async {
        let mut first_byte = Some(first_byte);
        loop {
            let bytes = poll_fn(|context| agent.poll_receive(CHUNK_BYTES, context)).await;
            drop(first_byte.take());
            match bytes {
                Err(error) => {
                    // The client may read nothing.
                    let _ = tokio::time::timeout(GRACE, speaks.lost(&mut to, &error)).await;
                    return Err(Ended::Agent(error));
                }
                Ok(Some(bytes)) => {
                    received.increment(bytes.len() as u64);
                    speaks.passes(&bytes);
                    to.send(bytes).await?;
                }
                Ok(None) => {
                    to.finish().await;
                    return Ok(());
                }
            }
        }
    };
    let mut down = std::pin::pin!(down);
    let ended = tokio::select! {
        ended = down.as_mut() => ended,
        ended = up => match ended {
            // A client that has said everything is still answered, and misses an agent that is lost before it has.
            Ok(()) => down.await,
            // Why the way ended is what the other direction reads, and what came before it.
            Err(Ended::Agent(_)) => down.await,
            Err(ended) => Err(ended),
        },
    };
    match ended {
        Ok(()) | Err(Ended::Client) => Ok(()),
        Err(Ended::Agent(error)) => Err(error.into()),
    }
}
