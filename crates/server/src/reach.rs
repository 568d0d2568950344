//! Reaching stock OpenSSH servers by their addresses.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use sallyport_ssh::{BoxedStream, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::HostPort;

/// Longest wait for a connection, and again for the server's first words.
const PATIENCE: Duration = Duration::from_secs(10);
/// How every SSH server begins (RFC 4253 §4.2).
const GREETING: &[u8] = b"SSH-";
/// Of what something else says, this much is read to be shown.
const MOST_SAID: usize = 200;

/// Why a server is not reached. `Display` is for the person at the other end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    /// What is registered is no address.
    #[error("the registered address {address:?} {problem}; correct it: sallyport admin edit node/NAME")]
    Address { address: String, problem: &'static str },
    /// Nobody listens.
    #[error("{address} refused the connection; check that sshd runs there and listens on that port")]
    Refused { address: String },
    /// No answer at all.
    #[error("{address} did not answer within {} s; check the address, routes and firewalls on the way", PATIENCE.as_secs())]
    Silent { address: String },
    /// The name is unknown, or there is no way.
    #[error("{address} cannot be reached: {source}")]
    Unreachable { address: String, source: io::Error },
    /// Something else listens there.
    #[error("what answers at {address} is not an SSH server{said}; check the registered address")]
    NotSsh { address: String, said: String },
    /// It was reached and went away before it said anything.
    #[error("{address} closed the connection before it said anything; its log says why")]
    Closed { address: String },
}

/// Connects to the server that is registered at `address`. What comes back has greeted as SSH servers do: nothing of a
/// user's goes to anything else.
pub(crate) async fn reach(address: &str) -> Result<BoxedStream, ReachError> {
    let owned = || address.to_owned();
    let parsed: HostPort =
        address.parse().map_err(|problem| ReachError::Address { address: owned(), problem })?;
    let connecting = TcpStream::connect((parsed.host.as_str(), parsed.port));
    let stream = timeout(PATIENCE, connecting)
        .await
        .map_err(|_| ReachError::Silent { address: owned() })?
        .map_err(|source| match source.kind() {
            io::ErrorKind::ConnectionRefused => ReachError::Refused { address: owned() },
            io::ErrorKind::TimedOut => ReachError::Silent { address: owned() },
            _ => ReachError::Unreachable { address: owned(), source },
        })?;
    let _ = stream.set_nodelay(true);
    greeted(stream, address).await
}

/// Waits for the greeting of an SSH server and gives the stream with it.
pub(crate) async fn greeted<S: Stream + 'static>(
    mut stream: S,
    address: &str,
) -> Result<BoxedStream, ReachError> {
    let owned = || address.to_owned();
    let mut first = BytesMut::with_capacity(512);
    let reading = async {
        while first.len() < MOST_SAID {
            if stream.read_buf(&mut first).await? == 0 {
                break;
            }
            let seen = first.len().min(GREETING.len());
            let differs = first.get(..seen) != GREETING.get(..seen);
            if (!differs && seen == GREETING.len()) || (differs && first.contains(&b'\n')) {
                break;
            }
        }
        Ok(())
    };
    let read: io::Result<()> =
        timeout(PATIENCE, reading).await.map_err(|_| ReachError::Silent { address: owned() })?;
    if first.starts_with(GREETING) {
        return Ok(Box::new(Greeted { first: first.freeze(), stream }));
    }
    if first.is_empty() {
        return Err(match read {
            Err(source) => ReachError::Unreachable { address: owned(), source },
            Ok(()) => ReachError::Closed { address: owned() },
        });
    }
    let line = first.as_ref().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text: String =
        String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).take(MOST_SAID).collect();
    let said = if text.is_empty() { String::new() } else { format!(" (it says {text:?})") };
    Err(ReachError::NotSsh { address: owned(), said })
}

/// A stream whose first bytes were read already.
struct Greeted<S> {
    first: Bytes,
    stream: S,
}

impl<S: Stream> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(self.first.get(..length).unwrap_or_default());
        self.first.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncWrite for Greeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn says(words: &'static [u8]) -> Result<Vec<u8>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for part in words.chunks(3) {
                stream.write_all(part).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let reached = reach(&address).await;
        let mut read = Vec::new();
        let outcome = match reached {
            Ok(mut stream) => {
                stream.read_to_end(&mut read).await.unwrap();
                Ok(read)
            }
            Err(error) => Err(error.to_string().replace(&address, "ADDRESS")),
        };
        server.await.unwrap();
        outcome
    }

    #[tokio::test]
    async fn only_ssh_servers_are_reached() {
        assert_eq!(says(b"SSH-2.0-x\r\nabc").await.unwrap(), b"SSH-2.0-x\r\nabc");
        let error = says(b"220 mail ready\r\nmore").await.unwrap_err();
        assert!(error.contains("not an SSH server (it says \"220 mail ready\")"), "{error}");
        let error = says(b"").await.unwrap_err();
        assert!(error.contains("closed the connection"), "{error}");
        let error = says(b"SS").await.unwrap_err();
        assert!(error.contains("not an SSH server"), "{error}");
    }

    #[tokio::test]
    async fn what_is_wrong_is_said() {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = reach(&port.to_string()).await.err().unwrap().to_string();
        assert!(error.contains("refused the connection"), "{error}");
        let error = reach("nowhere").await.err().unwrap().to_string();
        assert!(error.contains("has no port"), "{error}");
    }
}
