//! QUIC as a carrier: one connection with one stream, which carries what the plaintext of one TLS connection would.
//!
//! Everything above sees bytes that come and go in order ([`Stream`]), and does not know what carries them. What QUIC brings
//! is one round trip less before the first byte (RFC 9001 §4: keys are agreed on while the connection is made), loss that
//! is repaired by more than TCP tells, and connections that survive a change of address (RFC 9000 §9).
//!
//! * Certificates are verified by the same TLS configurations as on TCP.
//! * Who was here before may come back with a ticket and say something in its first flight ([`connect_early`]). A ticket is
//!   taken once, so that a first flight that an attacker sends again begins nothing.
//! * A connection has one stream, which the client opens. Others, and datagrams, are refused.
//! * Congestion control is our own, and goes by the path's rate (`congestion`).

mod address;
mod client;
mod congestion;
mod control;
mod early;
mod error;
mod primitives;
mod race;
mod reset;
mod server;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use address::local_address;
pub use client::{Begun, Handshake, connect, connect_early, connect_with};
pub use control::Congestion;
pub use early::Answer;
pub use error::CarrierError;
use primitives::Primitives;
pub use primitives::Sealer;
use quinn::{EndpointConfig, IdleTimeout, TransportConfig, VarInt};
pub use race::{GRACE, Winner, has_won, lose, race, win};
pub use server::{Arriving, Listener, ServerSettings, Shaking, bind};
pub use stream::{Farewell, Stream, Told};

/// What one side may have on its way: 100 ms of 1 Gbit/s. It bounds what a connection may fill of the other side's memory.
const WINDOW_BYTES: u32 = 12_500_000;
/// What waits for acknowledgement here; as much as the other side takes.
const SEND_WINDOW_BYTES: u64 = 12_500_000;
/// A peer that vanished without a word is noticed after this long: no kernel says that its process is gone.
const IDLE_TIMEOUT_MS: u32 = 30_000;
/// How often who dialled shows that it is there: three times in [`IDLE_TIMEOUT_MS`], so that two may be lost. It also is
/// what address translators want to see, which forget a UDP flow after as little as 30 s (RFC 4787 §4.3 asks for 2 minutes).
const KEEP_ALIVE: Duration = Duration::from_secs(8);
/// A handshake with two ML-DSA certificates is some 17 KiB.
const HANDSHAKE_BYTES: usize = 64 * 1024;

/// With the bit set by which firewalls and measuring tools tell QUIC from other datagrams (RFC 9287 lets it be hidden).
fn endpoint(primitives: &Primitives, sealer: Option<Arc<Sealer>>) -> Result<EndpointConfig, CarrierError> {
    let mut config = reset::endpoint(primitives, sealer)?;
    config.grease_quic_bit(false);
    Ok(config)
}

fn transport(keep_alive: bool, streams: u8, congestion: Congestion) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT_MS))))
        .keep_alive_interval(keep_alive.then_some(KEEP_ALIVE))
        .crypto_buffer_size(HANDSHAKE_BYTES)
        // It would tell an observer of the line how long a round trip is, and no code here needs it.
        .allow_spin(false)
        .congestion_controller_factory(congestion.factory(SEND_WINDOW_BYTES));
    Arc::new(transport)
}
