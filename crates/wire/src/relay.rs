//! What a proxy says before a client's bytes that it passes on to an authority in another process.
//!
//! The header is its length in two bytes, big end first, then JSON.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The header is one address; anything longer is not ours.
pub const HEADER_LIMIT_BYTES: usize = 1024;

/// The header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayHeader {
    /// Where the client's connection came from.
    pub client_addr: SocketAddr,
}

/// Why bytes are no header.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It says that it is longer than any is.
    #[error("relay header of {0} bytes, at most {HEADER_LIMIT_BYTES} are allowed")]
    Length(usize),
    /// It is not what a header is.
    #[error("relay header that is not a client's address in JSON")]
    Json(#[from] serde_json::Error),
}

impl RelayHeader {
    /// The header's bytes.
    ///
    /// # Errors
    /// [`Malformed`] when it cannot be written; no address is such.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let json = serde_json::to_vec(self)?;
        let length = u16::try_from(json.len()).map_err(|_| Malformed::Length(json.len()))?;
        Ok([&length.to_be_bytes()[..], &json].concat())
    }

    /// How many bytes follow the first two.
    ///
    /// # Errors
    /// [`Malformed::Length`] when they are more than a header has.
    pub fn body_length(first: [u8; 2]) -> Result<usize, Malformed> {
        let length = usize::from(u16::from_be_bytes(first));
        if length > HEADER_LIMIT_BYTES { Err(Malformed::Length(length)) } else { Ok(length) }
    }

    /// Reads what followed the first two bytes.
    ///
    /// # Errors
    /// [`Malformed::Json`] when it is no address.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        Ok(serde_json::from_slice(body)?)
    }
}
