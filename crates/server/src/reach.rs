//! Reaching stock OpenSSH servers by their addresses. A name is resolved once, and what is dialled is what was looked at.

mod apart;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use sallyport_ssh::{BoxedStream, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use self::apart::is_localhost;
pub(crate) use self::apart::{apart, written_apart};
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
    /// No process listens there.
    #[error("{address} refused the connection; check that sshd runs there and listens on that port")]
    Refused { address: String },
    /// No answer at all.
    #[error("{address} did not answer within {} s; check the address, routes and firewalls on the way", PATIENCE.as_secs())]
    Silent { address: String },
    /// The name is unknown, or there is no way.
    #[error("{address} cannot be reached: {source}")]
    Unreachable { address: String, source: io::Error },
    /// The name leads to where only an address that an administrator has written may.
    #[error(
        "the registered name {address} resolves to {ip}, {what}, and names are not followed there; register the address itself if it is meant: sallyport admin edit node/NAME"
    )]
    Apart { address: String, ip: IpAddr, what: &'static str },
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
    reach_by(address, async |host, port| Ok(lookup_host((host, port)).await?.collect())).await
}

/// The same by another resolver.
async fn reach_by(
    address: &str,
    resolve: impl AsyncFnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<BoxedStream, ReachError> {
    let owned = || address.to_owned();
    let parsed: HostPort =
        address.parse().map_err(|problem| ReachError::Address { address: owned(), problem })?;
    let connecting = async {
        let places = places(&parsed, resolve).await?;
        first_of(&places).await.map_err(Failed::Io)
    };
    let stream = timeout(PATIENCE, connecting)
        .await
        .map_err(|_| ReachError::Silent { address: owned() })?
        .map_err(|failed| match failed {
            Failed::Apart(ip, what) => ReachError::Apart { address: owned(), ip, what },
            Failed::Io(source) => match source.kind() {
                io::ErrorKind::ConnectionRefused => ReachError::Refused { address: owned() },
                io::ErrorKind::TimedOut => ReachError::Silent { address: owned() },
                _ => ReachError::Unreachable { address: owned(), source },
            },
        })?;
    let _ = stream.set_nodelay(true);
    greeted(stream, address).await
}

/// Why nothing is dialled.
pub(crate) enum Failed {
    Apart(IpAddr, &'static str),
    Io(io::Error),
}

/// Where a server may be dialled. The name is asked for once: an answer that changes with the next question, as DNS rebinding
/// has it, is not asked for.
pub(crate) async fn places(
    parsed: &HostPort,
    resolve: impl AsyncFnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<Vec<SocketAddr>, Failed> {
    if let Ok(ip) = parsed.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, parsed.port)]);
    }
    let found = resolve(&parsed.host, parsed.port).await.map_err(Failed::Io)?;
    let local = is_localhost(&parsed.host);
    let may = |place: &SocketAddr| match apart(place.ip()) {
        None => true,
        Some(_) => local && place.ip().to_canonical().is_loopback(),
    };
    if let Some(refused) = found.iter().find(|place| !may(place))
        && let Some(what) = apart(refused.ip())
        && !found.iter().any(may)
    {
        return Err(Failed::Apart(refused.ip(), what));
    }
    Ok(found.into_iter().filter(may).collect())
}

/// A connection to the first that takes one.
pub(crate) async fn first_of(places: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in places {
        match TcpStream::connect(place).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
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

    async fn says(words: &'static [u8]) -> Result<Vec<u8>, ReachError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for part in words.chunks(3) {
                stream.write_all(part).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let mut reached = reach(&address).await;
        let mut read = Vec::new();
        if let Ok(stream) = &mut reached {
            stream.read_to_end(&mut read).await.unwrap();
        }
        server.await.unwrap();
        reached.map(|_| read)
    }

    #[tokio::test]
    async fn only_ssh_servers_are_reached() {
        assert_eq!(says(b"SSH-2.0-x\r\nabc").await.unwrap(), b"SSH-2.0-x\r\nabc");
        let error = says(b"220 mail ready\r\nmore").await.unwrap_err().to_string();
        assert!(error.contains("not an SSH server (it says \"220 mail ready\")"), "{error}");
        let error = says(b"").await.unwrap_err();
        assert!(matches!(error, ReachError::Closed { .. }), "{error}");
        let error = says(b"SS").await.unwrap_err();
        assert!(matches!(error, ReachError::NotSsh { .. }), "{error}");
    }

    #[tokio::test]
    async fn what_is_wrong_is_said() {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = reach(&port.to_string()).await.err().unwrap().to_string();
        assert!(error.contains("refused the connection"), "{error}");
        let error = reach("nowhere").await.err().unwrap().to_string();
        assert!(error.contains("has no port"), "{error}");
    }

    /// A listener on the loopback address that must not be dialled.
    async fn untouched() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    mod attacks {
        use std::cell::Cell;

        use super::*;

        #[tokio::test]
        async fn a_name_that_resolves_inwards_is_not_dialled() {
            let (listener, port) = untouched().await;
            let inwards =
                ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "169.254.169.254", "fd00:ec2::254", "::1"];
            for ip in inwards {
                let place = SocketAddr::new(ip.parse().unwrap(), port);
                let name = format!("db.example:{port}");
                let error = reach_by(&name, async |_, _| Ok(vec![place])).await.err().unwrap();
                assert!(matches!(error, ReachError::Apart { .. }), "{ip}: {error}");
            }
            // Forms that only the system's resolver takes for addresses.
            for host in ["2130706433", "0x7f.1", "127.1", "0177.0.0.1"] {
                let error = reach(&format!("{host}:{port}")).await.err().unwrap();
                assert!(
                    matches!(error, ReachError::Apart { .. } | ReachError::Unreachable { .. }),
                    "{host}: {error}"
                );
            }
            let accepted = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
            assert!(accepted.is_err(), "a connection was made");
        }

        #[tokio::test]
        async fn a_name_that_changes_its_answer_is_asked_once_and_what_was_looked_at_is_dialled() {
            let (listener, port) = untouched().await;
            let asked = Cell::new(0);
            let refused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
            let rebinding = async |_: &str, _: u16| {
                asked.set(asked.get() + 1);
                let ip: IpAddr = if asked.get() == 1 { "192.0.2.1" } else { "127.0.0.1" }.parse().unwrap();
                Ok(vec![SocketAddr::new(ip, port)])
            };
            let parsed: HostPort = format!("db.example:{port}").parse().unwrap();
            let places = places(&parsed, rebinding).await.ok().unwrap();
            assert_eq!((places, asked.get()), (vec![format!("192.0.2.1:{port}").parse().unwrap()], 1));
            // Of an answer with both, what means the machine itself is left out.
            let both = async |_: &str, _: u16| {
                Ok(vec![
                    SocketAddr::new("127.0.0.1".parse().unwrap(), port),
                    SocketAddr::new("192.0.2.1".parse().unwrap(), refused),
                ])
            };
            let places = super::places(&parsed, both).await.ok().unwrap();
            assert_eq!(places, [format!("192.0.2.1:{refused}").parse().unwrap()]);
            assert!(tokio::time::timeout(Duration::ZERO, listener.accept()).await.is_err());
        }

        #[tokio::test]
        async fn what_an_administrator_wrote_is_dialled() {
            let (listener, port) = untouched().await;
            let greet = tokio::spawn(async move {
                for _ in 0..2 {
                    listener.accept().await.unwrap().0.write_all(b"SSH-2.0-x\r\n").await.unwrap();
                }
            });
            for host in ["127.0.0.1", "localhost"] {
                reach(&format!("{host}:{port}")).await.map(drop).unwrap();
            }
            greet.await.unwrap();
        }
    }
}
