//! Connections to the server that is looked at: few, one after the other, and none without a bound.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sallyport_wire::tls_probe::{Answer, Hello, Reader, SSL_REQUEST, Unreadable};
use serde::Serialize;

use crate::{LabError, reach};

/// Longest line that a server of mail may greet with (RFC 5321 §4.5.3.1.5, and room for its extensions).
const LONGEST_GREETING: usize = 4096;

/// How TLS begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StartTls {
    /// At once.
    #[default]
    None,
    /// After PostgreSQL's SSLRequest.
    Postgres,
    /// After SMTP's STARTTLS (RFC 3207).
    Smtp,
    /// After IMAP's STARTTLS (RFC 9051 §6.2.1).
    Imap,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// No connection.
    #[error("cannot connect: {0}")]
    Refused(io::Error),
    /// No connection in time.
    #[error("no connection within {0:.1} s")]
    Unreachable(f64),
    /// It took the connection and said nothing, or not enough, in time.
    #[error("{} within {seconds:.1} s", if *.bytes == 0 { "no answer".to_owned() } else { format!("no complete answer, {bytes} bytes,") })]
    Silent {
        /// How long it was waited.
        seconds: f64,
        /// What came.
        bytes: usize,
    },
    /// It ended the connection without an answer.
    #[error("it ended the connection without an answer")]
    Ended,
    /// What it said cannot be understood.
    #[error("{0}")]
    Garbage(Unreadable),
    /// It does not change to TLS.
    #[error("{0}")]
    StartTls(String),
    /// As many connections as may be were made.
    #[error("{0} connections were made, and no more are allowed")]
    Enough(usize),
    /// The time for all of it is over.
    #[error("the {0} s for all of it are over")]
    Late(u64),
}

impl Trouble {
    /// Whether the server has, by not answering, answered: it does not take what it was offered.
    pub(crate) fn is_a_no(&self) -> bool {
        matches!(self, Self::Ended)
    }

    /// Whether nothing more can be asked.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Enough(_) | Self::Late(_) | Self::Refused(_) | Self::Unreachable(_))
    }
}

/// Bounds of a whole scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// For everything.
    pub(crate) deadline: Duration,
    /// For one connection, from the first packet to the last.
    pub(crate) patience: Duration,
    /// Between two connections.
    pub(crate) pause: Duration,
    /// Connections at most.
    pub(crate) connections: usize,
}

/// Makes the connections, and counts them.
#[derive(Debug)]
pub(crate) struct Caller {
    /// As it was named: `HOST:PORT`.
    pub(crate) address: String,
    /// The name or address alone.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    places: Vec<SocketAddr>,
    starttls: StartTls,
    bounds: Bounds,
    began: Instant,
    /// Connections made.
    pub(crate) made: usize,
    last: Option<Instant>,
}

impl Caller {
    /// Finds out where the server is, within the bounds: the time for everything begins here.
    ///
    /// # Errors
    /// [`LabError::Input`] for what is not `HOST:PORT`, [`LabError::Connection`] for a name that does not resolve in time.
    pub(crate) fn new(address: &str, starttls: StartTls, bounds: Bounds) -> Result<Self, LabError> {
        let wrong = || LabError::Input(format!("{address:?} is not HOST:PORT"));
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || port == 0 {
            return Err(wrong());
        }
        let began = Instant::now();
        let patience = bounds.patience.min(bounds.deadline);
        let late = || format!("{address}: the name did not resolve within {:.1} s", patience.as_secs_f64());
        let places =
            reach::resolve(&host, port, patience).ok_or_else(|| LabError::Connection(late()))?.map_err(
                |error| LabError::Connection(format!("{address}: the name does not resolve: {error}")),
            )?;
        if places.is_empty() {
            return Err(LabError::Connection(format!("{address}: the name has no address")));
        }
        let address = address.to_owned();
        Ok(Self { address, host, port, places, starttls, bounds, began, made: 0, last: None })
    }

    /// What is left of the time for everything.
    pub(crate) fn left(&self) -> Duration {
        self.bounds.deadline.saturating_sub(self.began.elapsed())
    }

    /// Since it began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A connection, ready for the first byte of whatever is spoken on it.
    pub(crate) fn dial(&mut self) -> Result<Line, Trouble> {
        if self.made >= self.bounds.connections {
            return Err(Trouble::Enough(self.made));
        }
        if let Some(last) = self.last {
            std::thread::sleep(self.bounds.pause.saturating_sub(last.elapsed()));
        }
        if self.left().is_zero() {
            return Err(Trouble::Late(self.bounds.deadline.as_secs()));
        }
        self.made += 1;
        let began = Instant::now();
        let until = began + self.bounds.patience.min(self.left());
        let connected = reach::connect(&self.places, until);
        self.last = Some(Instant::now());
        match connected {
            Ok(stream) => {
                // Small questions must not wait for each other.
                let _ = stream.set_nodelay(true);
                Ok(Line { stream, began: Instant::now(), until, read: 0, written: 0 })
            }
            Err(error) if is_late(&error) => Err(Trouble::Unreachable(began.elapsed().as_secs_f64())),
            Err(error) => Err(Trouble::Refused(error)),
        }
    }

    /// A connection on which TLS can begin.
    pub(crate) fn dial_tls(&mut self) -> Result<Line, Trouble> {
        let mut line = self.dial()?;
        match self.starttls {
            StartTls::None => {}
            StartTls::Postgres => line.ask_postgres()?,
            StartTls::Smtp => {
                line.ask_lines(&[("", "220"), ("EHLO lab.invalid\r\n", "250"), ("STARTTLS\r\n", "220")])?
            }
            StartTls::Imap => line.ask_lines(&[("", "* OK"), ("a STARTTLS\r\n", "a OK")])?,
        }
        // Bytes before TLS are none of TLS's.
        (line.read, line.written) = (0, 0);
        Ok(line)
    }

    /// Sends one ClientHello and reads the answer to its end.
    pub(crate) fn ask(&mut self, hello: &Hello) -> Result<Answer, Trouble> {
        let mut random = [0; 64];
        sallyport_sal::random::fill(&mut random)
            .map_err(|error| Trouble::Refused(io::Error::other(error.to_string())))?;
        let mut line = self.dial_tls()?;
        line.send(&hello.encode(&random))?;
        let mut reader = Reader::default();
        let mut buffer = [0; 16 * 1024];
        while !reader.is_over() {
            let read = match line.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if is_late(&error) && reader.answer().hello.is_none() => return Err(line.silent()),
                // What came before it broke off is an answer.
                Err(_) => break,
            };
            reader.read(buffer.get(..read).unwrap_or_default()).map_err(|error| match error {
                // The parser has the first bytes of a record; here is all that came with them.
                Unreadable::NotTls(_) => {
                    Trouble::Garbage(Unreadable::NotTls(shown(buffer.get(..read).unwrap_or_default())))
                }
                other => Trouble::Garbage(other),
            })?;
        }
        let answer = reader.into_answer();
        if answer.hello.is_none() && answer.alert.is_none() { Err(Trouble::Ended) } else { Ok(answer) }
    }
}

/// One connection, all of which is over within `patience`.
pub(crate) fn dial(address: &str, patience: Duration) -> Result<Line, LabError> {
    let bounds = Bounds { deadline: patience, patience, pause: Duration::ZERO, connections: 1 };
    Caller::new(address, StartTls::None, bounds)?
        .dial()
        .map_err(|trouble| LabError::Connection(format!("{address}: {trouble}")))
}

/// The first line of what a server said, for a terminal.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' };
    line.iter().take(60).map(shown).collect()
}

/// Whether a read or write took too long.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// One connection. All of it must be over in time, however the bytes are spread.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    began: Instant,
    until: Instant,
    /// Bytes that came.
    pub(crate) read: usize,
    /// Bytes that went.
    pub(crate) written: usize,
}

impl Line {
    /// Ends the wait earlier: so long from now at most.
    pub(crate) fn hurry(&mut self, patience: Duration) {
        self.until = self.until.min(Instant::now() + patience);
    }

    /// Begins the wait anew: so long from now.
    pub(crate) fn extend(&mut self, patience: Duration) {
        self.until = Instant::now() + patience;
    }

    /// That it took too long.
    pub(crate) fn silent(&self) -> Trouble {
        Trouble::Silent { seconds: self.began.elapsed().as_secs_f64(), bytes: self.read }
    }

    /// Writes all of it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.write_all(bytes).map_err(|error| if is_late(&error) { self.silent() } else { Trouble::Ended })
    }

    fn ask_postgres(&mut self) -> Result<(), Trouble> {
        self.send(&SSL_REQUEST)?;
        let mut answer = [0; 1];
        match self.read(&mut answer) {
            Ok(1) if answer == *b"S" => Ok(()),
            Ok(1) if answer == *b"N" => {
                Err(Trouble::StartTls("PostgreSQL takes no TLS here (ssl = off)".to_owned()))
            }
            Ok(0) => Err(Trouble::StartTls(
                "it ended the connection when asked for TLS as PostgreSQL is asked".to_owned(),
            )),
            Ok(_) => Err(Trouble::StartTls(format!(
                "it does not answer as PostgreSQL does but with {:?}",
                shown(&answer)
            ))),
            Err(error) if is_late(&error) => Err(self.silent()),
            Err(_) => Err(Trouble::Ended),
        }
    }

    /// Says each line and waits for an answer that begins so. Answers of several lines end with one that has a space
    /// behind the number (RFC 5321 §4.2.1).
    fn ask_lines(&mut self, talk: &[(&str, &str)]) -> Result<(), Trouble> {
        for (say, wanted) in talk {
            self.send(say.as_bytes())?;
            loop {
                let line = self.line()?;
                if line.starts_with(&format!("{wanted}-"))
                    || (wanted.starts_with("a ") && line.starts_with("* "))
                {
                    continue;
                }
                if !line.starts_with(wanted) {
                    return Err(Trouble::StartTls(format!(
                        "it answers {line:?} where {wanted:?} was expected"
                    )));
                }
                break;
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String, Trouble> {
        let mut line = Vec::new();
        let mut byte = [0; 1];
        while line.len() < LONGEST_GREETING {
            match self.read(&mut byte) {
                Ok(0) => return Err(Trouble::Ended),
                Ok(_) if byte == *b"\n" => return Ok(shown(&line)),
                Ok(_) => line.extend_from_slice(&byte),
                Err(error) if is_late(&error) => return Err(self.silent()),
                Err(_) => return Err(Trouble::Ended),
            }
        }
        Err(Trouble::StartTls("its greeting has no end".to_owned()))
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let read = self.stream.read(buffer)?;
        self.read += read;
        Ok(read)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_write_timeout(Some(left))?;
        let written = self.stream.write(bytes)?;
        self.written += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
