//! The messages of SSH that a client hears (RFC 4253, 4252, 4254), read; and those that it sends, put together.

use bytes::{Buf, Bytes};

use super::Breach;

pub(super) const DISCONNECT: u8 = 1;
pub(super) const IGNORE: u8 = 2;
pub(super) const UNIMPLEMENTED: u8 = 3;
pub(super) const DEBUG: u8 = 4;
pub(super) const SERVICE_REQUEST: u8 = 5;
pub(super) const SERVICE_ACCEPT: u8 = 6;
/// RFC 8308 §2.3.
pub(super) const EXT_INFO: u8 = 7;
pub(super) const KEXINIT: u8 = 20;
pub(super) const NEWKEYS: u8 = 21;
/// RFC 5656 §7.1.
pub(super) const ECDH_INIT: u8 = 30;
pub(super) const ECDH_REPLY: u8 = 31;
pub(super) const USERAUTH_REQUEST: u8 = 50;
pub(super) const USERAUTH_FAILURE: u8 = 51;
pub(super) const USERAUTH_SUCCESS: u8 = 52;
pub(super) const USERAUTH_BANNER: u8 = 53;
pub(super) const GLOBAL_REQUEST: u8 = 80;
pub(super) const REQUEST_SUCCESS: u8 = 81;
pub(super) const REQUEST_FAILURE: u8 = 82;
pub(super) const CHANNEL_OPEN: u8 = 90;
pub(super) const CHANNEL_OPEN_CONFIRMATION: u8 = 91;
pub(super) const CHANNEL_OPEN_FAILURE: u8 = 92;
pub(super) const CHANNEL_WINDOW_ADJUST: u8 = 93;
pub(super) const CHANNEL_DATA: u8 = 94;
pub(super) const CHANNEL_EXTENDED_DATA: u8 = 95;
pub(super) const CHANNEL_EOF: u8 = 96;
pub(super) const CHANNEL_CLOSE: u8 = 97;
pub(super) const CHANNEL_REQUEST: u8 = 98;
pub(super) const CHANNEL_SUCCESS: u8 = 99;
pub(super) const CHANNEL_FAILURE: u8 = 100;

/// SSH_EXTENDED_DATA_STDERR (RFC 4254 §5.2).
pub(super) const STDERR: u32 = 1;

/// Longest words of a server that are kept, in bytes.
const WORDS_BYTES: usize = 16 * 1024;

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// The end, and why.
    Disconnect(String),
    /// To be passed over: IGNORE, DEBUG, UNIMPLEMENTED.
    Idle(u8),
    /// The server serves what it was asked for.
    ServiceAccepted,
    /// What the server can do beyond RFC 4253.
    Extensions,
    /// A proposal of algorithms.
    Proposal(Lists),
    /// What follows is under the new keys.
    NewKeys,
    /// The server's part of the key exchange.
    Reply {
        /// Its host key or certificate.
        host_key: Bytes,
        /// Its share.
        share: Bytes,
        /// Over the exchange hash.
        signature: Bytes,
    },
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

/// The lists of a KEXINIT (RFC 4253 §7.1), from the server's side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lists {
    /// Key exchange methods, and flags.
    pub kex: Vec<String>,
    /// Host key algorithms.
    pub host_keys: Vec<String>,
    /// Ciphers to the server.
    pub ciphers_to_server: Vec<String>,
    /// Ciphers to the client.
    pub ciphers_to_client: Vec<String>,
    /// Compression to the server.
    pub compression_to_server: Vec<String>,
    /// Compression to the client.
    pub compression_to_client: Vec<String>,
    /// A guessed packet follows.
    pub guesses: bool,
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
        IGNORE | UNIMPLEMENTED | DEBUG => Message::Idle(number),
        SERVICE_ACCEPT => {
            fields.string()?;
            Message::ServiceAccepted
        }
        EXT_INFO => Message::Extensions,
        KEXINIT => Message::Proposal(lists(fields)?),
        NEWKEYS => Message::NewKeys,
        ECDH_REPLY => Message::Reply {
            host_key: fields.string()?,
            share: fields.string()?,
            signature: fields.string()?,
        },
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

fn lists(fields: &mut Fields) -> Option<Lists> {
    fields.take(16)?;
    let (kex, host_keys) = (fields.names()?, fields.names()?);
    let (ciphers_to_server, ciphers_to_client) = (fields.names()?, fields.names()?);
    // Ciphers that authenticate need no MAC, and no other is proposed.
    let _macs = (fields.names()?, fields.names()?);
    let (compression_to_server, compression_to_client) = (fields.names()?, fields.names()?);
    let _languages = (fields.names()?, fields.names()?);
    let guesses = fields.flag()?;
    fields.u32()?;
    Some(Lists {
        kex,
        host_keys,
        ciphers_to_server,
        ciphers_to_client,
        compression_to_server,
        compression_to_client,
        guesses,
    })
}

/// What a message is called where it is malformed.
fn name(number: u8) -> &'static str {
    match number {
        DISCONNECT => "DISCONNECT",
        SERVICE_ACCEPT => "SERVICE_ACCEPT",
        KEXINIT => "KEXINIT",
        ECDH_REPLY => "KEX_ECDH_REPLY",
        USERAUTH_FAILURE => "USERAUTH_FAILURE",
        USERAUTH_BANNER => "USERAUTH_BANNER",
        GLOBAL_REQUEST => "GLOBAL_REQUEST",
        CHANNEL_OPEN..=CHANNEL_FAILURE => "of a channel",
        _ => "of the transport",
    }
}

/// Fields off the front (RFC 4251 §5).
struct Fields(Bytes);

impl Fields {
    fn take(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.0.len()).then(|| self.0.split_to(count))
    }

    fn u8(&mut self) -> Option<u8> {
        self.0.try_get_u8().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.0.try_get_u32().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        self.u8().map(|byte| byte != 0)
    }

    fn string(&mut self) -> Option<Bytes> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// Text for people. What could steer a terminal is left out.
    fn words(&mut self) -> Option<String> {
        let bytes = self.string()?;
        let kept = bytes.get(..bytes.len().min(WORDS_BYTES)).unwrap_or_default();
        let text = String::from_utf8_lossy(kept);
        Some(text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect())
    }

    fn names(&mut self) -> Option<Vec<String>> {
        let list = self.string()?;
        let text = std::str::from_utf8(&list).ok()?;
        Some(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft(pub(super) Vec<u8>);

impl Draft {
    pub(super) fn new(number: u8) -> Self {
        Self(vec![number])
    }

    pub(super) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn flag(self, value: bool) -> Self {
        self.u8(u8::from(value))
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn string(mut self, bytes: &[u8]) -> Self {
        put_string(&mut self.0, bytes);
        self
    }

    pub(super) fn names(self, names: &[&str]) -> Self {
        self.string(names.join(",").as_bytes())
    }
}

/// A `string` (RFC 4251 §5). What does not fit into its length does not fit into a packet either.
pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}
