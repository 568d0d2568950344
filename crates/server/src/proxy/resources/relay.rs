//! Carrying what a user's program and an agent say to each other, chunk by chunk as it comes. The ends of its two directions are
//! inside, in TLS; here it is over when the agent has said everything.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use metrics::counter;
use sallyport_wire::tunnel::{self, TunnelError};
use tracing::Span;

use crate::proxy::client::{Client, Source, Target};

/// Most that goes on at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long a client has to take the last message.
const GRACE: Duration = Duration::from_secs(3);

/// Why it was over before its time.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the agent was lost: {0}")]
pub(super) struct Lost(#[from] TunnelError);

enum Ended {
    /// Nobody is left who could be told.
    Client,
    Agent(TunnelError),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Client
    }
}

/// Carries bytes until the agent has said everything, or the client is gone. `first_byte` ends with the first that the agent says.
pub(super) async fn carry(client: impl Client, agent: &tunnel::Stream, first_byte: Span) -> Result<(), Lost> {
    let (mut from, mut to) = client.split();
    let (sent, received) = (
        counter!("sallyport_bytes_total", "direction" => "to_resource"),
        counter!("sallyport_bytes_total", "direction" => "from_resource"),
    );
    let up = async {
        while let Some(mut bytes) = from.next().await? {
            sent.increment(bytes.len() as u64);
            while !bytes.is_empty() {
                poll_fn(|context| agent.poll_send(&mut bytes, context)).await.map_err(Ended::Agent)?;
            }
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
                    let _ = tokio::time::timeout(GRACE, to.fail(&format!("it was ended: {error}"))).await;
                    return Err(Ended::Agent(error));
                }
                Ok(Some(bytes)) => {
                    received.increment(bytes.len() as u64);
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
            // A client that has said everything is still answered; an agent that is lost before that is missed. Why the way ended
            // is what this direction reads, and what came before it.
            Ok(()) | Err(Ended::Agent(_)) => down.await,
            Err(ended) => Err(ended),
        },
    };
    match ended {
        Ok(()) | Err(Ended::Client) => Ok(()),
        Err(Ended::Agent(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sallyport_wire::tunnel::{Config, Tunnel};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::proxy::client::Native;

    #[tokio::test]
    async fn an_agent_that_is_lost_after_the_client_has_said_everything_is_missed() {
        for lost in [true, false] {
            let (near, far) = tokio::io::duplex(1 << 20);
            let (proxy, opened) = Tunnel::server(near, Config::default());
            let (tunnel, mut incoming) = Tunnel::client(far, Config::default());
            let (mut client, served) = tokio::io::duplex(64 * 1024);
            let stream = proxy.open(Bytes::from_static(b"header")).unwrap();
            let carrying = tokio::spawn(async move {
                let ended = carry(Native::new(served), &stream, Span::none()).await;
                drop((proxy, opened, tunnel));
                ended
            });
            let (_, mut agent) = incoming.next().await.unwrap();
            tokio::spawn(async move { while incoming.next().await.is_some() {} });
            client.write_all(b"all of it").await.unwrap();
            client.shutdown().await.unwrap();
            let mut said = Vec::new();
            agent.read_to_end(&mut said).await.unwrap();
            assert_eq!(said, b"all of it");
            match lost {
                true => agent.reset("the agent restarts"),
                false => agent.shutdown().await.unwrap(),
            }
            let ended = carrying.await.unwrap();
            assert_eq!(ended.is_err(), lost, "{ended:?}");
        }
    }
}
