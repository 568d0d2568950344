//! The answer: a server's first flight, as far as it is in the clear.

use super::suites::{Agreement, Proof, suite};
use super::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, EXTENSION_ALPN, EXTENSION_EXTENDED_MASTER_SECRET,
    EXTENSION_RENEGOTIATION, EXTENSION_SHARES, EXTENSION_TICKET, EXTENSION_VERSIONS, HANDSHAKE, TLS_1_2,
    TLS_1_3,
};
use crate::tls_bytes::{long, number, short, take, three};

/// Longest record, in bytes without its header (RFC 5246 §6.2.3).
const RECORD_BYTES: usize = (1 << 14) + 2048;
/// Longest handshake message that is read, in bytes. Chains of certificates have a tenth of it.
const MESSAGE_BYTES: usize = 128 * 1024;
/// Longest answer that is read, in bytes.
const ANSWER_BYTES: usize = 256 * 1024;
/// Handshake messages that are read; a real flight has six at most (RFC 5246 §7.3).
const MOST_MESSAGES: usize = 16;
/// Certificates that are kept.
const MOST_CERTIFICATES: usize = 32;

const HELLO_REQUEST: u8 = 0;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const CERTIFICATE_REQUEST: u8 = 13;
const SERVER_HELLO_DONE: u8 = 14;
const CERTIFICATE_STATUS: u8 = 22;

const WARNING: u8 = 1;
const CLOSE_NOTIFY: u8 = 0;

/// The random value that makes a ServerHello a HelloRetryRequest (RFC 8446 §4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// What a server answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// What it chose.
    pub hello: Option<ServerHello>,
    /// Its certificates in DER, its own first; up to TLS 1.2 only.
    pub certificates: Vec<Vec<u8>>,
    /// Whether it stapled an answer of OCSP; up to TLS 1.2 only.
    pub stapled: bool,
    /// The parameters of its key exchange, where its suite has any; up to TLS 1.2 only.
    pub key_exchange: Option<KeyExchange>,
    /// Whether it asked for a certificate of the client; up to TLS 1.2 only.
    pub asks_for_certificate: bool,
    /// The alert that ended it.
    pub alert: Option<Alert>,
    /// Bytes that were read, headers of records included.
    pub bytes: usize,
}

/// A ServerHello, or a HelloRetryRequest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerHello {
    /// The version.
    pub version: u16,
    /// The cipher suite.
    pub suite: u16,
    /// Whether it asks for another hello (RFC 8446 §4.1.4).
    pub retry: bool,
    /// The group of its key share, or the one that it asks for; TLS 1.3 only.
    pub group: Option<u16>,
    /// The compression: 0 is none.
    pub compression: u8,
    /// Whether it gave the session an id, by which it might be resumed (RFC 5246 §7.4.1.3).
    pub session_id: bool,
    /// Whether it will send a ticket (RFC 5077).
    pub ticket: bool,
    /// Whether the master secret covers the handshake (RFC 7627).
    pub extended_master_secret: bool,
    /// Whether a renegotiation is bound to the connection (RFC 5746).
    pub secure_renegotiation: bool,
    /// The protocol above TLS; up to TLS 1.2 only.
    pub alpn: Option<Vec<u8>>,
}

/// A ServerKeyExchange (RFC 5246 §7.4.3, RFC 8422 §5.4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyExchange {
    /// The named group of an exchange on a curve.
    pub group: Option<u16>,
    /// Length of the prime of an exchange modulo a prime, in bits.
    pub modulus_bits: Option<usize>,
    /// How it is signed: a scheme (RFC 8446 §4.2.3), or a hash and a kind of key (RFC 5246 §7.4.1.4.1), which share their
    /// numbers; TLS 1.2 only.
    pub scheme: Option<u16>,
}

/// An alert (RFC 8446 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    /// The name in the registry; the number when this build knows none.
    #[must_use]
    pub fn name(self) -> String {
        let name = match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            40 => "handshake_failure",
            42 => "bad_certificate",
            47 => "illegal_parameter",
            50 => "decode_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            109 => "missing_extension",
            112 => "unrecognized_name",
            116 => "certificate_required",
            120 => "no_application_protocol",
            other => return format!("alert {other}"),
        };
        name.to_owned()
    }
}

/// Why what came is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The first bytes are those of no record.
    #[error("it does not answer in TLS but with {0:?}")]
    NotTls(String),
    /// Something is longer than anything real.
    #[error("its {what} is longer than {most} bytes")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// The bound.
        most: usize,
    },
    /// A message that is not made as the standard says.
    #[error("its {0} is malformed")]
    Malformed(&'static str),
    /// A message where none of its kind can be.
    #[error("it sent handshake message {0} out of turn")]
    Unexpected(u8),
}

/// Reads an answer, in whatever pieces it comes. It keeps one record and one message at most, and the certificates.
#[derive(Debug, Default)]
pub struct Reader {
    record: Vec<u8>,
    messages: Vec<u8>,
    seen: usize,
    answer: Answer,
    over: bool,
}

impl Reader {
    /// Looks at the next bytes.
    ///
    /// # Errors
    /// [`Unreadable`]; what was understood before stays in [`Reader::answer`].
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), Unreadable> {
        while !self.over && !bytes.is_empty() {
            let wanted = self.wanted()?;
            let take = wanted.saturating_sub(self.record.len()).min(bytes.len());
            let Some((now, later)) = bytes.split_at_checked(take) else { break };
            self.record.extend_from_slice(now);
            bytes = later;
            self.answer.bytes += take;
            if self.answer.bytes > ANSWER_BYTES {
                return Err(Unreadable::TooLong { what: "answer", most: ANSWER_BYTES });
            }
            // With the header complete the length is known; with the length complete, the record is there.
            let wanted = self.wanted()?;
            if self.record.len() >= 5 && self.record.len() == wanted {
                let record = std::mem::take(&mut self.record);
                self.take_record(&record)?;
            }
        }
        Ok(())
    }

    /// Whether there is nothing more to be read: the flight is complete or goes on encrypted, or an alert came.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// What was understood so far.
    #[must_use]
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// What was understood.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        self.answer
    }

    /// Bytes of the record under way, header included; those of a header while there is none.
    fn wanted(&self) -> Result<usize, Unreadable> {
        let kind_fits =
            self.record.first().is_none_or(|kind| (CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(kind));
        if !kind_fits || self.record.get(1).is_some_and(|major| *major != 3) {
            let shown: String = self.record.iter().take(16).map(|byte| printable(*byte)).collect();
            return Err(Unreadable::NotTls(shown));
        }
        let Some([_, _, _, high, low]) = self.record.first_chunk() else { return Ok(5) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length > RECORD_BYTES {
            return Err(Unreadable::TooLong { what: "record", most: RECORD_BYTES });
        }
        Ok(5 + length)
    }

    fn take_record(&mut self, record: &[u8]) -> Result<(), Unreadable> {
        let Some((header, fragment)) = record.split_first_chunk::<5>() else { return Ok(()) };
        match header {
            [ALERT, ..] => {
                let [level, description] = *fragment else { return Err(Unreadable::Malformed("alert")) };
                // RFC 6066 §3: a server may warn of a name that it does not know, and go on.
                if level != WARNING || description == CLOSE_NOTIFY {
                    self.answer.alert = Some(Alert(description));
                    self.over = true;
                }
                Ok(())
            }
            [HANDSHAKE, ..] => {
                if fragment.is_empty() {
                    return Err(Unreadable::Malformed("record"));
                }
                self.messages.extend_from_slice(fragment);
                self.take_messages()
            }
            // What comes from here on is encrypted.
            _ => {
                self.over = true;
                Ok(())
            }
        }
    }

    fn take_messages(&mut self) -> Result<(), Unreadable> {
        while !self.over {
            let Some([kind, a, b, c]) = self.messages.first_chunk().copied() else { return Ok(()) };
            let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
            if length > MESSAGE_BYTES {
                return Err(Unreadable::TooLong { what: "handshake message", most: MESSAGE_BYTES });
            }
            if self.messages.len() < 4 + length {
                return Ok(());
            }
            let rest = self.messages.split_off(4 + length);
            let message = std::mem::replace(&mut self.messages, rest);
            self.seen += 1;
            if self.seen > MOST_MESSAGES {
                return Err(Unreadable::Unexpected(kind));
            }
            self.take_message(kind, message.get(4..).unwrap_or_default())?;
        }
        Ok(())
    }

    fn take_message(&mut self, kind: u8, content: &[u8]) -> Result<(), Unreadable> {
        let malformed = |what| move || Unreadable::Malformed(what);
        match (kind, &self.answer.hello) {
            (HELLO_REQUEST, None) => {}
            (SERVER_HELLO, None) => {
                let hello = server_hello(content).ok_or_else(malformed("ServerHello"))?;
                self.over = hello.version >= TLS_1_3;
                self.answer.hello = Some(hello);
            }
            (CERTIFICATE, Some(_)) => {
                self.answer.certificates =
                    certificates(content).ok_or_else(malformed("list of certificates"))?;
            }
            (CERTIFICATE_STATUS, Some(_)) => self.answer.stapled = true,
            (SERVER_KEY_EXCHANGE, Some(hello)) => {
                self.answer.key_exchange =
                    Some(key_exchange(hello, content).ok_or_else(malformed("ServerKeyExchange"))?);
            }
            (CERTIFICATE_REQUEST, Some(_)) => self.answer.asks_for_certificate = true,
            (SERVER_HELLO_DONE, Some(_)) => self.over = true,
            _ => return Err(Unreadable::Unexpected(kind)),
        }
        Ok(())
    }
}

fn printable(byte: u8) -> char {
    if matches!(byte, b' '..=b'~') { char::from(byte) } else { '.' }
}

/// RFC 8446 §4.1.3, RFC 5246 §7.4.1.3.
fn server_hello(content: &[u8]) -> Option<ServerHello> {
    let mut rest = content;
    let mut hello = ServerHello { version: number(&mut rest)?, ..ServerHello::default() };
    hello.retry = take(&mut rest, 32)? == RETRY;
    hello.session_id = !short(&mut rest)?.is_empty();
    hello.suite = number(&mut rest)?;
    let [compression] = *take(&mut rest, 1)? else { return None };
    hello.compression = compression;
    let mut extensions = if rest.is_empty() { rest } else { long(&mut rest)? };
    while !extensions.is_empty() {
        let kind = number(&mut extensions)?;
        let mut content = long(&mut extensions)?;
        match kind {
            EXTENSION_VERSIONS => hello.version = number(&mut content)?,
            EXTENSION_SHARES => hello.group = Some(number(&mut content)?),
            EXTENSION_TICKET => hello.ticket = true,
            EXTENSION_EXTENDED_MASTER_SECRET => hello.extended_master_secret = true,
            EXTENSION_RENEGOTIATION => hello.secure_renegotiation = true,
            EXTENSION_ALPN => hello.alpn = Some(short(&mut long(&mut content)?)?.to_vec()),
            _ => {}
        }
    }
    Some(hello)
}

/// RFC 5246 §7.4.2.
fn certificates(mut content: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut list = three(&mut content)?;
    let mut certificates = Vec::new();
    while !list.is_empty() {
        let certificate = three(&mut list)?;
        if certificates.len() == MOST_CERTIFICATES {
            return None;
        }
        certificates.push(certificate.to_vec());
    }
    Some(certificates)
}

fn key_exchange(hello: &ServerHello, mut content: &[u8]) -> Option<KeyExchange> {
    /// ECCurveType named_curve (RFC 8422 §5.4).
    const NAMED: u8 = 3;
    let mut exchange = KeyExchange::default();
    let suite = suite(hello.suite)?;
    match suite.agreement() {
        Agreement::Curve => {
            let [kind] = *take(&mut content, 1)? else { return None };
            if kind != NAMED {
                return None;
            }
            exchange.group = Some(number(&mut content)?);
            let _point = short(&mut content)?;
        }
        Agreement::Prime => {
            exchange.modulus_bits = Some(bits(long(&mut content)?));
            let _generator = long(&mut content)?;
            let _share = long(&mut content)?;
        }
        // Export suites send an RSA key of 512 bits here.
        Agreement::Encrypted | Agreement::Later => return Some(exchange),
    }
    if hello.version >= TLS_1_2 && suite.proof() != Proof::None {
        exchange.scheme = Some(number(&mut content)?);
    }
    Some(exchange)
}

/// Length of a number without the zeros before it.
fn bits(number: &[u8]) -> usize {
    let significant = number.iter().position(|byte| *byte != 0).and_then(|at| number.get(at..));
    significant.map_or(0, |bytes| {
        let leading = bytes.first().map_or(0, |byte| byte.leading_zeros());
        bytes.len() * 8 - usize::try_from(leading).unwrap_or_default()
    })
}
