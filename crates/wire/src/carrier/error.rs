//! Why there is no connection.

use quinn::{ConnectionError, TransportErrorCode};

/// Why there is no connection, or no longer one.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// The configuration cannot be used for QUIC.
    #[error("the TLS configuration cannot carry QUIC: {0}")]
    Unfit(String),
    /// The TLS configuration's provider has no random numbers to give.
    #[error("the TLS configuration's provider gives no random numbers for QUIC")]
    NoRandomness,
    /// The address or the name cannot be dialled.
    #[error("cannot dial by QUIC: {0}")]
    Dial(#[from] quinn::ConnectError),
    /// The connection ended, or never was.
    #[error("the QUIC connection ended: {0}")]
    Ended(#[from] ConnectionError),
    /// No socket.
    #[error("no UDP socket: {0}")]
    Socket(#[from] std::io::Error),
}

impl CarrierError {
    /// Whether the peer has gone by its own wish, as one does for whom TCP was quicker.
    #[must_use]
    pub fn is_farewell(&self) -> bool {
        match self {
            Self::Ended(ConnectionError::ApplicationClosed(_)) => true,
            // The same before the handshake is done (RFC 9000 §10.2.3).
            Self::Ended(ConnectionError::ConnectionClosed(close)) => {
                close.error_code == TransportErrorCode::APPLICATION_ERROR
            }
            _ => false,
        }
    }
}
