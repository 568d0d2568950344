//! Carrying a database session's bytes, chunk by chunk as they come.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use sallyport_databases::postgres::boundary::Boundary;
use sallyport_databases::postgres::error::{LOST, LOST_HINT, Refusal, SqlState};
use sallyport_wire::tunnel::{self, TunnelError};
use tracing::Span;

use crate::proxy::client::{Client, Source, Target};

/// Most that goes on at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long a client has to take the last message.
const GRACE: Duration = Duration::from_secs(3);

/// Why a session ended before its time.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the agent was lost: {0}")]
pub(super) struct Lost(#[from] TunnelError);

/// Carries bytes until the agent has said everything, or the client is gone. `first` goes before all that the client says;
/// none where client and agent have TLS of their own, in which nothing can be put. A client that has not gone reads why the
/// agent has. `first_byte` ends with the first that the agent says.
pub(super) async fn carry(
    client: impl Client,
    agent: &tunnel::Stream,
    first: Option<Bytes>,
    first_byte: Span,
) -> Result<(), Lost> {
    let (mut from, mut to) = client.split();
    let (sent, received) = (
        counter!("sallyport_bytes_total", "direction" => "to_database"),
        counter!("sallyport_bytes_total", "direction" => "from_database"),
    );
    let seen = first.is_some();
    let up = async {
        let mut next = match first {
            Some(first) => Some(first),
            None => from.next().await.map_err(Ended::Client)?,
        };
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
        let mut boundary = Boundary::default();
        let mut first_byte = Some(first_byte);
        loop {
            let bytes = poll_fn(|context| agent.poll_receive(CHUNK_BYTES, context)).await;
            drop(first_byte.take());
            match bytes {
                Err(error) => {
                    if !seen {
                        let _ = tokio::time::timeout(GRACE, to.fail(LOST)).await;
                    } else if boundary.is_here() {
                        let refusal = Refusal::new(SqlState::ConnectionFailure, LOST).hint(LOST_HINT);
                        let saying = async {
                            if to.send(Bytes::from(refusal.to_bytes())).await.is_ok() {
                                to.finish().await;
                            }
                        };
                        // The client may read nothing.
                        let _ = tokio::time::timeout(GRACE, saying).await;
                    }
                    return Err(Ended::Agent(error));
                }
                Ok(Some(bytes)) => {
                    received.increment(bytes.len() as u64);
                    if seen {
                        boundary.pass(&bytes);
                    }
                    to.send(bytes).await.map_err(Ended::Client)?;
                }
                Ok(None) => {
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
            // A client that has said everything may still be answered. However the agent ends then, nobody misses it.
            Ok(()) => match down.await {
                Err(Ended::Agent(_)) => Ok(()),
                ended => ended,
            },
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_wire::tunnel::{Config, Tunnel};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::proxy::client::Native;

    /// A client, what carries, and the agent's end.
    async fn way() -> (DuplexStream, tokio::task::JoinHandle<Result<(), Lost>>, tunnel::Stream) {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (proxy, opened) = Tunnel::server(near, Config::default());
        let (agent, mut incoming) = Tunnel::client(far, Config::default());
        let (client, served) = tokio::io::duplex(64 * 1024);
        let stream = proxy.open(Bytes::from_static(b"header")).unwrap();
        let carrying = tokio::spawn(async move {
            let ended =
                carry(Native::new(served), &stream, Some(Bytes::from_static(b"first")), Span::none()).await;
            drop((proxy, opened, agent));
            ended
        });
        let (_, mut stream) = incoming.next().await.unwrap();
        tokio::spawn(async move { while incoming.next().await.is_some() {} });
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"first");
        (client, carrying, stream)
    }

    #[tokio::test]
    async fn both_directions_go_on_until_the_agent_has_said_everything() {
        let (mut client, carrying, mut agent) = way().await;
        let large = vec![7; 300_000];
        client.write_all(b"question").await.unwrap();
        // A client that has said everything still gets its answer.
        client.shutdown().await.unwrap();
        let mut asked = Vec::new();
        agent.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked, b"question");
        let sent = large.clone();
        tokio::spawn(async move {
            agent.write_all(&sent).await.unwrap();
            agent.shutdown().await.unwrap();
        });
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer == large);
        carrying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_agent_that_is_lost_is_told_of() {
        let (mut client, carrying, agent) = way().await;
        agent.reset("the machine burns");
        assert!(carrying.await.unwrap().unwrap_err().to_string().contains("the machine burns"));
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        let said = String::from_utf8_lossy(&rest);
        assert!(rest[0] == b'E' && said.contains("08006") && said.contains(LOST), "{said}");
    }

    #[tokio::test]
    async fn nothing_is_said_in_the_middle_of_a_message() {
        let (mut client, carrying, mut agent) = way().await;
        agent.write_all(b"D\0\0\0\x09half").await.unwrap();
        let mut half = [0; 9];
        client.read_exact(&mut half).await.unwrap();
        agent.reset("the machine burns");
        assert!(carrying.await.unwrap().is_err());
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "{rest:?}");
    }

    #[tokio::test]
    async fn a_client_that_is_gone_ends_the_session() {
        let (client, carrying, mut agent) = way().await;
        drop(client);
        let mut rest = Vec::new();
        let _ = agent.read_to_end(&mut rest).await;
        // Nothing more can be brought to it.
        let _ = agent.write_all(b"answer").await;
        drop(agent);
        carrying.await.unwrap().ok();
    }
}
