//! The numbers of messages (RFC 4250 §4.1.2), their fields (RFC 4251 §5), and messages put together: what every message of SSH
//! is read and written with.

use bytes::{Buf, Bytes};

use super::Breach;

pub(crate) const DISCONNECT: u8 = 1;
pub(crate) const IGNORE: u8 = 2;
pub(crate) const UNIMPLEMENTED: u8 = 3;
pub(crate) const DEBUG: u8 = 4;
pub(crate) const SERVICE_REQUEST: u8 = 5;
pub(crate) const SERVICE_ACCEPT: u8 = 6;
/// RFC 8308 §2.3.
pub(crate) const EXT_INFO: u8 = 7;
pub(crate) const KEXINIT: u8 = 20;
pub(crate) const NEWKEYS: u8 = 21;
/// RFC 5656 §7.1.
pub(crate) const ECDH_INIT: u8 = 30;
pub(crate) const ECDH_REPLY: u8 = 31;
pub(crate) const USERAUTH_REQUEST: u8 = 50;
pub(crate) const USERAUTH_FAILURE: u8 = 51;
pub(crate) const USERAUTH_SUCCESS: u8 = 52;
pub(crate) const USERAUTH_BANNER: u8 = 53;
/// RFC 4252 §7.
pub(crate) const USERAUTH_PK_OK: u8 = 60;
/// RFC 4256 §5, of another method than the one before.
pub(crate) const USERAUTH_INFO_REQUEST: u8 = 60;
pub(crate) const USERAUTH_INFO_RESPONSE: u8 = 61;
pub(crate) const GLOBAL_REQUEST: u8 = 80;
pub(crate) const REQUEST_SUCCESS: u8 = 81;
pub(crate) const REQUEST_FAILURE: u8 = 82;
pub(crate) const CHANNEL_OPEN: u8 = 90;
pub(crate) const CHANNEL_OPEN_CONFIRMATION: u8 = 91;
pub(crate) const CHANNEL_OPEN_FAILURE: u8 = 92;
pub(crate) const CHANNEL_WINDOW_ADJUST: u8 = 93;
pub(crate) const CHANNEL_DATA: u8 = 94;
pub(crate) const CHANNEL_EXTENDED_DATA: u8 = 95;
pub(crate) const CHANNEL_EOF: u8 = 96;
pub(crate) const CHANNEL_CLOSE: u8 = 97;
pub(crate) const CHANNEL_REQUEST: u8 = 98;
pub(crate) const CHANNEL_SUCCESS: u8 = 99;
pub(crate) const CHANNEL_FAILURE: u8 = 100;

/// Longest words of a peer that are kept, in bytes.
const WORDS_BYTES: usize = 16 * 1024;

/// Names of one list that are read. OpenSSH has 40 at most.
const MOST_NAMES: usize = 512;

/// The lists of a KEXINIT (RFC 4253 §7.1), as a peer says them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lists {
    /// Key exchange methods, and flags.
    pub(crate) kex: Vec<String>,
    /// Host key algorithms.
    pub(crate) host_keys: Vec<String>,
    /// Ciphers to the server.
    pub(crate) ciphers_to_server: Vec<String>,
    /// Ciphers to the client.
    pub(crate) ciphers_to_client: Vec<String>,
    /// Compression to the server.
    pub(crate) compression_to_server: Vec<String>,
    /// Compression to the client.
    pub(crate) compression_to_client: Vec<String>,
    /// A guessed packet follows.
    pub(crate) guesses: bool,
}

impl Lists {
    /// Reads a KEXINIT.
    ///
    /// # Errors
    /// [`Breach::Malformed`], also for lists of more names than any peer has.
    pub(crate) fn read(payload: &Bytes) -> Result<Self, Breach> {
        let mut fields = Fields(payload.clone());
        (fields.u8() == Some(KEXINIT))
            .then(|| lists(&mut fields))
            .flatten()
            .ok_or(Breach::Malformed("KEXINIT"))
    }
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

/// Fields off the front (RFC 4251 §5).
pub(crate) struct Fields(pub(crate) Bytes);

impl Fields {
    pub(crate) fn take(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.0.len()).then(|| self.0.split_to(count))
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.0.try_get_u8().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.0.try_get_u32().ok()
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        self.u8().map(|byte| byte != 0)
    }

    pub(crate) fn string(&mut self) -> Option<Bytes> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// Text for people. What could steer a terminal is left out.
    pub(crate) fn words(&mut self) -> Option<String> {
        let bytes = self.string()?;
        let kept = bytes.get(..bytes.len().min(WORDS_BYTES)).unwrap_or_default();
        let text = String::from_utf8_lossy(kept);
        Some(text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect())
    }

    pub(crate) fn names(&mut self) -> Option<Vec<String>> {
        let list = self.string()?;
        let text = std::str::from_utf8(&list).ok()?;
        let names = || text.split(',').filter(|name| !name.is_empty());
        (names().count() <= MOST_NAMES).then(|| names().map(str::to_owned).collect())
    }
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft(pub(crate) Vec<u8>);

impl Draft {
    pub(crate) fn new(number: u8) -> Self {
        Self(vec![number])
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn flag(self, value: bool) -> Self {
        self.u8(u8::from(value))
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn string(mut self, bytes: &[u8]) -> Self {
        put_string(&mut self.0, bytes);
        self
    }

    pub(crate) fn names(self, names: &[&str]) -> Self {
        self.string(names.join(",").as_bytes())
    }
}

/// A `string` (RFC 4251 §5). What does not fit into its length does not fit into a packet either.
pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}
