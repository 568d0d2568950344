//! The bytes of the native protocol.
//!
//! Every frame has a head of eight bytes: type (1), length of what follows the head (3), channel (4), big endian. Channel 0
//! is the connection itself. What a frame carries is in `fields`' encoding, but for data, which is only itself.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::fields::{Reader, Unreadable, Write, shorten};
pub use super::open::Open;
use super::open::{endpoint, open, put_endpoint, put_open, put_size, size};
use crate::client::Endpoint;
use crate::session::Size;

/// The protocol that this is, for hello and welcome.
pub const VERSION: u16 = 1;
/// Bytes of a frame's head.
pub const HEAD: usize = 8;
/// Longest payload of a data frame: few frames for bulk, and no channel holds the line for long.
pub const MAX_DATA: usize = 64 * 1024;
/// Longest payload of a frame that opens a channel: a command line and an environment, as long as Linux takes them.
pub const MAX_OPEN: usize = 256 * 1024;
/// Longest payload of any other frame, and of one that is not known.
pub const MAX_CONTROL: usize = 16 * 1024;
/// Longest text that says why something ends, in bytes. What is longer is cut.
pub const MAX_REASON: usize = 4 * 1024;
/// What may be sent on a new channel before anything is heard of it, in bytes.
pub const FIRST_WINDOW: u32 = 128 * 1024;
/// Frames of types from this on that are not known are passed over; others end the connection.
pub const SKIPPED_FROM: u8 = 0x80;
/// Payloads shorter than this are copied out of the receive buffer rather than keeping all of it alive.
const COPY_BELOW: usize = 4 * 1024;
/// What a hello begins with, so that a stream that is something else is known at once.
const MAGIC: u32 = 0x5350_4e53;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The client's first.
    Hello(Hello),
    /// The node's first: the version that it speaks on this connection.
    Welcome {
        /// At most what the client has offered.
        version: u16,
    },
    /// The connection is over.
    Goodbye {
        /// What that means for the other side.
        why: Farewell,
        /// For a person.
        reason: String,
    },
    /// To be answered with the same number.
    Ping(u64),
    /// The answer.
    Pong(u64),
    /// The client asks the node to listen for it.
    Listen {
        /// By which the answer names it.
        request: u32,
        /// Where.
        at: Endpoint,
    },
    /// The node listens.
    Listening {
        /// The question.
        request: u32,
        /// The port, as allocated; 0 for a socket.
        port: u16,
    },
    /// It does not.
    NotListening {
        /// The question.
        request: u32,
        /// For a person.
        reason: String,
    },
    /// The node is to listen there no more.
    Unlisten(Endpoint),
    /// A new channel.
    Open(u32, Open),
    /// A connection that was asked for stands. Neither side need wait for it.
    Opened(u32),
    /// A channel is not to be, for this reason.
    Refused(u32, String),
    /// Bytes: standard input, standard output, or those of a connection.
    Data(u32, Bytes),
    /// Bytes of standard error.
    Errors(u32, Bytes),
    /// No more bytes come on a channel from this side.
    Eof(u32),
    /// This side is done with a channel.
    Close(u32),
    /// So many more bytes may be sent on a channel.
    Window(u32, u32),
    /// A session begins.
    Started(u32, Lacks),
    /// Its program has ended by itself.
    ExitStatus(u32, u32),
    /// Its program was ended by a signal.
    ExitSignal {
        /// The session.
        channel: u32,
        /// The signal, without `SIG`.
        name: String,
        /// Memory was dumped.
        core: bool,
    },
    /// The client's terminal has another size.
    Resize(u32, Size),
    /// A signal for a session's processes, by its name without `SIG`.
    Signal(u32, String),
}

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The newest protocol that it speaks.
    pub version: u16,
    /// The oldest.
    pub least: u16,
    /// What the node may send on a new channel, in bytes; at least [`FIRST_WINDOW`]. A client has few channels, and can take
    /// much on each.
    pub window: u32,
    /// The OS login that it asks for.
    pub login: String,
}

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// It is done.
    Done,
    /// It was cut: a lock, a limit, a node that stops.
    Cut,
    /// The other side broke the protocol, or speaks another version of it.
    Protocol,
    /// This login has to come by SSH.
    UseSsh,
    /// Something that a later version knows.
    Other(u8),
}

/// What of its wishes a session does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lacks {
    /// No terminal.
    pub terminal: bool,
    /// No agent.
    pub agent: bool,
    /// No display.
    pub display: bool,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A type that this version has to know, and does not.
    #[error("unknown frame type {0}")]
    Unknown(u8),
    /// Longer than its type may be.
    #[error("a frame of type {kind} with {length} bytes, at most {most} are allowed")]
    TooLong {
        /// The type.
        kind: u8,
        /// Its length.
        length: usize,
        /// The longest.
        most: usize,
    },
    /// Its fields cannot be read.
    #[error("a malformed frame of type {0}")]
    Malformed(u8),
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const GOODBYE: u8 = 3;
const PING: u8 = 4;
const PONG: u8 = 5;
const LISTEN: u8 = 6;
const LISTENING: u8 = 7;
const NOT_LISTENING: u8 = 8;
const UNLISTEN: u8 = 9;
const OPEN: u8 = 16;
const OPENED: u8 = 17;
const REFUSED: u8 = 18;
const DATA: u8 = 19;
const ERRORS: u8 = 20;
const EOF: u8 = 21;
const CLOSE: u8 = 22;
const WINDOW: u8 = 23;
const STARTED: u8 = 24;
const EXIT_STATUS: u8 = 25;
const EXIT_SIGNAL: u8 = 26;
const RESIZE: u8 = 27;
const SIGNAL: u8 = 28;

/// Longest payload of a type that is known; the error for one that has to be.
fn most(kind: u8) -> Result<usize, FrameError> {
    match kind {
        DATA | ERRORS => Ok(MAX_DATA),
        OPEN => Ok(MAX_OPEN),
        HELLO..=UNLISTEN | OPENED..=SIGNAL | SKIPPED_FROM.. => Ok(MAX_CONTROL),
        _ => Err(FrameError::Unknown(kind)),
    }
}

/// The head of a data frame, for a sender of the bytes by themselves. `length` is at most [`MAX_DATA`].
pub(super) fn data_head(channel: u32, errors: bool, length: usize) -> [u8; HEAD] {
    let [_, high, middle, low] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let [c0, c1, c2, c3] = channel.to_be_bytes();
    [if errors { ERRORS } else { DATA }, high, middle, low, c0, c1, c2, c3]
}

impl Frame {
    /// Appends the frame to a buffer.
    ///
    /// # Errors
    /// [`FrameError::TooLong`], and nothing is appended.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), FrameError> {
        let begin = out.len();
        let (kind, channel) = self.head();
        out.put_u32(u32::from(kind) << 24);
        out.put_u32(channel);
        self.put_payload(out);
        let length = out.len() - begin - HEAD;
        let most = most(kind)?;
        if length > most {
            out.truncate(begin);
            return Err(FrameError::TooLong { kind, length, most });
        }
        let word = (u32::from(kind) << 24) | u32::try_from(length).unwrap_or(u32::MAX);
        if let Some(head) = out.get_mut(begin..begin + 4) {
            head.copy_from_slice(&word.to_be_bytes());
        }
        Ok(())
    }

    fn head(&self) -> (u8, u32) {
        match self {
            Self::Hello(_) => (HELLO, 0),
            Self::Welcome { .. } => (WELCOME, 0),
            Self::Goodbye { .. } => (GOODBYE, 0),
            Self::Ping(_) => (PING, 0),
            Self::Pong(_) => (PONG, 0),
            Self::Listen { .. } => (LISTEN, 0),
            Self::Listening { .. } => (LISTENING, 0),
            Self::NotListening { .. } => (NOT_LISTENING, 0),
            Self::Unlisten(_) => (UNLISTEN, 0),
            Self::Open(channel, _) => (OPEN, *channel),
            Self::Opened(channel) => (OPENED, *channel),
            Self::Refused(channel, _) => (REFUSED, *channel),
            Self::Data(channel, _) => (DATA, *channel),
            Self::Errors(channel, _) => (ERRORS, *channel),
            Self::Eof(channel) => (EOF, *channel),
            Self::Close(channel) => (CLOSE, *channel),
            Self::Window(channel, _) => (WINDOW, *channel),
            Self::Started(channel, _) => (STARTED, *channel),
            Self::ExitStatus(channel, _) => (EXIT_STATUS, *channel),
            Self::ExitSignal { channel, .. } => (EXIT_SIGNAL, *channel),
            Self::Resize(channel, _) => (RESIZE, *channel),
            Self::Signal(channel, _) => (SIGNAL, *channel),
        }
    }

    fn put_payload(&self, out: &mut BytesMut) {
        match self {
            Self::Hello(Hello { version, least, window, login }) => {
                out.put_u32(MAGIC);
                out.put_u16(*version);
                out.put_u16(*least);
                out.put_u32(*window);
                out.text(login);
            }
            Self::Welcome { version } => out.put_u16(*version),
            Self::Goodbye { why, reason } => {
                out.put_u8(why.code());
                out.text(shorten(reason, MAX_REASON));
            }
            Self::Ping(number) | Self::Pong(number) => out.put_u64(*number),
            Self::Listen { request, at } => {
                out.put_u32(*request);
                put_endpoint(out, at);
            }
            Self::Listening { request, port } => {
                out.put_u32(*request);
                out.put_u16(*port);
            }
            Self::NotListening { request, reason } => {
                out.put_u32(*request);
                out.text(shorten(reason, MAX_REASON));
            }
            Self::Unlisten(at) => put_endpoint(out, at),
            Self::Open(_, open) => put_open(out, open),
            Self::Refused(_, reason) => out.text(shorten(reason, MAX_REASON)),
            Self::Data(_, bytes) | Self::Errors(_, bytes) => out.extend_from_slice(bytes),
            Self::Opened(_) | Self::Eof(_) | Self::Close(_) => {}
            Self::Window(_, number) | Self::ExitStatus(_, number) => out.put_u32(*number),
            Self::Started(_, lacks) => {
                out.flag(lacks.terminal);
                out.flag(lacks.agent);
                out.flag(lacks.display);
            }
            Self::ExitSignal { name, core, .. } => {
                out.text(name);
                out.flag(*core);
            }
            Self::Resize(_, size) => put_size(out, *size),
            Self::Signal(_, name) => out.text(name),
        }
    }

    /// Takes the next whole frame that is known out of a buffer; `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]: the connection cannot go on. What is too long or has to be known is found out before the payload
    /// has arrived.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        loop {
            let Some(mut head) = buffer.get(..HEAD) else { return Ok(None) };
            let (word, channel) = (head.get_u32(), head.get_u32());
            let [kind, ..] = word.to_be_bytes();
            let length = (word & 0x00ff_ffff) as usize;
            let most = most(kind)?;
            if length > most {
                return Err(FrameError::TooLong { kind, length, most });
            }
            if buffer.len() < HEAD + length {
                return Ok(None);
            }
            buffer.advance(HEAD);
            let payload = buffer.split_to(length);
            if kind < SKIPPED_FROM {
                let frame = Self::read(kind, channel, payload).map_err(|_| FrameError::Malformed(kind))?;
                return Ok(Some(frame));
            }
        }
    }

    fn read(kind: u8, channel: u32, payload: BytesMut) -> Result<Self, Unreadable> {
        if (kind < OPEN) != (channel == 0) {
            return Err(Unreadable);
        }
        if matches!(kind, DATA | ERRORS) {
            let short = payload.len() < COPY_BELOW;
            let bytes = if short { Bytes::copy_from_slice(&payload) } else { payload.freeze() };
            return Ok(if kind == DATA { Self::Data(channel, bytes) } else { Self::Errors(channel, bytes) });
        }
        let mut fields = Reader(&payload);
        Ok(match kind {
            HELLO => {
                if fields.u32()? != MAGIC {
                    return Err(Unreadable);
                }
                let (version, least) = (fields.u16()?, fields.u16()?);
                Self::Hello(Hello { version, least, window: fields.u32()?, login: fields.text()? })
            }
            WELCOME => Self::Welcome { version: fields.u16()? },
            GOODBYE => Self::Goodbye { why: Farewell::of(fields.u8()?), reason: reason(&mut fields)? },
            PING => Self::Ping(fields.u64()?),
            PONG => Self::Pong(fields.u64()?),
            LISTEN => Self::Listen { request: fields.u32()?, at: endpoint(&mut fields)? },
            LISTENING => Self::Listening { request: fields.u32()?, port: fields.u16()? },
            NOT_LISTENING => Self::NotListening { request: fields.u32()?, reason: reason(&mut fields)? },
            UNLISTEN => Self::Unlisten(endpoint(&mut fields)?),
            OPEN => Self::Open(channel, open(&mut fields)?),
            OPENED => Self::Opened(channel),
            REFUSED => Self::Refused(channel, reason(&mut fields)?),
            EOF => Self::Eof(channel),
            CLOSE => Self::Close(channel),
            WINDOW => Self::Window(channel, fields.u32()?),
            STARTED => {
                let (terminal, agent, display) = (fields.flag()?, fields.flag()?, fields.flag()?);
                Self::Started(channel, Lacks { terminal, agent, display })
            }
            EXIT_STATUS => Self::ExitStatus(channel, fields.u32()?),
            EXIT_SIGNAL => Self::ExitSignal { channel, name: fields.text()?, core: fields.flag()? },
            RESIZE => Self::Resize(channel, size(&mut fields)?),
            SIGNAL => Self::Signal(channel, fields.text()?),
            _ => return Err(Unreadable),
        })
    }
}

impl Farewell {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Cut => 1,
            Self::Protocol => 2,
            Self::UseSsh => 3,
            Self::Other(code) => code,
        }
    }

    fn of(code: u8) -> Self {
        match code {
            0 => Self::Done,
            1 => Self::Cut,
            2 => Self::Protocol,
            3 => Self::UseSsh,
            code => Self::Other(code),
        }
    }
}

/// A reason is for a person: one that is too long is cut here as well.
fn reason(fields: &mut Reader<'_>) -> Result<String, Unreadable> {
    fields.text().map(|text| shorten(&text, MAX_REASON).to_owned())
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
