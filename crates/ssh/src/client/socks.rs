//! The part of SOCKS that `-D` needs: CONNECT of SOCKS 4, 4a and 5 (RFC 1928) without authentication.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::string::FromUtf8Error;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest name in a SOCKS 4 request, in bytes. SOCKS 5 bounds itself at 255.
const NAME_BYTES: usize = 255;

/// Why a SOCKS client is not taken anywhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocksError {
    #[error("the client went away: {0}")]
    Gone(#[from] io::Error),
    #[error("the client speaks no SOCKS that is known here (first byte {0})")]
    NotSocks(u8),
    #[error("the client offers no SOCKS method without authentication")]
    NoMethod,
    #[error("SOCKS command {0} is not supported, only CONNECT (1)")]
    Command(u8),
    #[error("SOCKS address type {0} is not known")]
    AddressType(u8),
    #[error("the name is not text")]
    NotText(#[from] FromUtf8Error),
    #[error("the name is longer than {NAME_BYTES} bytes")]
    LongName,
    #[error("a SOCKS client did not say where it wants to go")]
    TimedOut,
}

/// Where a SOCKS client wants to go, and how to answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) address: String,
    pub(super) port: u16,
    version: u8,
}

impl Wanted {
    /// The answer that lets the client go on, or tells it that it cannot.
    pub(super) fn answer(&self, connected: bool) -> Vec<u8> {
        match (self.version, connected) {
            (4, true) => vec![0, 90, 0, 0, 0, 0, 0, 0],
            (4, false) => vec![0, 91, 0, 0, 0, 0, 0, 0],
            // 5 is "connection refused"; the bound address is of no use to a client.
            (_, connected) => vec![5, if connected { 0 } else { 5 }, 0, 1, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Reads a request. What is wrong with it is an error for the log; the stream is then dropped.
pub(super) async fn read<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<Wanted, SocksError> {
    match stream.read_u8().await? {
        4 => {
            let command = stream.read_u8().await?;
            let port = stream.read_u16().await?;
            let address = Ipv4Addr::from(stream.read_u32().await?);
            read_string(stream).await?;
            // SOCKS 4a: 0.0.0.x with x not 0 says that a name follows.
            let named = matches!(address.octets(), [0, 0, 0, last] if last != 0);
            let address = if named { read_string(stream).await? } else { address.to_string() };
            if command != 1 {
                return Err(SocksError::Command(command));
            }
            Ok(Wanted { address, port, version: 4 })
        }
        5 => {
            let methods = stream.read_u8().await?;
            let mut offered = vec![0; usize::from(methods)];
            stream.read_exact(&mut offered).await?;
            if !offered.contains(&0) {
                let _ = stream.write_all(&[5, 0xff]).await;
                return Err(SocksError::NoMethod);
            }
            stream.write_all(&[5, 0]).await?;
            let mut head = [0; 4];
            stream.read_exact(&mut head).await?;
            let [version, command, _, kind] = head;
            if version != 5 || command != 1 {
                let _ = stream.write_all(&[5, 7, 0, 1, 0, 0, 0, 0, 0, 0]).await;
                return Err(SocksError::Command(command));
            }
            let address = match kind {
                1 => Ipv4Addr::from(stream.read_u32().await?).to_string(),
                4 => Ipv6Addr::from(stream.read_u128().await?).to_string(),
                3 => {
                    let length = stream.read_u8().await?;
                    let mut name = vec![0; usize::from(length)];
                    stream.read_exact(&mut name).await?;
                    String::from_utf8(name)?
                }
                other => return Err(SocksError::AddressType(other)),
            };
            let port = stream.read_u16().await?;
            Ok(Wanted { address, port, version: 5 })
        }
        other => Err(SocksError::NotSocks(other)),
    }
}

/// A string that ends with a zero byte.
async fn read_string<S: AsyncRead + Unpin>(stream: &mut S) -> Result<String, SocksError> {
    let mut text = Vec::new();
    loop {
        match stream.read_u8().await? {
            0 => return Ok(String::from_utf8(text)?),
            _ if text.len() == NAME_BYTES => return Err(SocksError::LongName),
            byte => text.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parse(bytes: &[u8]) -> Result<Wanted, SocksError> {
        // One byte at a time: no read may depend on how the bytes arrive.
        let (client, mut server) = tokio::io::duplex(1);
        let (mut answers, mut questions) = tokio::io::split(client);
        let bytes = bytes.to_vec();
        let writer = tokio::spawn(async move {
            let _ = questions.write_all(&bytes).await;
            let _ = questions.shutdown().await;
        });
        // What the server says in between has to be taken, or it waits for ever.
        let reader = tokio::spawn(async move {
            let mut answer = Vec::new();
            let _ = answers.read_to_end(&mut answer).await;
        });
        let parsed = read(&mut server).await;
        drop(server);
        writer.await.unwrap();
        reader.await.unwrap();
        parsed
    }

    #[tokio::test]
    async fn reads_every_kind_of_address() {
        let v4 = parse(&[4, 1, 0, 80, 127, 0, 0, 1, b'm', b'e', 0]).await.unwrap();
        assert_eq!((v4.address.as_str(), v4.port), ("127.0.0.1", 80));
        let v4a = parse(b"\x04\x01\x01\xbb\0\0\0\x01\0web.example\0").await.unwrap();
        assert_eq!((v4a.address.as_str(), v4a.port), ("web.example", 443));
        let v5 = parse(b"\x05\x02\x02\0\x05\x01\0\x03\x03web\x1f\x90").await.unwrap();
        assert_eq!((v5.address.as_str(), v5.port), ("web", 8080));
        let v6 = parse(b"\x05\x01\0\x05\x01\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x16").await.unwrap();
        assert_eq!((v6.address.as_str(), v6.port), ("::1", 22));
    }

    #[tokio::test]
    async fn says_what_it_does_not_speak() {
        for (bytes, words) in [
            (&b"\x04\x02\0\x50\x7f\0\0\x01\0"[..], "only CONNECT"),
            (b"\x05\x01\x02", "without authentication"),
            (b"\x05\x01\0\x05\x03\0\x01", "only CONNECT"),
            (b"\x05\x01\0\x05\x01\0\x09", "address type 9"),
            (b"GET / HTTP/1.1", "no SOCKS"),
            (b"\x05\x01\0\x05", "went away"),
        ] {
            let said = parse(bytes).await.unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        let endless = [b"\x04\x01\0\x50\x7f\0\0\x01".as_slice(), &[b'a'; 400]].concat();
        assert!(parse(&endless).await.unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn answers_in_the_version_of_the_question() {
        let wanted = |version| Wanted { address: String::new(), port: 0, version };
        assert_eq!(wanted(4).answer(true)[1], 90);
        assert_eq!(wanted(4).answer(false)[1], 91);
        assert_eq!(wanted(5).answer(true)[1], 0);
        assert_eq!(wanted(5).answer(false)[1], 5);
    }
}
