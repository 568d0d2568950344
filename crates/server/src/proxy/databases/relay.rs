//! Carrying a database session's bytes.

use bytes::Bytes;
use sallyport_databases::postgres::boundary::Boundary;
use sallyport_databases::postgres::error::{LOST, LOST_HINT, Refusal, SqlState};
use sallyport_wire::tunnel::{self, TunnelError};
use tracing::Span;

pub(super) use crate::proxy::carrying::Lost;
use crate::proxy::carrying::{self, Speaks};
use crate::proxy::client::{Client, Target};

/// The server's messages, as far as it takes to know where one ends; none where client and agent have TLS of their own, in which
/// nothing can be put.
struct Messages(Option<Boundary>);

impl Speaks for Messages {
    const DIRECTIONS: [&'static str; 2] = ["to_database", "from_database"];

    fn passes(&mut self, bytes: &[u8]) {
        if let Some(boundary) = &mut self.0 {
            boundary.pass(bytes);
        }
    }

    async fn lost(&mut self, to: &mut impl Target, _: &TunnelError) {
        match &self.0 {
            None => to.fail(LOST).await,
            Some(boundary) if boundary.is_here() => {
                let refusal = Refusal::new(SqlState::ConnectionFailure, LOST).hint(LOST_HINT);
                if to.send(Bytes::from(refusal.to_bytes())).await.is_ok() {
                    to.finish().await;
                }
            }
            Some(_) => {}
        }
    }
}

/// Carries bytes until the agent has said everything, or the client is gone. `first` goes before all that the client says;
/// none where client and agent have TLS of their own. A client that has not gone reads why the agent has.
pub(super) async fn carry(
    client: impl Client,
    agent: &tunnel::Stream,
    first: Option<Bytes>,
    first_byte: Span,
) -> Result<(), Lost> {
    let messages = Messages(first.is_some().then(Boundary::default));
    carrying::carry(client, agent, first, first_byte, messages).await
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
    async fn an_agent_that_is_lost_after_the_client_has_said_everything_is_missed() {
        for lost in [true, false] {
            let (mut client, carrying, mut agent) = way().await;
            client.write_all(b"goodbye").await.unwrap();
            client.shutdown().await.unwrap();
            let mut asked = Vec::new();
            agent.read_to_end(&mut asked).await.unwrap();
            assert_eq!(asked, b"goodbye");
            match lost {
                true => agent.reset("the machine burns"),
                false => agent.shutdown().await.unwrap(),
            }
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&rest).contains(LOST), lost, "{rest:?}");
            let ended = carrying.await.unwrap();
            assert_eq!(ended.is_err(), lost, "{ended:?}");
        }
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
