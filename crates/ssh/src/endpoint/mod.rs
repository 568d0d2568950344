//! The stream of a node's native endpoint: mutual TLS 1.3 from the user's program to the node, inside whatever carries
//! it. What is said inside is not known here.
//!
//! A first connection takes one handshake. Later ones bring a ticket of the node, and with it their first bytes as early
//! data, which the node answers in its first flight: one round trip for a whole command.
//!
//! What a carrier sees and could send again is worth nothing: a ticket is taken once ([`Tickets`]), so that early data
//! that comes again is not read, and nothing else works without the client's answer to this very handshake.
//!
//! Resumption does not verify certificates. [`accept`] gives the chain that the handshake or the ticket stands for, and
//! nothing can be read from the stream until the caller has judged it.

mod accept;
mod parting;
mod records;
mod stream;

use std::fmt;
use std::io;

pub use accept::{Accepted, Early, accept};
pub use parting::Parting;
pub use sallyport_ca::tls::Tickets;
pub use stream::EndpointStream;

/// The first byte of a TLS connection: a record with a handshake message (RFC 8446 §5.1).
pub const TLS_HANDSHAKE: u8 = 0x16;

/// Why a stream is not what was expected; inside an [`io::Error`], where [`reason`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointError {
    /// The peer: it answered, and not in TLS. A node that knows SSH alone greets so.
    NotSpoken,
    /// The peer: it showed no certificate, or does not speak what was asked for.
    Unproven,
    /// Neither side, to a client: what it sent early went out, and nothing that the node has proven says whether it was done.
    Unknown,
    /// The carrier: it brought a ticket that was brought before.
    Repeated,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSpoken => "the far end answered, but not in TLS",
            Self::Unproven => "the far end proved nothing, or speaks another protocol",
            Self::Unknown => {
                "the connection was lost before an answer came; what was asked may have been done"
            }
            Self::Repeated => "the ticket was used before",
        })
    }
}

impl std::error::Error for EndpointError {}

impl From<EndpointError> for io::Error {
    fn from(error: EndpointError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Which of these errors an I/O error is.
#[must_use]
pub fn reason(error: &io::Error) -> Option<EndpointError> {
    error.get_ref().and_then(|inner| inner.downcast_ref()).copied()
}
