//! What a client says first (§53.2.1, §53.7): that it wants TLS, that it wants another query cancelled, or who it is.
//!
//! These packets have no kind: a length, and a number that is either a version or one of a few that no version will be.

use std::fmt;

use super::message::{Fields, encode};

/// Longest first packet, as PostgreSQL's own limit (`MAX_STARTUP_PACKET_LENGTH`).
pub const MOST_BYTES: usize = 10_000;
/// Most parameters that are taken.
const MOST_PARAMETERS: usize = 256;
/// Longest key of a cancel request (protocol 3.2: up to 256 bytes).
const LONGEST_KEY_BYTES: usize = 256;

const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSSAPI: u32 = 80_877_104;

/// The major version that this speaks; a minor one that a server does not have is negotiated (`NegotiateProtocolVersion`).
pub const MAJOR: u16 = 3;

/// The newest minor version that is understood here.
pub const MINOR: u16 = 2;
/// How parameters begin that change the protocol (§53.2.1). None is understood here.
const EXTENSION: &str = "_pq_.";

/// The first packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// The client asks for TLS. The answer is one byte, [`ACCEPTED`] or [`DECLINED`]; then it starts anew.
    Tls,
    /// The client asks for encryption by GSSAPI; the answer is [`DECLINED`] here, and it starts anew.
    Gssapi,
    /// A query of another connection is to be cancelled. Nothing is answered.
    Cancel(CancelKey),
    /// A session.
    Startup(Startup),
}

/// Goes before a handshake.
pub const ACCEPTED: u8 = b'S';
/// The client may go on without, or leave.
pub const DECLINED: u8 = b'N';

/// What a client names a running session by to cancel its queries (`BackendKeyData`). Any holder can cancel, so it is not
/// shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CancelKey {
    /// The process of the server.
    pub process: u32,
    /// Its secret: four bytes, or up to 256 since protocol 3.2.
    pub secret: Vec<u8>,
}

impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelKey").field("process", &self.process).finish_non_exhaustive()
    }
}

/// Who wants a session with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Startup {
    /// The minor version that the client would like; the major one is [`MAJOR`].
    pub minor: u16,
    /// In the order of the packet; each name once, the last one counts, as at the server.
    pub parameters: Vec<(String, String)>,
}

impl Startup {
    /// The value of a parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The database user.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.parameter("user").filter(|user| !user.is_empty())
    }

    /// The database: named like the user where none is (§53.7).
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.parameter("database").filter(|name| !name.is_empty()).or_else(|| self.user())
    }

    /// Whether the client wants to be sent what the server writes, as `pg_basebackup` does (§53.2.1, `replication`). What a server would
    /// not understand counts as well.
    #[must_use]
    pub fn wants_replication(&self) -> bool {
        let value = self.parameter("replication").map(str::to_ascii_lowercase);
        value.is_some_and(|value| !matches!(value.as_str(), "" | "0" | "off" | "no" | "false" | "f" | "n"))
    }

    /// Takes the version down to what is understood here, and takes out what would change the protocol to something that is not:
    /// a newer server might agree to it. None where there is nothing of that; else what the client has to be told.
    #[must_use]
    pub fn lower(&mut self) -> Option<Lowered> {
        let is_unknown = |(name, _): &(String, String)| name.starts_with(EXTENSION);
        let unknown: Vec<String> =
            self.parameters.iter().filter(|one| is_unknown(one)).map(|(name, _)| name.clone()).collect();
        self.parameters.retain(|one| !is_unknown(one));
        let wanted = self.minor;
        self.minor = wanted.min(MINOR);
        (wanted > MINOR || !unknown.is_empty()).then_some(Lowered { minor: self.minor, unknown })
    }

    /// The packet, as it goes to a server.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(256);
        body.extend_from_slice(&MAJOR.to_be_bytes());
        body.extend_from_slice(&self.minor.to_be_bytes());
        for (name, value) in &self.parameters {
            for text in [name, value] {
                body.extend_from_slice(text.as_bytes());
                body.push(0);
            }
        }
        body.push(0);
        with_length(&body)
    }
}

/// What a client wanted of the protocol and does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lowered {
    minor: u16,
    unknown: Vec<String>,
}

impl Lowered {
    /// A server's greeting with that said before all else (`NegotiateProtocolVersion`, §53.7), together with what the server
    /// itself does not know.
    #[must_use]
    pub fn told(&self, greeting: Vec<u8>) -> Vec<u8> {
        let ours = version(self.minor);
        let (theirs, rest) = match server_lowers(&greeting) {
            Some((newest, rest)) => (ours.min(newest), rest),
            None => (ours, greeting.as_slice()),
        };
        // What the server was asked for has none of the names, so that there are none of its own.
        let mut content = theirs.to_be_bytes().to_vec();
        content.extend_from_slice(&u32::try_from(self.unknown.len()).unwrap_or(u32::MAX).to_be_bytes());
        for name in &self.unknown {
            content.extend_from_slice(name.as_bytes());
            content.push(0);
        }
        [encode(b'v', &content).as_slice(), rest].concat()
    }
}

fn version(minor: u16) -> u32 {
    u32::from(MAJOR) << 16 | u32::from(minor)
}

/// The newest version that a server has, where its greeting begins with that, and what follows.
fn server_lowers(greeting: &[u8]) -> Option<(u32, &[u8])> {
    let mut fields = Fields::new(greeting);
    (fields.u8()? == b'v').then_some(())?;
    let length = usize::try_from(fields.u32()?).ok()?.checked_sub(4)?;
    let newest = Fields::new(fields.bytes(length)?).u32()?;
    Some((newest, fields.rest()))
}

/// The packet that asks a server for TLS.
#[must_use]
pub fn ask_for_tls() -> Vec<u8> {
    with_length(&TLS.to_be_bytes())
}

/// The packet that cancels a query.
#[must_use]
pub fn cancel(key: &CancelKey) -> Vec<u8> {
    let mut body = CANCEL.to_be_bytes().to_vec();
    body.extend_from_slice(&key.process.to_be_bytes());
    body.extend_from_slice(&key.secret);
    with_length(&body)
}

fn with_length(body: &[u8]) -> Vec<u8> {
    // All of them are made here, and short.
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let mut packet = length.to_be_bytes().to_vec();
    packet.extend_from_slice(body);
    packet
}

/// Why a first packet is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFirst {
    /// No client begins like this.
    #[error("the first packet says that it has {0} bytes; 8 to {MOST_BYTES} are possible")]
    Length(u32),
    /// A version of long ago, or of another protocol.
    #[error("protocol {major}.{minor} was asked for; {MAJOR}.0 and later minor versions are spoken")]
    Version {
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// The rest does not fit.
    #[error("the first packet is malformed: {0}")]
    Content(&'static str),
}

/// Reads the first packet of what has come: the packet and its length, or none while it is not whole.
///
/// # Errors
/// When it will never be one.
pub fn read(bytes: &[u8]) -> Result<Option<(First, usize)>, NotFirst> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let said = u32::from_be_bytes(*length);
    let length = usize::try_from(said).ok().filter(|length| (8..=MOST_BYTES).contains(length));
    let length = length.ok_or(NotFirst::Length(said))?;
    // Who speaks something else is told before it has sent all that it says.
    let Some((number, _)) = rest.split_first_chunk() else { return Ok(None) };
    let number = u32::from_be_bytes(*number);
    check(number)?;
    let Some(packet) = bytes.get(..length) else { return Ok(None) };
    let mut fields = Fields::new(packet.get(8..).unwrap_or_default());
    let first = match number {
        TLS | GSSAPI if !fields.is_empty() => {
            return Err(NotFirst::Content("a request for encryption has no content"));
        }
        TLS => First::Tls,
        GSSAPI => First::Gssapi,
        CANCEL => First::Cancel(cancel_key(fields)?),
        version => First::Startup(parameters(&mut fields, version)?),
    };
    Ok(Some((first, length)))
}

fn check(number: u32) -> Result<(), NotFirst> {
    let [a, b, c, d] = number.to_be_bytes();
    let (major, minor) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    if [CANCEL, TLS, GSSAPI].contains(&number) || major == MAJOR {
        return Ok(());
    }
    Err(NotFirst::Version { major, minor })
}

fn cancel_key(mut fields: Fields<'_>) -> Result<CancelKey, NotFirst> {
    let process = fields.u32().ok_or(NotFirst::Content("a cancel request without a process"))?;
    let secret = fields.rest();
    if !(4..=LONGEST_KEY_BYTES).contains(&secret.len()) {
        return Err(NotFirst::Content("a cancel request whose secret is too short or too long"));
    }
    Ok(CancelKey { process, secret: secret.to_vec() })
}

fn parameters(fields: &mut Fields<'_>, version: u32) -> Result<Startup, NotFirst> {
    const UNENDED: NotFirst = NotFirst::Content("a parameter does not end");
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| NotFirst::Content("a parameter is not UTF-8"))
    };
    let mut parameters: Vec<(String, String)> = Vec::new();
    loop {
        let name = fields.text().ok_or(UNENDED)?;
        if name.is_empty() {
            break;
        }
        let (name, value) = (text(name)?, text(fields.text().ok_or(UNENDED)?)?);
        parameters.retain(|(known, _)| *known != name);
        if parameters.len() >= MOST_PARAMETERS {
            return Err(NotFirst::Content("there are too many parameters"));
        }
        parameters.push((name, value));
    }
    if !fields.is_empty() {
        return Err(NotFirst::Content("something follows the parameters"));
    }
    let [_, _, c, d] = version.to_be_bytes();
    Ok(Startup { minor: u16::from_be_bytes([c, d]), parameters })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn startup(parameters: &[(&str, &str)]) -> Startup {
        let parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Startup { minor: 0, parameters }
    }

    #[test]
    fn what_psql_sends_is_read() {
        // As captured from psql 15.
        let packet = b"\0\0\0\x54\0\x03\0\0user\0app\0database\0shop\0application_name\0psql\0client_encoding\0UTF8\0\0";
        let mut bytes = packet.to_vec();
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        let Some((First::Startup(read), taken)) = super::read(&bytes).unwrap() else { panic!() };
        assert_eq!((read.user(), read.database(), taken), (Some("app"), Some("shop"), bytes.len()));
        assert_eq!(read.parameter("application_name"), Some("psql"));
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!(startup(&[("user", "app"), ("database", "")]).database(), Some("app"));
        assert_eq!(startup(&[("user", "")]).user(), None);
    }

    #[test]
    fn what_comes_before_is_told_apart() {
        assert_eq!(read(&ask_for_tls()).unwrap(), Some((First::Tls, 8)));
        assert_eq!(read(&[0, 0, 0, 8, 4, 210, 22, 48]).unwrap(), Some((First::Gssapi, 8)));
        let key = CancelKey { process: 7, secret: vec![1, 2, 3, 4] };
        assert_eq!(read(&cancel(&key)).unwrap(), Some((First::Cancel(key.clone()), 16)));
        assert!(!format!("{key:?}").contains("secret"));
    }

    #[test]
    fn what_is_no_first_packet_is_told_in_words() {
        for (bytes, words) in [
            (&b"GET / HTTP/1.1\r\n"[..], "bytes; 8 to 10000"),
            (b"\0\0\0\x07\0\0\0", "has 7 bytes"),
            (b"\0\0\0\x09\0\x02\0\0\0", "protocol 2.0 was asked for"),
            (b"\0\0\0\x0e\0\x03\0\0user\0\0", "does not end"),
            (b"\0\0\0\x0c\0\x03\0\0\0abc", "follows"),
            (b"\0\0\0\x10\0\x03\0\0user\0\xff\0\0", "UTF-8"),
            (b"\0\0\0\x09\x04\xd2\x16\x2f\0", "no content"),
            (b"\0\0\0\x0f\x04\xd2\x16\x2e\0\0\0\x01abc", "secret"),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let many: Vec<(String, String)> = (0..300).map(|n| (format!("p{n}"), String::new())).collect();
        let error = read(&Startup { minor: 2, parameters: many }.to_bytes()).unwrap_err();
        assert!(error.to_string().contains("too many"));
        // The last of a name counts.
        let twice = startup(&[("user", "one"), ("user", "two")]).to_bytes();
        let Some((First::Startup(read), _)) = read(&twice).unwrap() else { panic!() };
        assert_eq!((read.user(), read.parameters.len()), (Some("two"), 1));
    }

    #[test]
    fn what_would_change_the_protocol_is_lowered_and_told() {
        let plain = startup(&[("user", "app"), ("application_name", "_pq_.x")]);
        for minor in 0..=MINOR {
            let mut asked = Startup { minor, ..plain.clone() };
            assert_eq!((asked.lower(), asked.minor, asked.parameters.len()), (None, minor, 2));
        }
        let mut newer =
            Startup { minor: 9, ..startup(&[("user", "app"), ("_pq_.far", "on"), ("_pq_.near", "")]) };
        let lowered = newer.lower().unwrap();
        assert_eq!(newer, Startup { minor: 2, ..startup(&[("user", "app")]) });
        let said = |version: &[u8; 4]| {
            let content = [&version[..], b"\0\0\0\x02_pq_.far\0_pq_.near\0"].concat();
            [encode(b'v', &content), b"R\0\0\0\x08\0\0\0\0".to_vec()].concat()
        };
        let greeting = b"R\0\0\0\x08\0\0\0\0".to_vec();
        assert_eq!(lowered.told(greeting.clone()), said(&[0, 3, 0, 2]));
        // A server that has less says so, and it is said once.
        let older = [encode(b'v', &[0, 3, 0, 0, 0, 0, 0, 0]), greeting].concat();
        assert_eq!(lowered.told(older), said(&[0, 3, 0, 0]));
        let mut minor_alone = Startup { minor: 3, ..plain };
        let told = minor_alone.lower().unwrap().told(Vec::new());
        assert_eq!(told, encode(b'v', &[0, 3, 0, 2, 0, 0, 0, 0]));
    }

    proptest! {
        #[test]
        fn it_is_read_whole_or_not_yet(
            parameters in prop::collection::btree_map("[a-z_.]{1,12}", "[^\0]{0,20}", 0..8),
            minor in any::<u16>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let startup = Startup { minor, parameters: parameters.into_iter().collect() };
            let bytes = startup.to_bytes();
            prop_assert_eq!(read(&bytes).unwrap(), Some((First::Startup(startup), bytes.len())));
            prop_assert_eq!(read(&bytes[..cut.index(bytes.len())]).unwrap(), None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let mut bytes = bytes;
            if let Some(head) = bytes.get_mut(..6) {
                head.copy_from_slice(&[0, 0, 0, 100, 0, 3]);
            }
            let _ = read(&bytes);
        }
    }
}
