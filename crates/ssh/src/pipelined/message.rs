//! The messages of SSH that a client hears (RFC 4253, 4252, 4254), read.

use bytes::Bytes;

use crate::transport::Breach;
pub(super) use crate::transport::message::*;

/// SSH_EXTENDED_DATA_STDERR (RFC 4254 §5.2).
pub(super) const STDERR: u32 = 1;

/// A message of a server that is not the transport's own, and its farewell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// The end, and why.
    Disconnect(String),
    /// The server serves what it was asked for.
    ServiceAccepted,
    /// The login is refused.
    LoginRefused {
        /// What the server would take.
        methods: String,
        /// What was shown is good, and not enough.
        partial: bool,
    },
    /// The login is good.
    LoggedIn,
    /// Words for the user.
    Banner(String),
    /// A request that is for no channel.
    Global {
        /// The server waits for an answer.
        wants_answer: bool,
    },
    /// An answer to one of ours.
    Answered,
    /// The server opens a channel.
    Open {
        /// Its number there.
        sender: u32,
    },
    /// Our channel is open.
    Opened {
        /// Its number here.
        recipient: u32,
        /// Its number there.
        sender: u32,
        /// Bytes that may be sent.
        window: u32,
        /// Bytes of data in a packet at most.
        most: u32,
    },
    /// Our channel is not opened.
    NotOpened {
        /// Its number here.
        recipient: u32,
        /// The server's words.
        words: String,
    },
    /// More bytes may be sent.
    Adjust {
        /// The channel's number here.
        recipient: u32,
        /// How many more.
        by: u32,
    },
    /// Output.
    Data {
        /// The channel's number here.
        recipient: u32,
        /// SSH_EXTENDED_DATA_STDERR, or 0 for the standard output.
        kind: u32,
        /// The output.
        bytes: Bytes,
    },
    /// No more output.
    Eof(u32),
    /// The channel is closed.
    Close(u32),
    /// A request on the channel.
    Request {
        /// The channel's number here.
        recipient: u32,
        /// What it says.
        what: Told,
        /// The server waits for an answer.
        wants_answer: bool,
    },
    /// An answer to a request of ours on the channel.
    Granted {
        /// The channel's number here.
        recipient: u32,
        /// Yes or no.
        granted: bool,
    },
    /// Something that is not known here.
    Unknown(u8),
}

/// What a server tells by a request on a channel (RFC 4254 §6.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// How the program ended.
    Status(u32),
    /// By which signal it ended.
    Signal {
        /// Without `SIG`.
        name: String,
        /// A core file was written.
        core_dumped: bool,
        /// The server's words.
        words: String,
    },
    /// Something that is not known here.
    Other,
}

impl Message {
    /// Reads a payload.
    ///
    /// # Errors
    /// [`Breach::Malformed`] when a field is missing or is none.
    pub fn read(payload: &Bytes) -> Result<Self, Breach> {
        let mut fields = Fields(payload.clone());
        let number = fields.u8().ok_or(Breach::Malformed("an empty packet"))?;
        read(number, &mut fields).ok_or(Breach::Malformed(name(number)))
    }
}

fn read(number: u8, fields: &mut Fields) -> Option<Message> {
    Some(match number {
        DISCONNECT => {
            fields.u32()?;
            Message::Disconnect(fields.words()?)
        }
        SERVICE_ACCEPT => {
            fields.string()?;
            Message::ServiceAccepted
        }
        USERAUTH_FAILURE => Message::LoginRefused { methods: fields.words()?, partial: fields.flag()? },
        USERAUTH_SUCCESS => Message::LoggedIn,
        USERAUTH_BANNER => Message::Banner(fields.words()?),
        GLOBAL_REQUEST => {
            fields.string()?;
            Message::Global { wants_answer: fields.flag()? }
        }
        REQUEST_SUCCESS | REQUEST_FAILURE => Message::Answered,
        CHANNEL_OPEN => {
            fields.string()?;
            Message::Open { sender: fields.u32()? }
        }
        CHANNEL_OPEN_CONFIRMATION => Message::Opened {
            recipient: fields.u32()?,
            sender: fields.u32()?,
            window: fields.u32()?,
            most: fields.u32()?,
        },
        CHANNEL_OPEN_FAILURE => {
            let recipient = fields.u32()?;
            fields.u32()?;
            Message::NotOpened { recipient, words: fields.words()? }
        }
        CHANNEL_WINDOW_ADJUST => Message::Adjust { recipient: fields.u32()?, by: fields.u32()? },
        CHANNEL_DATA => Message::Data { recipient: fields.u32()?, kind: 0, bytes: fields.string()? },
        CHANNEL_EXTENDED_DATA => {
            Message::Data { recipient: fields.u32()?, kind: fields.u32()?, bytes: fields.string()? }
        }
        CHANNEL_EOF => Message::Eof(fields.u32()?),
        CHANNEL_CLOSE => Message::Close(fields.u32()?),
        CHANNEL_REQUEST => {
            let (recipient, kind, wants_answer) = (fields.u32()?, fields.string()?, fields.flag()?);
            let what = match kind.as_ref() {
                b"exit-status" => Told::Status(fields.u32()?),
                b"exit-signal" => Told::Signal {
                    name: fields.words()?,
                    core_dumped: fields.flag()?,
                    words: fields.words()?,
                },
                _ => Told::Other,
            };
            Message::Request { recipient, what, wants_answer }
        }
        CHANNEL_SUCCESS | CHANNEL_FAILURE => {
            Message::Granted { recipient: fields.u32()?, granted: number == CHANNEL_SUCCESS }
        }
        other => Message::Unknown(other),
    })
}

/// What a message is called where it is malformed.
fn name(number: u8) -> &'static str {
    match number {
        DISCONNECT => "DISCONNECT",
        SERVICE_ACCEPT => "SERVICE_ACCEPT",
        USERAUTH_FAILURE => "USERAUTH_FAILURE",
        USERAUTH_BANNER => "USERAUTH_BANNER",
        GLOBAL_REQUEST => "GLOBAL_REQUEST",
        CHANNEL_OPEN..=CHANNEL_FAILURE => "of a channel",
        _ => "of the transport",
    }
}
