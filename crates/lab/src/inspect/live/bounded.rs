//! Connections to a server that is asked: each, and all of them together, end in time.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::{LabError, reach};

/// How long a connection may take to be there.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one answer may take, from first byte to last.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// How long everything that is asked of one server may take.
const ALTOGETHER: Duration = Duration::from_secs(20);
/// Bytes that are read of one answer at most: a chain of a hundred certificates.
const MOST_BYTES: usize = 1 << 20;

/// A server to ask.
pub(super) struct Server {
    /// As it was named.
    name: String,
    pub(super) host: String,
    addresses: Vec<SocketAddr>,
    until: Instant,
}

impl Server {
    pub(super) fn resolve(address: &str) -> Result<Self, LabError> {
        let bad = |why: &str| LabError::Input(format!("{address:?} is not HOST:PORT: {why}"));
        let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("there is no port"))?;
        let port: u16 = port.parse().map_err(|_| bad("the port is not a number from 1 to 65535"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || port == 0 {
            return Err(bad("host or port is missing"));
        }
        let until = Instant::now() + ALTOGETHER;
        let addresses = reach::resolve(host, port, CONNECT)
            .ok_or_else(|| {
                LabError::Input(format!("the name {host} did not resolve within {} s", CONNECT.as_secs()))
            })?
            .map_err(|error| LabError::Input(format!("the name {host} does not resolve: {error}")))?;
        Ok(Self { name: address.to_owned(), host: host.to_owned(), addresses, until })
    }

    pub(super) fn connect(&self) -> Result<Bounded, LabError> {
        if self.addresses.is_empty() {
            return Err(self.says("the name has no address"));
        }
        let limit = self.until.min(Instant::now() + CONNECT);
        let stream = reach::connect(&self.addresses, limit).map_err(|error| {
            self.says(&match error.kind() {
                ErrorKind::ConnectionRefused => "no server listens there (connection refused)".to_owned(),
                _ if is_late(&error) => format!("no connection within {} s", CONNECT.as_secs()),
                _ => format!("cannot connect: {error}"),
            })
        })?;
        let _ = stream.set_nodelay(true);
        let until = self.until.min(Instant::now() + ANSWER);
        Ok(Bounded { stream, until, left: MOST_BYTES })
    }

    pub(super) fn says(&self, what: &str) -> LabError {
        LabError::Connection(format!("{}: {what}", self.name))
    }

    /// Why reading failed.
    pub(super) fn lost(&self, error: &std::io::Error) -> LabError {
        if is_late(error) {
            self.says(&format!("it took the connection and did not answer within {} s", ANSWER.as_secs()))
        } else {
            self.says(&format!("it was lost: {error}"))
        }
    }
}

pub(super) fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A connection that ends at a moment, however its bytes trickle, and gives no more than so many bytes.
#[derive(Debug)]
pub(super) struct Bounded {
    stream: TcpStream,
    until: Instant,
    left: usize,
}

impl Bounded {
    fn time_left(&self) -> std::io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    /// What comes first, without taking it, if it comes this soon.
    pub(super) fn peek(&mut self, into: &mut [u8], within: Duration) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(within.min(self.time_left()?)))?;
        self.stream.peek(into)
    }
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = self.left.min(into.len());
        if most == 0 && !into.is_empty() {
            return Err(std::io::Error::other("it answers more than any server does"));
        }
        self.stream.set_read_timeout(Some(self.time_left()?))?;
        let read = self.stream.read(into.get_mut(..most).unwrap_or_default())?;
        self.left -= read;
        Ok(read)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(Some(self.time_left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}
