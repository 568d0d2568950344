//! Many streams over one connection, in both directions: what an agent keeps open to a proxy.
//!
//! A stream is opened by one frame and carries data at once: there is no answer to wait for. Each stream has its own
//! credit, so that one that stands still holds up no other and no memory grows behind it. Credit grows with the speed
//! and delay of the link, up to a bound, and shrinks again.
//!
//! Credit counts bytes of payload, and the peer chooses how many frames it makes of them. So what waits here is charged
//! what it costs ([`Memory`]), for all tunnels of a host and all of the process; past the bound the stream that holds
//! most is ended.
//!
//! [`frame`] has the bytes, [`state`] the rules (no I/O, no clock), [`driver`] puts them on a connection.

mod chunks;
pub mod driver;
pub mod frame;
mod memory;
pub mod state;

pub use driver::{Handle, Incoming, Stream, Tunnel};
pub use memory::Memory;
pub use state::{Config, Side};

/// Why a tunnel or stream ended, or could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunnelError {
    /// The other side broke the protocol.
    #[error("the peer broke the tunnel protocol: {0}")]
    Protocol(String),
    /// The other side ended this stream, and said why.
    #[error("{0}")]
    Reset(String),
    /// The other side takes no new streams.
    #[error("the peer is shutting down and takes no new streams")]
    Draining,
    /// As many streams are open as may be.
    #[error("{0} streams are open already")]
    TooManyStreams(usize),
    /// What was to go with the opening of a stream is too large.
    #[error("a stream header of {got} bytes is more than {max}")]
    HeaderTooLarge {
        /// Bytes given.
        got: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Nothing has been heard for too long.
    #[error("the peer has been silent for {0} s")]
    DeadPeer(u64),
    /// The connection below failed.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The other side has ended the connection, and said why before.
    #[error("the peer has ended the connection: {0}")]
    Left(String),
    /// The connection was closed.
    #[error("the connection was closed")]
    Closed,
}

impl From<TunnelError> for std::io::Error {
    fn from(error: TunnelError) -> Self {
        let kind = match &error {
            TunnelError::Protocol(_) => std::io::ErrorKind::InvalidData,
            TunnelError::DeadPeer(_) => std::io::ErrorKind::TimedOut,
            TunnelError::Reset(_) | TunnelError::Lost(_) => std::io::ErrorKind::ConnectionReset,
            TunnelError::Left(_) | TunnelError::Closed => std::io::ErrorKind::ConnectionAborted,
            TunnelError::Draining | TunnelError::TooManyStreams(_) | TunnelError::HeaderTooLarge { .. } => {
                std::io::ErrorKind::Other
            }
        };
        Self::new(kind, error)
    }
}
