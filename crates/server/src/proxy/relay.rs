//! Passing a client's own TLS connection on to an authority in another process.
//!
//! The bytes are end-to-end encrypted between client and authority. The proxy's connection around them proves that it
//! is a proxy, which is what lets it vouch for the address that the client came from.

use std::io;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::authority_client::Io;

/// The header is one address; anything longer is not ours.
const HEADER_LIMIT_BYTES: usize = 1024;

/// What precedes the client's bytes: its length in two bytes, big end first, then this as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RelayHeader {
    /// Where the client's connection came from.
    pub(crate) client_addr: SocketAddr,
}

/// Writes the header.
pub(crate) async fn write_header<T: Io>(io: &mut T, header: &RelayHeader) -> io::Result<()> {
    let json = serde_json::to_vec(header)?;
    let length = u16::try_from(json.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut bytes = Vec::with_capacity(json.len() + 2);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&json);
    io.write_all(&bytes).await
}

/// Reads the header; what follows is the client's.
pub(crate) async fn read_header<T: Io>(io: &mut T) -> io::Result<RelayHeader> {
    let length = usize::from(io.read_u16().await?);
    if length > HEADER_LIMIT_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("relay header of {length} bytes, at most {HEADER_LIMIT_BYTES} are allowed"),
        ));
    }
    let mut json = vec![0; length];
    io.read_exact(&mut json).await?;
    serde_json::from_slice(&json).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_header_survives_and_leaves_what_follows() {
        let (mut near, mut far) = tokio::io::duplex(4096);
        let header = RelayHeader { client_addr: "[2001:db8::1]:4711".parse().unwrap() };
        write_header(&mut near, &header).await.unwrap();
        near.write_all(b"hello").await.unwrap();
        assert_eq!(read_header(&mut far).await.unwrap(), header);
        let mut rest = [0; 5];
        far.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"hello");
    }

    #[tokio::test]
    async fn oversized_and_broken_headers_are_refused() {
        for bytes in [&[0xff, 0xff][..], b"\x00\x02{]", b"\x00\x00"] {
            let (mut near, mut far) = tokio::io::duplex(4096);
            near.write_all(bytes).await.unwrap();
            drop(near);
            assert!(read_header(&mut far).await.is_err(), "{bytes:?}");
        }
    }
}
