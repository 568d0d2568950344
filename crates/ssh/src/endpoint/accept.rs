//! The node's side of a handshake.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use sallyport_ca::tls::Counter;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::{Connection, HandshakeKind, ServerConfig, ServerConnection};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{EndpointError, EndpointStream, Tickets};

/// Whether early data may be read before the handshake is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// At once. It comes once: the ticket is gone.
    AtOnce,
    /// Not before the client has answered this handshake, which proves that it is there now. Costs a round trip.
    AfterHandshake,
}

/// A client that has come as far as its certificate. Dropped, it is refused: nothing was read from it.
#[derive(Debug)]
pub struct Accepted<IO> {
    stream: EndpointStream<IO>,
    counter: Arc<Counter>,
}

/// Begins a connection, as far as it takes to know whom the client claims to be: with a ticket its first flight, else a
/// whole handshake. `config` is [`node_server_config`](sallyport_ca::tls::node::node_server_config)'s. Has no time limit
/// of its own.
///
/// # Errors
/// The stream's; and of kind `InvalidData` for a client that does not speak TLS as it should, or is refused, which it was
/// told then, or whose ticket was brought before ([`EndpointError::Repeated`]), which it was not.
pub async fn accept<IO>(
    io: IO,
    config: &ServerConfig,
    tickets: &Arc<Tickets>,
    now: OffsetDateTime,
) -> io::Result<Accepted<IO>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let counter = Arc::new(Counter::new(Arc::clone(tickets), now));
    let mut config = config.clone();
    config.session_storage = Arc::clone(&counter) as _;
    let tls = ServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
    let mut stream = EndpointStream::new(io, Connection::Server(tls));
    while stream.tls().is_handshaking() && stream.tls().handshake_kind() != Some(HandshakeKind::Resumed) {
        poll_fn(|context| stream.poll_handshake(context)).await?;
        // Told that its flight was not read, an honest client says it again, and a carrier that has brought it here by
        // itself before would have had it done twice.
        if counter.has_seen_before() {
            return Err(EndpointError::Repeated.into());
        }
    }
    // A client that asks for no protocol in particular would pass; it is none of ours.
    if stream.tls().alpn_protocol().is_none() || stream.tls().peer_certificates().is_none() {
        return Err(EndpointError::Unproven.into());
    }
    Ok(Accepted { stream, counter })
}

impl<IO> Accepted<IO> {
    /// The certificates that the client has shown, now or when it got its ticket. The leaf comes first.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        self.stream.tls().peer_certificates().unwrap_or_default()
    }

    /// Whether the client brought a ticket, so that nothing about its certificates was verified.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.stream.tls().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Lets the client in: its certificate was verified now, and is good until then, which is how long the tickets are
    /// that it gets.
    #[must_use]
    pub fn admit(mut self, until: OffsetDateTime, early: Early) -> EndpointStream<IO> {
        self.counter.admit(until);
        self.stream.hold(early == Early::AfterHandshake);
        self.stream
    }
}
