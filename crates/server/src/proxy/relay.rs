//! Passing a client's own TLS connection on to an authority in another process.
//!
//! The bytes are end-to-end encrypted between client and authority. The proxy's connection around them proves that it
//! is a proxy, which is what lets it vouch for the address that the client came from.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) use sallyport_wire::relay::RelayHeader;

use crate::dialling::Io;

fn invalid(error: sallyport_wire::relay::Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Writes the header.
pub(crate) async fn write_header<T: Io>(io: &mut T, header: &RelayHeader) -> io::Result<()> {
    io.write_all(&header.encode().map_err(invalid)?).await
}

/// Reads the header; what follows is the client's.
pub(crate) async fn read_header<T: Io>(io: &mut T) -> io::Result<RelayHeader> {
    let mut first = [0; 2];
    io.read_exact(&mut first).await?;
    let mut body = vec![0; RelayHeader::body_length(first).map_err(invalid)?];
    io.read_exact(&mut body).await?;
    RelayHeader::parse(&body).map_err(invalid)
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
