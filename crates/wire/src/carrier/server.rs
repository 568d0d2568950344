//! The side that is dialled.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::rustls;
use quinn::rustls::server::StoresServerSessions;
use quinn::{Endpoint, Incoming, ServerConfig, TokioRuntime, VarInt, ZeroRttAccepted};

use super::{CarrierError, Congestion, Primitives, Sealer, Stream, endpoint, transport};

/// First packets that wait to be looked at. The loop that takes them does nothing else, so more is a flood.
const WAITING: usize = 1_024;
/// What may come of one connection while its first packet waits: a ClientHello with room to spare,
const WAITING_BYTES: u64 = 16 * 1024;
/// and of all.
const ALL_WAITING_BYTES: u64 = 4 * 1024 * 1024;
/// How long a stopping service answers those who have not heard that it stops.
const LAST_WORD: Duration = Duration::from_millis(500);

/// What connections are accepted with.
#[derive(Clone)]
pub struct ServerSettings {
    config: Arc<ServerConfig>,
    tls: Arc<rustls::ServerConfig>,
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSettings")
    }
}

impl ServerSettings {
    /// By a TLS configuration, which must require certificates and remember no sessions by itself: those who
    /// [accept](Arriving::accept) give the tickets.
    ///
    /// # Errors
    /// [`CarrierError::Unfit`] when no source here protects QUIC's packets, [`CarrierError::NoRandomness`].
    pub fn new(tls: Arc<rustls::ServerConfig>) -> Result<Self, CarrierError> {
        let tokens = Primitives::of(tls.crypto_provider())?.token_key()?;
        let mut config = ServerConfig::new(crypto(Arc::clone(&tls))?, tokens);
        config
            .transport_config(transport(false, 1, Congestion::default()))
            .migration(true)
            .max_incoming(WAITING)
            .incoming_buffer_size(WAITING_BYTES)
            .incoming_buffer_size_total(ALL_WAITING_BYTES);
        Ok(Self { config: Arc::new(config), tls })
    }

    /// The same by another congestion controller than the cluster's: for measurements.
    #[must_use]
    pub fn with_congestion(self, congestion: Congestion) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        config.transport_config(transport(false, 1, congestion));
        Self { config: Arc::new(config), ..self }
    }

    /// The same with the tickets of one connection.
    fn with_tickets(&self, tickets: Arc<dyn StoresServerSessions>) -> Result<ServerConfig, CarrierError> {
        let mut tls = rustls::ServerConfig::clone(&self.tls);
        tls.session_storage = tickets;
        let mut config = ServerConfig::clone(&self.config);
        config.crypto = crypto(Arc::new(tls))?;
        Ok(config)
    }
}

fn crypto(tls: Arc<rustls::ServerConfig>) -> Result<Arc<QuicServerConfig>, CarrierError> {
    let crypto = QuicServerConfig::try_from(tls).map_err(|error| CarrierError::Unfit(error.to_string()))?;
    Ok(Arc::new(crypto))
}

/// A UDP port.
pub struct Listener(Endpoint);

/// quinn's own would show the seed of its random numbers.
impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Listens on a bound socket. Call it inside the runtime. By `sealer` it tells peers of connections that an earlier process
/// with the same one had, and that it knows nothing of, to begin anew (RFC 9000 §10.3); else they find out by silence.
///
/// # Errors
/// [`CarrierError::Socket`] when the system refuses the socket its options, [`CarrierError::NoRandomness`].
pub fn bind(
    socket: UdpSocket,
    settings: &ServerSettings,
    sealer: Option<Arc<Sealer>>,
) -> Result<Listener, CarrierError> {
    let config = ServerConfig::clone(&settings.config);
    let endpoint = endpoint(&Primitives::of(settings.tls.crypto_provider())?, sealer)?;
    Ok(Listener(Endpoint::new(endpoint, Some(config), socket, Arc::new(TokioRuntime))?))
}

impl Listener {
    /// The next who wants a connection; `None` after [`Listener::close`].
    pub async fn next(&self) -> Option<Arriving> {
        self.0.accept().await.map(Arriving)
    }

    /// Takes no more connections; those that are open go on.
    pub fn drain(&self) {
        self.0.set_server_config(None);
    }

    /// Ends every connection, with a word to each peer, which is said once more to those who have not heard it.
    pub async fn close(&self) {
        self.0.close(VarInt::from_u32(0), b"the proxy stops");
        let _ = tokio::time::timeout(LAST_WORD, self.0.wait_idle()).await;
    }
}

/// A client whose first packet came. Dropped, it is refused.
pub struct Arriving(Incoming);

/// As that of [`Listener`].
impl fmt::Debug for Arriving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("peer", &self.peer()).finish_non_exhaustive()
    }
}

impl Arriving {
    /// Whence it came, or claims to.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.0.remote_address()
    }

    /// Whether it has shown that it gets what is sent there (RFC 9000 §8.1).
    #[must_use]
    pub fn validated(&self) -> bool {
        self.0.remote_address_validated()
    }

    /// Asks it to show that, and forgets it until then. Costs it a round trip.
    pub fn ask_again(self) {
        // It cannot have been asked before: then it would be refused, here by the drop.
        let _ = self.0.retry();
    }

    /// Sends it away.
    pub fn refuse(self) {
        self.0.refuse();
    }

    /// The stream that the client opens: with a ticket in its first flight, else when the handshake is over. Either way the
    /// client is proven as far as TLS can tell: a ticket stands for a certificate, which the caller must judge anew. The caller
    /// bounds the time.
    ///
    /// `tickets` are those that this connection may take, each of which must be given out only once (RFC 8446 §8.1), and where
    /// its own are put.
    ///
    /// # Errors
    /// [`CarrierError::Ended`].
    pub async fn accept(
        self,
        settings: &ServerSettings,
        tickets: Arc<dyn StoresServerSessions>,
    ) -> Result<(Stream, Shaking), CarrierError> {
        let connecting = self.0.accept_with(Arc::new(settings.with_tickets(tickets)?))?;
        // Nothing is said before a stream is there. That is opened by what only the owner of a certificate can send: early
        // data under the key of its ticket, or data after a handshake with its signature.
        let (connection, shaking) = match connecting.into_0rtt() {
            Ok((connection, shaking)) => (connection, Some(shaking)),
            Err(connecting) => (connecting.await?, None),
        };
        let (send, receive) = connection.accept_bi().await?;
        let shaking = shaking.filter(|_| receive.is_0rtt());
        Ok((Stream::new(connection, send, receive), Shaking(shaking)))
    }
}

/// A handshake that may still be going on while early data is served.
pub struct Shaking(Option<ZeroRttAccepted>);

impl Shaking {
    /// Whether the stream came as early data.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until the client has answered this very handshake, or is gone.
    pub async fn finish(self) {
        if let Some(shaking) = self.0 {
            shaking.await;
        }
    }
}

impl fmt::Debug for Shaking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaking").field("early", &self.is_early()).finish()
    }
}
