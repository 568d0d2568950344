//! What a program and the helper daemon say to each other over the socket: one request, its answer.
//!
//! A request is the magic `sally1`, one byte of kind, two of length (big endian) and a body; descriptors ride on its first byte.
//! The kind's highest bit says that the program can ask its person for a second factor. An answer begins with one byte; what follows
//! lasts until the socket is closed. Before the last answer, questions for the person may come, which have a length of their own.

use sallyport_client::demanded::Demanded;
use sallyport_client::error::{Error as ClientError, Kind};
use sallyport_wire::v1::SessionTarget;

use crate::error::Error;

/// Names the protocol and its version. A helper of another release is left alone, and a program that asks goes without it.
const MAGIC: &[u8; 6] = b"sally1";
/// Magic, kind and length.
pub(super) const HEAD_BYTES: usize = 9;
/// A login and a node's name fit many times over; a database's name and a client's first packet fit.
pub(super) const LONGEST_BODY: usize = 12 * 1024;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Connect the two descriptors that came along (input and output) to a node.
    Ssh {
        /// The node.
        node: String,
        /// The account there; empty where SSH itself says it.
        login: String,
    },
    /// Connect the two descriptors (of one socket) to the native listener of a node.
    Native {
        /// The node.
        node: String,
        /// The account there; empty where SSH itself says it.
        login: String,
    },
    /// Connect the two descriptors that came along (input and output), which speak SSH, to a node's native listener where
    /// it has one, and as they are where it has none.
    Relay {
        /// The node.
        node: String,
        /// The account there; empty where SSH itself says it.
        login: String,
    },
    /// Connect the two descriptors (of one socket) to a database. What was read of the client already goes first.
    Database {
        /// Its name in the cluster.
        name: String,
        /// What was read of the client.
        early: Vec<u8>,
    },
    /// Connect the two descriptors that came along (input and output) to a resource of the catalogue.
    Resource {
        /// Its kind, as documents have it.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Tell how it stands, as JSON.
    Status,
    /// Take no more; leave when what is open has ended.
    Stop,
}

/// Why bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("expected the magic {}, got something else", String::from_utf8_lossy(MAGIC))]
    Magic,
    #[error("the kind {0} is unknown")]
    Kind(u8),
    #[error("a body of {0} bytes, at most {LONGEST_BODY} are allowed")]
    Length(usize),
    #[error("the body is not what a request of its kind has: names with a zero byte between or after them")]
    Body,
}

const SSH: u8 = 1;
const STATUS: u8 = 2;
const STOP: u8 = 3;
const DATABASE: u8 = 4;
const NATIVE: u8 = 5;
const RELAY: u8 = 6;
const RESOURCE: u8 = 7;
/// With a kind: the program can ask its person.
const ASKS: u8 = 0x80;

impl Request {
    /// The bytes of a request of a program that can ask its person, or cannot; `None` when a name is longer than any can be.
    pub(super) fn encode(&self, asks: bool) -> Option<Vec<u8>> {
        let (kind, body) = match self {
            Self::Ssh { node, login } => (SSH, format!("{login}\0{node}").into_bytes()),
            Self::Native { node, login } => (NATIVE, format!("{login}\0{node}").into_bytes()),
            Self::Relay { node, login } => (RELAY, format!("{login}\0{node}").into_bytes()),
            Self::Database { name, early } => (DATABASE, [name.as_bytes(), b"\0", early.as_slice()].concat()),
            Self::Resource { kind, name } => (RESOURCE, format!("{kind}\0{name}").into_bytes()),
            Self::Status => (STATUS, Vec::new()),
            Self::Stop => (STOP, Vec::new()),
        };
        let length = u16::try_from(body.len()).ok().filter(|length| usize::from(*length) <= LONGEST_BODY)?;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.push(if asks { kind | ASKS } else { kind });
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&body);
        Some(bytes)
    }

    /// Reads a request from the bytes so far, and whether its program can ask a person; `None` while some are missing.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Self, bool)>, Malformed> {
        let known = bytes.len().min(MAGIC.len());
        if bytes.get(..known) != MAGIC.get(..known) {
            return Err(Malformed::Magic);
        }
        let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
        let &[.., kind, high, low] = head else { return Err(Malformed::Magic) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > LONGEST_BODY {
            return Err(Malformed::Length(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        Self::read(kind & !ASKS, body).map(|request| Some((request, kind & ASKS != 0)))
    }

    fn read(kind: u8, body: &[u8]) -> Result<Self, Malformed> {
        match kind {
            SSH | NATIVE | RELAY | RESOURCE => {
                let text = std::str::from_utf8(body).map_err(|_| Malformed::Body)?;
                let (login, node) = text.split_once('\0').ok_or(Malformed::Body)?;
                if node.is_empty() || node.contains('\0') {
                    return Err(Malformed::Body);
                }
                let (node, login) = (node.to_owned(), login.to_owned());
                Ok(match kind {
                    SSH => Self::Ssh { node, login },
                    NATIVE => Self::Native { node, login },
                    RESOURCE if !login.is_empty() => Self::Resource { kind: login, name: node },
                    RESOURCE => return Err(Malformed::Body),
                    _ => Self::Relay { node, login },
                })
            }
            DATABASE => {
                let end = body.iter().position(|byte| *byte == 0).ok_or(Malformed::Body)?;
                let (name, early) = body.split_at_checked(end).ok_or(Malformed::Body)?;
                let name = std::str::from_utf8(name).map_err(|_| Malformed::Body)?;
                if name.is_empty() {
                    return Err(Malformed::Body);
                }
                let early = early.get(1..).unwrap_or_default().to_vec();
                Ok(Self::Database { name: name.to_owned(), early })
            }
            STATUS => Ok(Self::Status),
            STOP => Ok(Self::Stop),
            other => Err(Malformed::Kind(other)),
        }
    }
}

/// The first byte of an answer.
pub(super) mod answer {
    /// The helper has the descriptors and the login. Until this, nothing was read from the input.
    pub(crate) const TAKEN: u8 = b'T';
    /// After [`TAKEN`]: the node is proven, and the program may speak.
    pub(crate) const READY: u8 = b'R';
    /// After [`TAKEN`]: the node knows SSH alone. Nothing was read from the input.
    pub(crate) const SSH_ALONE: u8 = b'N';
    /// After [`TAKEN`]: a question for the program's person follows, with its length in four bytes before it.
    pub(crate) const ASKED: u8 = b'A';
    /// The question before is over.
    pub(crate) const OVER: u8 = b'O';
    /// Not by this helper: connect without it.
    pub(crate) const DIRECT: u8 = b'D';
    /// The connection has ended as it should.
    pub(crate) const ENDED: u8 = b'E';
    /// It failed; how follows.
    pub(crate) const FAILED: u8 = b'F';
    /// The answer to a question about the helper itself follows.
    pub(crate) const SAID: u8 = b'S';
}

/// The exit code of a program that ends by an error of a kind. It goes over the socket.
fn number(kind: Kind) -> u8 {
    match kind {
        Kind::Failed => 1,
        Kind::Usage => 2,
        Kind::NotLoggedIn => 3,
        Kind::Refused => 4,
        Kind::Connection => 255,
    }
}

fn kind_of(number: u8) -> Kind {
    let known = [Kind::Usage, Kind::NotLoggedIn, Kind::Refused, Kind::Connection];
    known.into_iter().find(|kind| self::number(*kind) == number).unwrap_or(Kind::Failed)
}

/// An error as it goes over the socket: exit code, what went wrong, what to try; and, where a second factor would do, which and for
/// what. A zero byte is between them.
pub(super) fn encode_error(error: &Error) -> Vec<u8> {
    let mut parts = vec![error.told(), error.advice().unwrap_or_default()];
    if let Some(Demanded { target, hardware }) = error.demanded() {
        let demand = if hardware { HARDWARE } else { ANY_FACTOR };
        parts.extend([demand.to_owned(), target.kind, target.resource, target.account]);
    }
    let mut bytes = vec![answer::FAILED, number(error.kind())];
    bytes.extend_from_slice(parts.join("\0").as_bytes());
    bytes
}

const HARDWARE: &str = "hardware";
const ANY_FACTOR: &str = "yes";

/// The error behind [`answer::FAILED`].
pub(super) fn decode_error(bytes: &[u8]) -> ClientError {
    let (exit, text) = bytes.split_first().unwrap_or((&0, &[]));
    let text = String::from_utf8_lossy(text);
    let mut parts = text.split('\0').map(str::to_owned);
    let what = parts.next().unwrap_or_default();
    let advice = parts.next().filter(|advice| !advice.is_empty());
    let demanded = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(demand), Some(kind), Some(resource), Some(account)) => {
            let target = SessionTarget { kind, resource, account, db_name: String::new() };
            Some(Box::new(Demanded { target, hardware: demand == HARDWARE }))
        }
        _ => None,
    };
    ClientError::Relayed { what, advice, kind: kind_of(*exit), demanded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way_however_they_are_split() {
        let ssh = Request::Ssh { node: "web-1.example.com".to_owned(), login: "root".to_owned() };
        let unnamed = Request::Ssh { node: "web-1".to_owned(), login: String::new() };
        let database = Request::Database { name: "prod".to_owned(), early: b"\0\0\0\x08\x04\xd2".to_vec() };
        let bare = Request::Database { name: "prod".to_owned(), early: Vec::new() };
        let native = Request::Native { node: "web-1".to_owned(), login: "root".to_owned() };
        let relay = Request::Relay { node: "web-1".to_owned(), login: "root".to_owned() };
        let resource = Request::Resource { kind: "thing".to_owned(), name: "one".to_owned() };
        for request in [ssh, unnamed, native, relay, database, bare, resource, Request::Status, Request::Stop]
        {
            for asks in [false, true] {
                let bytes = request.encode(asks).unwrap();
                for end in 0..bytes.len() {
                    assert_eq!(Request::decode(&bytes[..end]), Ok(None), "{end} of {}", bytes.len());
                }
                assert_eq!(Request::decode(&bytes), Ok(Some((request.clone(), asks))));
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let with = |kind: u8, body: &[u8]| {
            let length = u16::try_from(body.len()).unwrap();
            Request::decode(&[b"sally1", &[kind][..], &length.to_be_bytes(), body].concat())
        };
        assert_eq!(Request::decode(b"SSH-2.0-x"), Err(Malformed::Magic));
        assert_eq!(Request::decode(b"sally2"), Err(Malformed::Magic));
        assert_eq!(with(9, b""), Err(Malformed::Kind(9)));
        assert_eq!(with(SSH, b"root"), Err(Malformed::Body));
        assert_eq!(with(SSH, b"root\0"), Err(Malformed::Body));
        assert_eq!(with(SSH, b"root\0a\0b"), Err(Malformed::Body));
        assert_eq!(with(SSH, b"\xff\0a"), Err(Malformed::Body));
        assert_eq!(with(DATABASE, b"prod"), Err(Malformed::Body));
        assert_eq!(with(RESOURCE, b"one"), Err(Malformed::Body));
        assert_eq!(with(RESOURCE, b"\0one"), Err(Malformed::Body));
        assert_eq!(with(DATABASE, b"\0prod"), Err(Malformed::Body));
        assert_eq!(Request::decode(b"sally1\x01\xff\xff"), Err(Malformed::Length(65535)));
        let long = Request::Ssh { node: "x".repeat(LONGEST_BODY), login: "y".to_owned() };
        assert_eq!(long.encode(false), None);
    }

    #[test]
    fn errors_keep_words_and_exit_code() {
        for error in [
            Error::from(ClientError::NoDatabase("x".to_owned())),
            Error::CannotWait("a file".to_owned()),
            Error::Lost { why: None },
        ] {
            let bytes = encode_error(&error);
            let back = decode_error(&bytes[1..]);
            assert_eq!(
                (back.told(), back.advice(), back.kind()),
                (error.told(), error.advice(), error.kind())
            );
            assert_eq!(back.demanded(), None);
        }
        let target = SessionTarget {
            kind: "node".to_owned(),
            resource: "web-1".to_owned(),
            account: "root".to_owned(),
            db_name: String::new(),
        };
        let demanded = Demanded { target, hardware: true };
        let error = ClientError::FactorWanted { demanded: Box::new(demanded.clone()) };
        let back = decode_error(&encode_error(&error.into())[1..]);
        assert_eq!(back.demanded(), Some(demanded));
    }
}
