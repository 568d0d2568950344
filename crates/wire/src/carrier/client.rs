//! The side that dials.

#[cfg(test)]
mod tests;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls;
use quinn::udp::UdpSocketState;
use quinn::{ClientConfig, Connecting, Connection, Endpoint, TokioRuntime, ZeroRttAccepted};
use tracing::debug;

use super::address::unspecified;
use super::{Answer, CarrierError, Congestion, Primitives, Stream, endpoint, transport};

/// What the kernel may hold for a connection's socket, as far as it allows (`net.core.rmem_max`).
const BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Connects, and opens the stream. It is there when the server has been verified; what is written first tells the server
/// of the stream.
///
/// Each connection has a socket of its own, bound to no address: the system chooses the sender's address for every packet,
/// so that a machine that moves to another network goes on from there, and the server follows (RFC 9000 §9).
///
/// # Errors
/// [`CarrierError`]; a network that drops UDP gives none before the idle timeout, so that the caller bounds the time.
pub async fn connect(
    server: SocketAddr,
    name: &str,
    tls: impl Into<Arc<rustls::ClientConfig>>,
) -> Result<Stream, CarrierError> {
    connect_with(server, name, tls, Congestion::default()).await
}

/// As [`connect`], by another congestion controller than the cluster's: for measurements.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(
    server: SocketAddr,
    name: &str,
    tls: impl Into<Arc<rustls::ClientConfig>>,
    congestion: Congestion,
) -> Result<Stream, CarrierError> {
    Handshake(begin(server, name, tls.into(), congestion)?).finish().await
}

/// Begins a connection of a client that was here before: where `tls` has a ticket, the stream is there at once, and what is
/// written goes out in the first flight.
///
/// A server that does not know the ticket has not read it: it is sent again, so that callers notice a round trip and no more.
///
/// # Errors
/// As [`connect`].
pub async fn connect_early(
    server: SocketAddr,
    name: &str,
    tls: Arc<rustls::ClientConfig>,
) -> Result<Begun, CarrierError> {
    match begin(server, name, tls, Congestion::default())?.into_0rtt() {
        Ok((connection, answer)) => early(connection, answer).await,
        Err(connecting) => Ok(Begun::Full(Handshake(connecting))),
    }
}

async fn early(connection: Connection, answer: ZeroRttAccepted) -> Result<Begun, CarrierError> {
    let (send, receive) = connection.open_bi().await?;
    let (stream, answer) = if receive.is_0rtt() {
        Stream::early(connection, send, receive, answer)
    } else {
        // The server has answered before there was a stream: nothing was said early, and this stream, the only one that a
        // server grants, is good as it is.
        let answer = Answer::known(connection.clone(), answer.await);
        (Stream::new(connection, send, receive), answer)
    };
    Ok(Begun::Early(stream, answer))
}

/// What [`connect_early`] has begun.
#[derive(Debug)]
pub enum Begun {
    /// There was a ticket. Nothing is known of the server, not even that UDP gets there; it is when something can be read, or
    /// as the answer tells.
    Early(Stream, Answer),
    /// There was none.
    Full(Handshake),
}

/// A whole handshake. Dropped, there is no connection.
#[derive(Debug)]
pub struct Handshake(Connecting);

impl Handshake {
    /// As [`connect`].
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn finish(self) -> Result<Stream, CarrierError> {
        let connection = self.0.await?;
        let (send, receive) = connection.open_bi().await?;
        Ok(Stream::new(connection, send, receive))
    }
}

fn begin(
    server: SocketAddr,
    name: &str,
    tls: Arc<rustls::ClientConfig>,
    congestion: Congestion,
) -> Result<Connecting, CarrierError> {
    let primitives = Primitives::of(tls.crypto_provider())?;
    let first_name = primitives.first_name()?;
    let crypto = QuicClientConfig::try_from(tls).map_err(|error| CarrierError::Unfit(error.to_string()))?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    // One connection is made by this configuration, so that its first name is given once.
    config
        .transport_config(transport(true, 0, congestion))
        .initial_dst_cid_provider(Arc::new(move || first_name));
    let socket = UdpSocket::bind(unspecified(server))?;
    make_room(&socket);
    let endpoint = Endpoint::new(endpoint(&primitives, None)?, None, socket, Arc::new(TokioRuntime))?;
    Ok(endpoint.connect_with(config, server, name)?)
}

/// What systems give a UDP socket holds some ninety packets: less than what comes while a program draws breath.
fn make_room(socket: &UdpSocket) {
    let set = UdpSocketState::new(socket.into())
        .and_then(|state| state.set_recv_buffer_size(socket.into(), BUFFER_BYTES));
    if let Err(error) = set {
        debug!(%error, "buffer of the UDP socket not set");
    }
}
