//! As little of an HTTP client as it takes: connect, with TLS or without, ask, read the answer. It blocks, verifies
//! certificates as others do, and never waits longer than it is told to.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use sallyport_bench::Talk;
use sallyport_sal::tls::rustls::pki_types::ServerName;
use sallyport_sal::tls::rustls::{self, ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use super::http::{BadResponse, Reader, Response};

/// How often a connection that waits looks whether it shall go on waiting.
const GLANCE: Duration = Duration::from_millis(250);
/// How long a server has to close a connection which it was asked to close, before we do.
const CLOSING: Duration = Duration::from_millis(100);
/// One read.
pub(super) const READ_BYTES: usize = 32 << 10;

/// What goes wrong with a request, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// Nothing listens.
    Refused,
    /// No answer in time.
    Timeout,
    /// TLS failed: no common parameters, or a certificate that is not good.
    Tls,
    /// The answer is not HTTP, or malformed.
    NotHttp,
    /// An answer whose status is not 200 to 299.
    Status,
    /// The connection was cut.
    Reset,
    /// There was no local port or descriptor left.
    Local,
    /// Anything else.
    Other,
}

impl Problem {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Refused,
        Self::Timeout,
        Self::Tls,
        Self::NotHttp,
        Self::Status,
        Self::Reset,
        Self::Local,
        Self::Other,
    ];

    /// As a heading.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout => "timeouts",
            Self::Tls => "tls errors",
            Self::NotHttp => "not http",
            Self::Status => "bad status",
            Self::Reset => "resets",
            Self::Local => "no local port",
            Self::Other => "other errors",
        }
    }
}

/// A request that failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub problem: Problem,
    /// What was said, in words.
    pub said: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.said)
    }
}

/// How TLS begins.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    pub config: Arc<ClientConfig>,
    /// Whom to expect.
    pub name: ServerName<'static>,
}

/// Whom to ask, and for what.
#[derive(Debug)]
pub(super) struct Target {
    pub address: SocketAddr,
    /// None: plain HTTP.
    pub tls: Option<Tls>,
    /// Longest that one request may take, connecting and handshake with it.
    pub patience: Duration,
    /// The request, for a connection that ends with it and for one that goes on.
    requests: [Vec<u8>; 2],
    /// Whether the server has been seen to leave connections open that it was asked to close.
    leaves_open: AtomicBool,
}

impl Target {
    pub(super) fn new(
        address: SocketAddr,
        tls: Option<Tls>,
        authority: &str,
        path: &str,
        patience: Duration,
    ) -> Self {
        let request = |connection| {
            format!(
                "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: sallyport-lab\r\nAccept: */*\r\nConnection: \
                 {connection}\r\n\r\n"
            )
            .into_bytes()
        };
        let requests = [request("close"), request("keep-alive")];
        Self { address, tls, patience, requests, leaves_open: AtomicBool::new(false) }
    }

    /// Whether connections had to be reset because the server did not close them.
    pub(super) fn leaves_open(&self) -> bool {
        self.leaves_open.load(Ordering::Relaxed)
    }

    fn request(&self, keep_alive: bool) -> &[u8] {
        let [close, keep] = &self.requests;
        if keep_alive { keep } else { close }
    }

    /// An error, with whom it concerns.
    fn failed(&self, error: &std::io::Error, doing: &str) -> Failure {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let problem = match (tls, error.kind()) {
            (Some(_), _) => Problem::Tls,
            (_, ErrorKind::ConnectionRefused) => Problem::Refused,
            (_, ErrorKind::TimedOut | ErrorKind::WouldBlock) => Problem::Timeout,
            (
                _,
                ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
                | ErrorKind::NotConnected,
            ) => Problem::Reset,
            (_, ErrorKind::AddrNotAvailable) => Problem::Local,
            _ if matches!(error.raw_os_error(), Some(23 | 24)) => Problem::Local,
            _ => Problem::Other,
        };
        let said = match problem {
            Problem::Refused => format!("nothing listens on {}", self.address),
            Problem::Timeout => {
                format!("{}: no answer within {} s, {doing}", self.address, self.patience.as_secs_f64())
            }
            _ => {
                let untrusted = matches!(tls, Some(rustls::Error::InvalidCertificate(_)));
                let hint = if untrusted {
                    "; --ca FILE trusts its authority, --insecure takes any certificate"
                } else {
                    ""
                };
                format!("{}: {doing}: {error}{hint}", self.address)
            }
        };
        Failure { problem, said }
    }
}

/// Bytes, with a time by which they must have come.
#[derive(Debug)]
struct Wire {
    tcp: TcpStream,
    until: Instant,
    talk: Talk,
}

impl Wire {
    /// Whether there is no sense in waiting for more.
    fn late(&self) -> Result<(), std::io::Error> {
        if Instant::now() >= self.until || self.talk.stopping() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.tcp.read(buffer) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.late()?
                }
                // A server that sends a byte now and then does not get more time for it.
                Ok(read) if read > 0 => return self.late().map(|()| read),
                other => return other,
            }
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        loop {
            match self.tcp.write(buffer) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.late()?
                }
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.tcp.flush()
    }
}

#[derive(Debug)]
enum Stream {
    Plain(Wire),
    Tls(Box<StreamOwned<ClientConnection, Wire>>),
}

/// A connection to a target. TLS begins with the first request.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    target: &'a Target,
    stream: Stream,
}

impl<'a> Connection<'a> {
    pub(super) fn open(target: &'a Target, talk: &Talk) -> Result<Self, Failure> {
        let until = Instant::now() + target.patience;
        let failed = |error: std::io::Error| target.failed(&error, "connecting");
        let tcp = TcpStream::connect_timeout(&target.address, target.patience).map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        tcp.set_read_timeout(Some(GLANCE.min(target.patience))).map_err(failed)?;
        tcp.set_write_timeout(Some(GLANCE.min(target.patience))).map_err(failed)?;
        let wire = Wire { tcp, until, talk: talk.clone() };
        let stream = match &target.tls {
            None => Stream::Plain(wire),
            Some(tls) => {
                let connection = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())
                    .map_err(|error| Failure { problem: Problem::Tls, said: error.to_string() })?;
                Stream::Tls(Box::new(StreamOwned::new(connection, wire)))
            }
        };
        Ok(Self { target, stream })
    }

    /// Asks, and reads the answer. A status other than 200 to 299 is a failure.
    pub(super) fn ask(&mut self, keep_alive: bool, buffer: &mut [u8]) -> Result<Response, Failure> {
        let target = self.target;
        if keep_alive {
            self.wire().until = Instant::now() + target.patience;
        }
        self.write(target.request(keep_alive)).map_err(|error| self.failed(&error, "sending the request"))?;
        let mut reader = Reader::new();
        let response = loop {
            let read = match self.read(buffer) {
                Ok(read) => read,
                // Who ends without a close_notify may have cut the answer short: then it is for the length to tell.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                Err(error) => return Err(self.failed(&error, "waiting for the answer")),
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            let outcome = if read == 0 { reader.end().map(drop) } else { reader.feed(bytes).map(drop) };
            outcome.map_err(|error| self.malformed(error))?;
            if let Some(response) = reader.complete() {
                break response;
            }
        };
        if (200..300).contains(&response.status) {
            return Ok(response);
        }
        let leads =
            reader.location().map(|to| format!(", to {}; redirects are not followed", to.escape_debug()));
        Err(Failure {
            problem: Problem::Status,
            said: format!("{} answered {}{}", target.address, response.status, leads.unwrap_or_default()),
        })
    }

    /// Whether TLS resumed an earlier session.
    pub(super) fn resumed(&self) -> bool {
        matches!(&self.stream, Stream::Tls(tls) if tls.conn.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// Ends a connection whose answer has come. The server was asked to close it, and is waited for, so that it is the
    /// server that remembers the connection for a while (TIME-WAIT) and our port is free at once; a server that does not
    /// close gets a reset, which frees the port as well.
    pub(super) fn finish(mut self, buffer: &mut [u8]) {
        let target = self.target;
        let tcp = &mut self.wire().tcp;
        if !target.leaves_open() && tcp.set_read_timeout(Some(CLOSING)).is_ok() {
            for _ in 0..8 {
                match tcp.read(buffer) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        target.leaves_open.store(true, Ordering::Relaxed);
                        break;
                    }
                    Err(_) => return,
                }
            }
        }
        let _ = set_socket_linger(&*tcp, Some(Duration::ZERO));
    }

    fn wire(&mut self) -> &mut Wire {
        match &mut self.stream {
            Stream::Plain(wire) => wire,
            Stream::Tls(tls) => &mut tls.sock,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.stream {
            Stream::Plain(wire) => wire.write_all(bytes),
            Stream::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(wire) => wire.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }

    fn failed(&self, error: &std::io::Error, doing: &str) -> Failure {
        match &self.stream {
            Stream::Tls(tls) if tls.conn.is_handshaking() => {
                let mut failure = self.target.failed(error, "in the TLS handshake");
                if failure.problem == Problem::Reset {
                    failure.problem = Problem::Tls;
                }
                failure
            }
            _ => self.target.failed(error, doing),
        }
    }

    fn malformed(&self, error: BadResponse) -> Failure {
        let problem = if error == BadResponse::Short { Problem::Reset } else { Problem::NotHttp };
        Failure { problem, said: format!("{}: {error}", self.target.address) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use super::*;

    /// One connection to a server that answers so, byte by byte, and then closes or stays.
    fn against(
        answer: &'static [u8],
        stays: bool,
        tls: Option<Tls>,
    ) -> (Result<Response, Failure>, Duration) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let _ = stream.read(&mut request);
            for byte in answer {
                let _ = stream.write_all(&[*byte]);
            }
            if stays {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                while matches!(stream.read(&mut request), Ok(read) if read > 0) {}
            }
        });
        let target = Target::new(address, tls, "localhost", "/", Duration::from_millis(400));
        let talk = Talk::new(|_| {}, Arc::default());
        let mut buffer = vec![0; READ_BYTES];
        let began = Instant::now();
        let result = Connection::open(&target, &talk).and_then(|mut connection| {
            let response = connection.ask(false, &mut buffer)?;
            connection.finish(&mut buffer);
            // One that ends may be late on a busy machine, and is taken for one that stays.
            assert!(target.leaves_open() || !stays);
            Ok(response)
        });
        let took = began.elapsed();
        server.join().unwrap();
        (result, took)
    }

    fn unknown() -> Option<Tls> {
        let config = super::super::target::trusting(rustls::RootCertStore::empty(), false).unwrap();
        Some(Tls { config, name: ServerName::try_from("localhost").unwrap() })
    }

    #[test]
    fn answers_are_read_whichever_side_closes() {
        for stays in [false, true] {
            let (response, _) = against(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", stays, None);
            assert_eq!(response.unwrap().body, 2);
        }
        let (response, _) = against(b"HTTP/1.0 200 OK\r\n\r\nuntil the end", false, None);
        assert_eq!(response.unwrap().body, 13);
    }

    #[test]
    fn each_failure_has_its_kind_and_comes_in_time() {
        type Case = (&'static [u8], bool, Option<Tls>, Problem, &'static str);
        let cases: [Case; 8] = [
            (b"", true, None, Problem::Timeout, "no answer within 0.4 s"),
            (b"HTTP/1.1 200 OK\r\n", true, None, Problem::Timeout, "no answer"),
            (b"", false, None, Problem::Reset, "ended in the middle"),
            (b"SSH-2.0-x\r\n", false, None, Problem::NotHttp, "not an answer of HTTP"),
            (
                b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n",
                false,
                None,
                Problem::Status,
                "302, to http://x/",
            ),
            (b"", true, unknown(), Problem::Timeout, "TLS handshake"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, unknown(), Problem::Tls, "TLS handshake"),
            (b"", false, unknown(), Problem::Tls, "TLS handshake"),
        ];
        for (answer, stays, tls, problem, said) in cases {
            let (result, took) = against(answer, stays, tls);
            let failure = result.unwrap_err();
            assert_eq!(failure.problem, problem, "{failure}");
            assert!(failure.said.contains(said), "{failure}");
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }

    #[test]
    fn a_target_that_does_not_listen_is_said_with_the_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let target = Target::new(address, None, "localhost", "/", Duration::from_secs(1));
        let failure = Connection::open(&target, &Talk::new(|_| {}, Arc::default())).map(drop).unwrap_err();
        assert_eq!(
            (failure.problem, failure.said),
            (Problem::Refused, format!("nothing listens on {address}"))
        );
    }
}
