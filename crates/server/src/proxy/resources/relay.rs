//! Carrying what a user's program and an agent say to each other. The ends of its two directions are inside, in TLS.

use sallyport_wire::tunnel::{self, TunnelError};
use tracing::Span;

pub(super) use crate::proxy::carrying::Lost;
use crate::proxy::carrying::{self, Speaks};
use crate::proxy::client::{Client, Target};

struct Tls;

impl Speaks for Tls {
    const DIRECTIONS: [&'static str; 2] = ["to_resource", "from_resource"];

    fn passes(&mut self, _: &[u8]) {}

    async fn lost(&mut self, to: &mut impl Target, error: &TunnelError) {
        to.fail(&format!("it was ended: {error}")).await;
    }
}

/// Carries bytes until the agent has said everything, or the client is gone.
pub(super) async fn carry(client: impl Client, agent: &tunnel::Stream, first_byte: Span) -> Result<(), Lost> {
    carrying::carry(client, agent, None, first_byte, Tls).await
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
