//! As little of a PostgreSQL client as it takes: connect with TLS, ask, go. It blocks, and costs little beside what is
//! measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use sallyport_sal::tls::rustls::pki_types::ServerName;
use sallyport_sal::tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::LabError;

/// SSLRequest (PostgreSQL, Message Formats): the length and a number that is no version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// Version 3.0.
const VERSION: [u8; 4] = [0, 3, 0, 0];
/// A server that says nothing for so long does not answer any more. The published architecture makes keys meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// One message of a COPY: what psql sends, too.
const READ_BYTES: usize = 64 << 10;

/// Where a client goes, and as whom.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// On loopback.
    pub address: SocketAddr,
    /// None: in plain text, to a local listener.
    pub tls: Option<Tls>,
    /// Parameters of the startup message, in pairs.
    pub parameters: Vec<(&'static str, String)>,
}

/// How TLS begins.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    /// Without resumption: every connection is a new one.
    pub config: Arc<ClientConfig>,
    /// Whom to expect.
    pub name: ServerName<'static>,
    /// Ask for TLS first, as PostgreSQL before 17 demands; else begin with it.
    pub ask: bool,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A connection that is ready for queries.
#[derive(Debug)]
pub(super) struct Client {
    stream: Stream,
    /// Bytes that were read and not yet looked at.
    buffer: Vec<u8>,
    at: usize,
}

impl Client {
    /// Connects and logs in.
    pub(super) fn connect(route: &Route) -> Result<Self, LabError> {
        let mut tcp = TcpStream::connect(route.address).map_err(lost)?;
        tcp.set_nodelay(true).map_err(lost)?;
        tcp.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
        tcp.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
        let stream = match &route.tls {
            None => Stream::Plain(tcp),
            Some(tls) => {
                if tls.ask {
                    tcp.write_all(&SSL_REQUEST).map_err(lost)?;
                    let mut answer = [0];
                    tcp.read_exact(&mut answer).map_err(lost)?;
                    if answer != *b"S" {
                        return Err(LabError::Connection(format!(
                            "the server answered {} to a request for TLS",
                            answer.escape_ascii()
                        )));
                    }
                }
                let connection =
                    ClientConnection::new(Arc::clone(&tls.config), tls.name.clone()).map_err(lost)?;
                Stream::Tls(Box::new(StreamOwned::new(connection, tcp)))
            }
        };
        let mut client = Self { stream, buffer: Vec::new(), at: 0 };
        client.write(&startup(&route.parameters))?;
        client.until_ready()?;
        Ok(client)
    }

    /// Runs a simple query and gives the number of its rows.
    pub(super) fn query(&mut self, statement: &str) -> Result<usize, LabError> {
        self.write(&message(b'Q', &[statement.as_bytes(), b"\0"]))?;
        self.until_ready().map(|counts| counts.rows)
    }

    /// Runs `COPY ... TO STDOUT` and gives the bytes that came.
    pub(super) fn copy_out(&mut self, statement: &str) -> Result<u64, LabError> {
        self.write(&message(b'Q', &[statement.as_bytes(), b"\0"]))?;
        self.until_ready().map(|counts| counts.copied)
    }

    /// Runs `COPY ... FROM STDIN` with so many of these chunks.
    pub(super) fn copy_in(&mut self, statement: &str, chunk: &[u8], chunks: u64) -> Result<u64, LabError> {
        self.write(&message(b'Q', &[statement.as_bytes(), b"\0"]))?;
        loop {
            let (kind, body) = self.next()?;
            match kind {
                b'G' => break,
                b'E' => return Err(refused(&body)),
                _ => {}
            }
        }
        let data = message(b'd', &[chunk]);
        for _ in 0..chunks {
            self.write(&data)?;
        }
        self.write(&message(b'c', &[]))?;
        self.until_ready()?;
        Ok(chunks * chunk.len() as u64)
    }

    /// Says good-bye.
    pub(super) fn terminate(mut self) -> Result<(), LabError> {
        self.write(&message(b'X', &[]))?;
        if let Stream::Tls(tls) = &mut self.stream {
            tls.conn.send_close_notify();
            // The server may be gone already.
            let _ = tls.flush();
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LabError> {
        match &mut self.stream {
            Stream::Plain(tcp) => tcp.write_all(bytes),
            Stream::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
        .map_err(lost)
    }

    /// Reads up to ReadyForQuery.
    fn until_ready(&mut self) -> Result<Counts, LabError> {
        let mut counts = Counts::default();
        let mut error = None;
        loop {
            let (kind, body) = self.next()?;
            match kind {
                b'Z' => return error.map_or(Ok(counts), Err),
                b'D' => counts.rows += 1,
                b'd' => counts.copied += body.len() as u64,
                // Before the session began, no ReadyForQuery follows; the next read says that it is over.
                b'E' => error = error.or(Some(refused(&body))),
                b'R' if body.get(..4) != Some(&[0; 4]) => {
                    return Err(LabError::Connection("the server asks for a password".to_owned()));
                }
                _ => {}
            }
            if error.is_some() && self.ended() {
                return Err(error.unwrap_or_else(|| LabError::Connection(String::new())));
            }
        }
    }

    /// Whether nothing comes any more.
    fn ended(&mut self) -> bool {
        self.at == self.buffer.len() && !matches!(self.fill(), Ok(read) if read > 0)
    }

    /// The next message.
    fn next(&mut self) -> Result<(u8, Vec<u8>), LabError> {
        loop {
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            if let Some((head, tail)) = rest.split_first_chunk::<5>() {
                let [kind, length @ ..] = *head;
                let length = (u32::from_be_bytes(length) as usize).saturating_sub(4);
                if let Some(body) = tail.get(..length) {
                    // Row data is counted, not kept; the copy is small beside the decryption.
                    let body = body.to_vec();
                    self.at += 5 + length;
                    return Ok((kind, body));
                }
            }
            if self.fill()? == 0 {
                return Err(LabError::Connection("the server ended the connection".to_owned()));
            }
        }
    }

    fn fill(&mut self) -> Result<usize, LabError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let have = self.buffer.len();
        self.buffer.resize(have + READ_BYTES, 0);
        let room = self.buffer.get_mut(have..).unwrap_or_default();
        let read = match &mut self.stream {
            Stream::Plain(tcp) => tcp.read(room),
            Stream::Tls(tls) => tls.read(room),
        };
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        read.map_err(lost)
    }
}

#[derive(Debug, Default)]
struct Counts {
    rows: usize,
    copied: u64,
}

fn startup(parameters: &[(&'static str, String)]) -> Vec<u8> {
    let mut body = VERSION.to_vec();
    for (name, value) in parameters {
        for text in [*name, value] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap_or_default();
    [&length.to_be_bytes()[..], &body].concat()
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    let length = u32::try_from(length).unwrap_or_default().to_be_bytes();
    let mut message = vec![kind];
    message.extend_from_slice(&length);
    for part in parts {
        message.extend_from_slice(part);
    }
    message
}

/// What an ErrorResponse says: its fields M (message) and C (SQLSTATE).
fn refused(body: &[u8]) -> LabError {
    let field = |wanted: u8| {
        body.split(|byte| *byte == 0)
            .find_map(|field| field.split_first().filter(|(kind, _)| **kind == wanted))
            .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
            .unwrap_or_default()
    };
    LabError::Connection(format!("the database refused: {} ({})", field(b'M'), field(b'C')))
}

fn lost(error: impl std::fmt::Display) -> LabError {
    LabError::Connection(format!("a connection of the load failed: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use super::*;

    fn against(answers: &'static [u8]) -> Result<usize, LabError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // A byte at a time: messages arrive in any pieces.
            for byte in answers {
                stream.write_all(&[*byte]).unwrap();
            }
            let mut rest = Vec::new();
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = stream.read_to_end(&mut rest);
        });
        let route = Route { address, tls: None, parameters: vec![("user", "lab".to_owned())] };
        let result = Client::connect(&route).and_then(|mut client| {
            let rows = client.query("SELECT 1")?;
            client.terminate()?;
            Ok(rows)
        });
        server.join().unwrap();
        result
    }

    #[test]
    fn a_query_is_asked_and_rows_are_counted() {
        let rows = against(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05ID\0\0\0\x06\0\0D\0\0\0\x06\0\0Z\0\0\0\x05I");
        assert_eq!(rows.unwrap(), 2);
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let refused = against(b"E\0\0\0\x14C28000\0Mno way\0\0").unwrap_err().to_string();
        assert!(refused.contains("no way (28000)"), "{refused}");
    }

    #[test]
    fn startup_says_what_the_protocol_wants() {
        let bytes = startup(&[("user", "a".to_owned())]);
        assert_eq!(bytes, b"\0\0\0\x10\0\x03\0\0user\0a\0\0");
    }
}
