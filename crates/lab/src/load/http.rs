//! Answers of HTTP/1.1 servers, read as they come: how long they are and where they end. What is in them is not kept.
//!
//! The server may be anyone's, so every length is bounded.

/// Longest head of an answer: what servers and clients commonly allow.
const HEAD_BYTES: usize = 16 << 10;
/// Most headers.
const HEADERS: usize = 96;
/// Longest line with a chunk's size, or line of a trailer.
const LINE_BYTES: usize = 4 << 10;
/// Longest body: a load of larger ones measures the memory bus.
const BODY_BYTES: u64 = 1 << 30;
/// Most interim answers (RFC 9110 §15.2) before the real one.
const INTERIM: usize = 8;

/// Why an answer is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadResponse {
    /// It does not begin as HTTP/1 does.
    #[error("this is not an answer of HTTP/1")]
    NotHttp,
    /// The head does not end.
    #[error("the head of the answer is longer than {HEAD_BYTES} bytes, or has more than {HEADERS} headers")]
    LongHead,
    /// The server switches to another protocol, or says nothing but interim answers.
    #[error("the server gives interim answers and no final one")]
    Interim,
    /// Its length is no number, two numbers, or too large.
    #[error("the length of the answer is not a number up to {BODY_BYTES}")]
    Length,
    /// Its body is coded in a way that was not asked for.
    #[error("the body has a transfer coding that is not chunked")]
    Coding,
    /// A chunk has no size, or does not end where it should.
    #[error("the chunks of the body are malformed")]
    Chunk,
    /// The connection ended before the answer did.
    #[error("the connection ended in the middle of an answer")]
    Short,
}

/// A whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// Bytes of the body.
    pub body: u64,
    /// Whether another request may follow on this connection.
    pub keep_alive: bool,
}

/// Reads one answer to a GET. It takes bytes in any pieces and stops at the answer's end.
#[derive(Debug)]
pub struct Reader {
    state: State,
    /// The head, or a line, until it is complete.
    text: Vec<u8>,
    interim: usize,
    status: u16,
    keep_alive: bool,
    body: u64,
    location: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes are missing.
    Fixed(u64),
    ChunkSize,
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    Trailer,
    UntilClose,
    Done,
    Broken(BadResponse),
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// For the next answer.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::Head,
            text: Vec::new(),
            interim: 0,
            status: 0,
            keep_alive: false,
            body: 0,
            location: None,
        }
    }

    /// Takes bytes up to the end of the answer, and says how many it took: fewer than there are when it is complete.
    ///
    /// # Errors
    /// [`BadResponse`], which is final.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, BadResponse> {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != State::Done {
            let taken = self.step(rest).inspect_err(|error| self.state = State::Broken(*error))?;
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(bytes.len() - rest.len())
    }

    /// The answer, when it is complete.
    #[must_use]
    pub fn complete(&self) -> Option<Response> {
        (self.state == State::Done).then_some(Response {
            status: self.status,
            body: self.body,
            keep_alive: self.keep_alive,
        })
    }

    /// The connection ended: so does an answer without a length.
    ///
    /// # Errors
    /// [`BadResponse::Short`] when something is missing, or what was wrong before.
    pub fn end(&mut self) -> Result<Response, BadResponse> {
        match self.state {
            State::Broken(error) => return Err(error),
            State::UntilClose => self.state = State::Done,
            _ => {}
        }
        self.complete().ok_or(BadResponse::Short)
    }

    /// Where a redirect leads, when this is one.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }

    /// Takes something of what is not empty.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, BadResponse> {
        match self.state {
            State::Head => self.head(bytes),
            State::Fixed(missing) => {
                let (taken, missing) = part(missing, bytes);
                self.count(taken)?;
                self.state = if missing == 0 { State::Done } else { State::Fixed(missing) };
                Ok(taken)
            }
            State::ChunkSize => self.line(bytes, Self::chunk_size),
            State::Chunk(missing) => {
                let (taken, missing) = part(missing, bytes);
                self.count(taken)?;
                self.state = if missing == 0 { State::ChunkEnd } else { State::Chunk(missing) };
                Ok(taken)
            }
            State::ChunkEnd => self.line(bytes, |reader, line| {
                reader.state = State::ChunkSize;
                if line.is_empty() { Ok(()) } else { Err(BadResponse::Chunk) }
            }),
            State::Trailer => self.line(bytes, |reader, line| {
                reader.interim += 1;
                if reader.interim > HEADERS {
                    return Err(BadResponse::LongHead);
                }
                if line.is_empty() {
                    reader.state = State::Done;
                }
                Ok(())
            }),
            State::UntilClose => {
                self.count(bytes.len())?;
                Ok(bytes.len())
            }
            State::Done => Ok(0),
            State::Broken(error) => Err(error),
        }
    }

    fn count(&mut self, taken: usize) -> Result<(), BadResponse> {
        self.body += taken as u64;
        if self.body > BODY_BYTES { Err(BadResponse::Length) } else { Ok(()) }
    }

    /// Collects a line, however it is cut, and gives it to `then` without its end.
    fn line(
        &mut self,
        bytes: &[u8],
        then: impl FnOnce(&mut Self, &[u8]) -> Result<(), BadResponse>,
    ) -> Result<usize, BadResponse> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        if self.text.len() + taken > LINE_BYTES {
            return Err(BadResponse::Chunk);
        }
        self.text.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        if end.is_some() {
            let line = std::mem::take(&mut self.text);
            let line = line.strip_suffix(b"\r\n").ok_or(BadResponse::Chunk)?;
            then(self, line)?;
        }
        Ok(taken)
    }

    /// RFC 9112 §7.1: hexadecimal digits, then extensions that mean nothing to us.
    fn chunk_size(&mut self, line: &[u8]) -> Result<(), BadResponse> {
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, extensions) = line.split_at_checked(digits).ok_or(BadResponse::Chunk)?;
        if !matches!(extensions.first(), None | Some(b';' | b' ' | b'\t')) {
            return Err(BadResponse::Chunk);
        }
        let text = std::str::from_utf8(digits).map_err(|_| BadResponse::Chunk)?;
        let size = u64::from_str_radix(text, 16).map_err(|_| BadResponse::Chunk)?;
        if size > BODY_BYTES {
            return Err(BadResponse::Length);
        }
        self.interim = 0;
        self.state = if size == 0 { State::Trailer } else { State::Chunk(size) };
        Ok(())
    }

    fn head(&mut self, bytes: &[u8]) -> Result<usize, BadResponse> {
        let before = self.text.len();
        let room = bytes.len().min(HEAD_BYTES - before);
        self.text.extend_from_slice(bytes.get(..room).unwrap_or_default());
        let text = std::mem::take(&mut self.text);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Response::new(&mut headers);
        match parsed.parse(&text) {
            Ok(httparse::Status::Complete(length)) => {
                self.begin(&parsed)?;
                // What was collected before did not complete the head, so at least one of the new bytes belongs to it.
                Ok(length.saturating_sub(before))
            }
            Ok(httparse::Status::Partial) if text.len() >= HEAD_BYTES => Err(BadResponse::LongHead),
            Ok(httparse::Status::Partial) => {
                self.text = text;
                Ok(room)
            }
            Err(httparse::Error::TooManyHeaders) => Err(BadResponse::LongHead),
            Err(_) => Err(BadResponse::NotHttp),
        }
    }

    /// What the head says of what follows (RFC 9112 §6.3).
    fn begin(&mut self, head: &httparse::Response<'_, '_>) -> Result<(), BadResponse> {
        self.status = head.code.ok_or(BadResponse::NotHttp)?;
        if (100..200).contains(&self.status) {
            self.interim += 1;
            return if self.status == 101 || self.interim > INTERIM {
                Err(BadResponse::Interim)
            } else {
                Ok(())
            };
        }
        let named = |name: &'static str| {
            head.headers
                .iter()
                .filter(move |header| header.name.eq_ignore_ascii_case(name))
                .map(|header| header.value)
        };
        let connection = |wanted| named("connection").any(|value| has_token(value, wanted));
        self.keep_alive =
            if head.version == Some(1) { !connection("close") } else { connection("keep-alive") };
        self.location = named("location").next().map(|value| String::from_utf8_lossy(value).into_owned());
        let mut length = None;
        for value in named("content-length") {
            let number = decimal(value).ok_or(BadResponse::Length)?;
            if length.is_some_and(|other| other != number) || number > BODY_BYTES {
                return Err(BadResponse::Length);
            }
            length = Some(number);
        }
        let mut codings = named("transfer-encoding");
        self.state = match (codings.next(), length) {
            _ if matches!(self.status, 204 | 304) => State::Done,
            (Some(coding), _) => {
                if codings.next().is_some() || !coding.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(BadResponse::Coding);
                }
                // With a length besides, a proxy in between may read it otherwise (RFC 9112 §6.1).
                self.keep_alive &= length.is_none();
                State::ChunkSize
            }
            (None, Some(0)) => State::Done,
            (None, Some(length)) => State::Fixed(length),
            (None, None) => {
                self.keep_alive = false;
                State::UntilClose
            }
        };
        Ok(())
    }
}

/// How many of these bytes belong to what misses so many, and how many are missing then.
fn part(missing: u64, bytes: &[u8]) -> (usize, u64) {
    let taken = usize::try_from(missing).unwrap_or(usize::MAX).min(bytes.len());
    (taken, missing - taken as u64)
}

fn has_token(value: &[u8], wanted: &str) -> bool {
    value.split(|byte| *byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
}

/// Digits and nothing else: `+5` and `5, 5` are no lengths.
fn decimal(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> (Result<usize, BadResponse>, Reader) {
        let mut reader = Reader::new();
        (reader.feed(bytes), reader)
    }

    /// The same bytes in pieces.
    fn read_in_pieces(bytes: &[u8], pieces: &[usize]) -> (Result<usize, BadResponse>, Reader) {
        let mut reader = Reader::new();
        let (mut at, mut turn) = (0, 0);
        while at < bytes.len() && reader.complete().is_none() {
            let length =
                pieces.get(turn % pieces.len().max(1)).copied().unwrap_or(1).clamp(1, bytes.len() - at);
            turn += 1;
            match reader.feed(&bytes[at..at + length]) {
                Ok(taken) => at += taken,
                Err(error) => return (Err(error), reader),
            }
        }
        (Ok(at), reader)
    }

    const ANSWERS: [&[u8]; 7] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 500 ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nrest",
        b"HTTP/1.0 404 Not Found\r\nConnection: close\r\n\r\nbody until the end",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nnext",
        b"HTTP/1.1 301 Moved\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\nConnection: Keep-Alive, close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ];

    #[test]
    fn answers_end_where_they_say() {
        let (taken, reader) = read(ANSWERS[0]);
        assert_eq!(taken, Ok(ANSWERS[0].len() - "HTTP/1.1 500 ".len()));
        assert_eq!(reader.complete(), Some(Response { status: 200, body: 5, keep_alive: true }));
        let (taken, reader) = read(ANSWERS[1]);
        assert_eq!(taken, Ok(ANSWERS[1].len() - 4));
        assert_eq!(reader.complete(), Some(Response { status: 200, body: 15, keep_alive: true }));
        let (_, mut reader) = read(ANSWERS[2]);
        assert_eq!(reader.complete(), None);
        assert_eq!(reader.end(), Ok(Response { status: 404, body: 18, keep_alive: false }));
        let (_, reader) = read(ANSWERS[3]);
        assert_eq!(reader.complete(), Some(Response { status: 204, body: 0, keep_alive: true }));
        let (_, reader) = read(ANSWERS[4]);
        assert_eq!(reader.complete().unwrap().status, 301);
        assert!(!reader.complete().unwrap().keep_alive);
        assert_eq!(reader.location(), Some("https://elsewhere/"));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let with = |headers: &str| format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n").into_bytes();
        let long = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'a'; HEAD_BYTES]].concat();
        let many = "X: y\r\n".repeat(HEADERS + 1);
        for (bytes, error) in [
            (ANSWERS[5].to_vec(), BadResponse::NotHttp),
            (b"\x15\x03\x01\x00\x02\x02\x46".to_vec(), BadResponse::NotHttp),
            (ANSWERS[6].to_vec(), BadResponse::Chunk),
            (long, BadResponse::LongHead),
            (with(many.trim_end()), BadResponse::LongHead),
            (with("Content-Length: -1"), BadResponse::Length),
            (with("Content-Length: +1"), BadResponse::Length),
            (with("Content-Length: 18446744073709551616"), BadResponse::Length),
            (with("Content-Length: 1073741825"), BadResponse::Length),
            (with("Content-Length: 5\r\nContent-Length: 6"), BadResponse::Length),
            (with("Transfer-Encoding: gzip"), BadResponse::Coding),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n".to_vec(),
                BadResponse::Length,
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n".to_vec(),
                BadResponse::Chunk,
            ),
            (b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec(), BadResponse::Interim),
            (b"HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM + 1), BadResponse::Interim),
        ] {
            let (result, mut reader) = read(&bytes);
            assert_eq!(result, Err(error), "{}", bytes.escape_ascii());
            // The first error is final.
            assert_eq!((reader.feed(b"HTTP/1.1 200 OK\r\n\r\n"), reader.end()), (Err(error), Err(error)));
        }
        let (_, mut reader) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
        assert_eq!(reader.end(), Err(BadResponse::Short));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            answer in 0..ANSWERS.len(),
            noise in proptest::collection::vec(any::<u8>(), 0..40),
            at in any::<prop::sample::Index>(),
            pieces in proptest::collection::vec(1_usize..30, 1..20),
        ) {
            let mut bytes = ANSWERS[answer].to_vec();
            let at = at.index(bytes.len());
            bytes.splice(at..at, noise);
            let (whole, mut one) = read(&bytes);
            let (cut, mut other) = read_in_pieces(&bytes, &pieces);
            prop_assert_eq!(whole, cut);
            prop_assert_eq!(one.end(), other.end());
        }
    }
}
