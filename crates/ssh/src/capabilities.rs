//! What an SSH peer says it can do, read in passing.
//!
//! An SSH connection begins in the clear: a line that names the software (RFC 4253 §4.2), then a KEXINIT with the
//! algorithms that the peer speaks (§7.1). [`Offered`] reads both while the bytes pass and gets out of the way afterwards;
//! [`Reader`] is the parser alone. Neither changes, delays or keeps anything of the stream: a peer that sends nonsense
//! is the SSH library's to refuse, and is only not remembered here.

mod greeting;
mod observer;

use std::net::IpAddr;

pub(crate) use greeting::{Heard, IDENTIFICATION, banner, hear_out};
pub use observer::Offered;

/// Longest identification line, with its line end (RFC 4253 §4.2).
const LONGEST_LINE_BYTES: usize = 255;
/// Lines that a server may send before its identification. The standard sets no bound; banners have a handful.
const MOST_LINES: usize = 64;
/// Longest packet that every implementation must be able to read (RFC 4253 §6.1).
const LONGEST_PACKET_BYTES: usize = 35_000;
/// Messages that may come before KEXINIT: SSH_MSG_IGNORE, UNIMPLEMENTED and DEBUG (RFC 4253 §11). OpenSSH sends none.
const MOST_IDLE_MESSAGES: usize = 8;
/// Longest algorithm name (RFC 4251 §6).
const LONGEST_NAME_BYTES: usize = 64;
/// Names of one list that are kept. OpenSSH 10 has 13 at most, libssh and JSch with everything on fewer than 40.
const MOST_NAMES: usize = 64;

const SSH_MSG_IGNORE: u8 = 2;
const SSH_MSG_UNIMPLEMENTED: u8 = 3;
const SSH_MSG_DEBUG: u8 = 4;
const SSH_MSG_KEXINIT: u8 = 20;

/// What a peer says it is and can do. Names are printable ASCII and bounded in length and number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SshOffer {
    /// What follows `SSH-2.0-`: software, version and comments, such as `OpenSSH_9.2p1 Debian-2+deb12u3`.
    pub software: String,
    /// Key exchange methods, the peer's favourite first, without the flags that share their list.
    pub kex: Vec<String>,
    /// Types of host keys, and so of signatures, that the peer takes or has.
    pub host_key_algorithms: Vec<String>,
    /// Ciphers from client to server.
    pub ciphers: Vec<String>,
    /// MACs from client to server. Ciphers that authenticate by themselves need none.
    pub macs: Vec<String>,
    /// Compressions from client to server.
    pub compression: Vec<String>,
    /// Entries of the list of key exchange methods that are no method, such as `kex-strict-s-v00@openssh.com`.
    pub flags: Vec<String>,
}

impl SshOffer {
    /// Whether the peer knows OpenSSH's certificates: it takes those of hosts. One that does not may still show a user's.
    #[must_use]
    pub fn takes_certificates(&self) -> bool {
        self.host_key_algorithms.iter().any(|name| name.ends_with("-cert-v01@openssh.com"))
    }
}

/// Why the beginning of a stream says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No identification, or one of SSH 1.
    #[error("the peer does not identify itself as SSH 2")]
    NotSsh,
    /// A line or packet longer than any real one.
    #[error("the peer's first {0} is longer than RFC 4253 allows")]
    TooLong(&'static str),
    /// Something else came before the peer's algorithms.
    #[error("the peer sent message {0} before its algorithms")]
    Unexpected(u8),
    /// A packet that is not made as RFC 4253 §6 and §7.1 say.
    #[error("the peer's list of algorithms is malformed")]
    Malformed,
}

/// Reads the beginning of one direction of a connection. It keeps at most one packet, and only as much of that as has
/// arrived.
#[derive(Debug)]
pub struct Reader {
    held: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum State {
    Line { before: usize },
    Packet { software: String, before: usize },
    Over,
}

impl Default for Reader {
    fn default() -> Self {
        Self { held: Vec::new(), state: State::Line { before: 0 } }
    }
}

impl Reader {
    /// Looks at the next bytes. The answer comes once, with the byte that completes it; after that every call gives
    /// `None` and keeps nothing.
    pub fn read(&mut self, mut bytes: &[u8]) -> Option<Result<SshOffer, Unreadable>> {
        loop {
            let step = match &self.state {
                State::Over => return None,
                State::Line { .. } => self.line(&mut bytes),
                State::Packet { .. } => self.packet(&mut bytes),
            };
            match step {
                Ok(Step::More) => return None,
                Ok(Step::Next(state)) => {
                    self.held.clear();
                    self.state = state;
                }
                Ok(Step::Done(offer)) => return Some(self.end(Ok(offer))),
                Err(error) => return Some(self.end(Err(error))),
            }
        }
    }

    /// What the peer called itself, once its line has been read.
    #[must_use]
    pub fn software(&self) -> Option<&str> {
        match &self.state {
            State::Packet { software, .. } => Some(software),
            State::Line { .. } | State::Over => None,
        }
    }

    fn end(&mut self, answer: Result<SshOffer, Unreadable>) -> Result<SshOffer, Unreadable> {
        self.state = State::Over;
        self.held = Vec::new();
        answer
    }

    /// Moves bytes into `held` until it has `wanted`; false when there are not enough.
    fn fill(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let take = wanted.saturating_sub(self.held.len()).min(bytes.len());
        if let Some((now, later)) = bytes.split_at_checked(take) {
            self.held.extend_from_slice(now);
            *bytes = later;
        }
        self.held.len() >= wanted
    }

    fn line(&mut self, bytes: &mut &[u8]) -> Result<Step, Unreadable> {
        let State::Line { before } = self.state else { return Ok(Step::More) };
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let take = end.unwrap_or(bytes.len());
        if self.held.len() + take > LONGEST_LINE_BYTES {
            return Err(Unreadable::TooLong("line"));
        }
        let whole = self.held.len() + take;
        self.fill(bytes, whole);
        if end.is_none() {
            return Ok(Step::More);
        }
        let line = self.held.trim_ascii_end();
        match line.strip_prefix(b"SSH-") {
            None if before >= MOST_LINES => Err(Unreadable::NotSsh),
            None => Ok(Step::Next(State::Line { before: before + 1 })),
            // 1.99 is a server of SSH 2 that also speaks SSH 1 (RFC 4253 §5.1).
            Some(rest) => match rest.strip_prefix(b"2.0-").or_else(|| rest.strip_prefix(b"1.99-")) {
                Some(software) => Ok(Step::Next(State::Packet { software: printable(software), before: 0 })),
                None => Err(Unreadable::NotSsh),
            },
        }
    }

    fn packet(&mut self, bytes: &mut &[u8]) -> Result<Step, Unreadable> {
        if !self.fill(bytes, 4) {
            return Ok(Step::More);
        }
        let length = self.held.first_chunk().map(|length| u32::from_be_bytes(*length)).unwrap_or_default();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LONGEST_PACKET_BYTES {
            return Err(Unreadable::TooLong("packet"));
        }
        if !self.fill(bytes, 4 + length) {
            return Ok(Step::More);
        }
        // RFC 4253 §6: length, padding length, payload, padding; no MAC yet.
        let packet = self.held.get(4..).unwrap_or_default();
        let (padding, rest) = packet.split_first().ok_or(Unreadable::Malformed)?;
        let payload = rest.len().checked_sub(usize::from(*padding)).and_then(|length| rest.get(..length));
        let (message, content) = payload.and_then(<[u8]>::split_first).ok_or(Unreadable::Malformed)?;
        let State::Packet { software, before } = &self.state else { return Ok(Step::More) };
        match *message {
            SSH_MSG_KEXINIT => {
                kexinit(software.clone(), content).map(Step::Done).ok_or(Unreadable::Malformed)
            }
            SSH_MSG_IGNORE | SSH_MSG_UNIMPLEMENTED | SSH_MSG_DEBUG if *before < MOST_IDLE_MESSAGES => {
                Ok(Step::Next(State::Packet { software: software.clone(), before: before + 1 }))
            }
            other => Err(Unreadable::Unexpected(other)),
        }
    }
}

enum Step {
    /// All bytes are used up.
    More,
    Next(State),
    Done(SshOffer),
}

/// RFC 4253 §7.1: cookie, ten lists, a flag and a reserved number.
fn kexinit(software: String, content: &[u8]) -> Option<SshOffer> {
    let (_cookie, mut rest) = content.split_at_checked(16)?;
    let (flags, kex) = names(&mut rest)?.into_iter().partition(|name| is_flag(name));
    let host_key_algorithms = names(&mut rest)?;
    let ciphers = names(&mut rest)?;
    let _ciphers_to_client = names(&mut rest)?;
    let macs = names(&mut rest)?;
    let _macs_to_client = names(&mut rest)?;
    let compression = names(&mut rest)?;
    // Compression to the client and languages both ways: nothing here turns on them, but they must be there.
    for _ in 0..3 {
        names(&mut rest)?;
    }
    let offer = SshOffer { software, kex, host_key_algorithms, ciphers, macs, compression, flags };
    (rest.len() >= 5).then_some(offer)
}

/// Entries of the list of key exchange methods that are no method: `ext-info-c` (RFC 8308 §2.1) and OpenSSH's
/// `kex-strict-c-v00@openssh.com`.
pub(crate) fn is_flag(name: &str) -> bool {
    name.starts_with("ext-info-") || name.starts_with("kex-strict-")
}

/// RFC 4251 §5, "name-list". Names that are not printable or too long are left out.
fn names(rest: &mut &[u8]) -> Option<Vec<String>> {
    let (length, after) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (list, after) = after.split_at_checked(length)?;
    *rest = after;
    let names = list.split(|byte| *byte == b',');
    let fit = names.filter(|name| {
        !name.is_empty() && name.len() <= LONGEST_NAME_BYTES && name.iter().all(u8::is_ascii_graphic)
    });
    Some(fit.take(MOST_NAMES).map(printable).collect())
}

/// ASCII text; what is not printable becomes `?`.
fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    bytes.iter().map(shown).collect()
}

/// Whose connection it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// A user who proved who they are.
    User(String),
    /// No user who is known.
    Address(IpAddr),
}

/// A client that was here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// What it can do.
    pub offer: SshOffer,
    /// Whose it was, if the connection got that far or has an address.
    pub whose: Option<Whose>,
    /// Why it was sent away, when that was for what it cannot do.
    pub refused: Option<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(names: &str) -> Vec<u8> {
        let mut list = u32::try_from(names.len()).unwrap().to_be_bytes().to_vec();
        list.extend_from_slice(names.as_bytes());
        list
    }

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut packet = u32::try_from(payload.len() + 1 + 4).unwrap().to_be_bytes().to_vec();
        packet.push(4);
        packet.extend_from_slice(payload);
        packet.extend_from_slice(&[0; 4]);
        packet
    }

    fn kexinit_packet(lists: [&str; 10]) -> Vec<u8> {
        let mut payload = vec![SSH_MSG_KEXINIT];
        payload.extend_from_slice(&[7; 16]);
        lists.into_iter().for_each(|names| payload.extend(list(names)));
        payload.extend_from_slice(&[0; 5]);
        packet(&payload)
    }

    const LISTS: [&str; 10] = [
        "sntrup761x25519-sha512@openssh.com,curve25519-sha256,ext-info-c,kex-strict-c-v00@openssh.com",
        "ssh-ed25519-cert-v01@openssh.com,ssh-ed25519,rsa-sha2-512",
        "chacha20-poly1305@openssh.com,aes128-gcm@openssh.com",
        "aes256-ctr",
        "umac-64-etm@openssh.com,hmac-sha2-256",
        "hmac-sha1",
        "none",
        "none,zlib@openssh.com",
        "",
        "",
    ];

    fn openssh() -> Vec<u8> {
        [&b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"[..], &kexinit_packet(LISTS)].concat()
    }

    /// Feeds in the parts and gives the answer, with what came after it left unread.
    fn read<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Option<Result<SshOffer, Unreadable>> {
        let mut reader = Reader::default();
        let mut answers = parts.into_iter().filter_map(|part| reader.read(part));
        let answer = answers.next();
        assert_eq!(answers.next(), None, "a second answer");
        assert!(answer.is_none() || (reader.held.is_empty() && reader.held.capacity() == 0));
        answer
    }

    #[test]
    fn the_offer_of_an_openssh_client_is_read() {
        let offer = read([openssh().as_slice()]).unwrap().unwrap();
        assert_eq!(offer.software, "OpenSSH_9.2p1 Debian-2+deb12u3");
        assert_eq!(offer.kex, ["sntrup761x25519-sha512@openssh.com", "curve25519-sha256"]);
        assert_eq!(
            offer.host_key_algorithms,
            ["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519", "rsa-sha2-512"]
        );
        assert_eq!(offer.ciphers, ["chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com"]);
        assert_eq!(offer.macs, ["umac-64-etm@openssh.com", "hmac-sha2-256"]);
    }

    #[test]
    fn lines_and_idle_messages_in_front_are_passed_over() {
        let mut bytes = b"Welcome to the machine\r\n\nSSH-1.99-other\n".to_vec();
        bytes.extend(packet(&[SSH_MSG_IGNORE, 0, 0, 0, 0]));
        bytes.extend(packet(&[SSH_MSG_DEBUG]));
        bytes.extend(kexinit_packet(LISTS));
        assert_eq!(read([bytes.as_slice()]).unwrap().unwrap().software, "other");
    }

    #[test]
    fn what_is_not_ssh_is_given_up() {
        let cases: [(&[u8], Unreadable); 6] = [
            (b"SSH-1.5-old\r\n", Unreadable::NotSsh),
            (&[b'x'; 300], Unreadable::TooLong("line")),
            (b"SSH-2.0-x\r\n\xff\xff\xff\xff", Unreadable::TooLong("packet")),
            (b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x05\0\0\0\0\0\0\0\0\0\0", Unreadable::Unexpected(5)),
            (b"SSH-2.0-x\r\n\0\0\0\x0c\xff\x14\0\0\0\0\0\0\0\0\0\0", Unreadable::Malformed),
            (b"SSH-2.0-x\r\n\0\0\0\0", Unreadable::Malformed),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(read([bytes]), Some(Err(wanted)), "{bytes:?}");
        }
        let endless = b"hello\n".repeat(MOST_LINES + 1);
        assert_eq!(read([endless.as_slice()]), Some(Err(Unreadable::NotSsh)));
    }

    #[test]
    fn hostile_names_are_left_out_and_long_lists_cut() {
        let many = (0..500).map(|number| format!("kex-{number}")).collect::<Vec<_>>().join(",");
        let long = format!("{},fine,\u{1b}[2J,with space,,ok", "a".repeat(65));
        let mut lists = LISTS;
        (lists[0], lists[1]) = (&many, &long);
        let bytes = [&b"SSH-2.0-a\x1b[31m\xff\r\n"[..], &kexinit_packet(lists)].concat();
        let offer = read([bytes.as_slice()]).unwrap().unwrap();
        assert_eq!(offer.software, "a?[31m?");
        assert_eq!(offer.kex.len(), MOST_NAMES);
        assert_eq!(offer.host_key_algorithms, ["fine", "ok"]);
    }

    proptest! {
        #[test]
        fn the_answer_does_not_depend_on_how_the_bytes_are_split(
            cuts in prop::collection::vec(1usize..600, 0..20),
            tail in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let bytes = [openssh(), tail].concat();
            let mut parts = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (part, after) = rest.split_at(cut.min(rest.len()));
                parts.push(part);
                rest = after;
            }
            parts.push(rest);
            prop_assert_eq!(read(parts), read([openssh().as_slice()]));
        }

        #[test]
        fn no_bytes_make_it_panic_or_keep_more_than_a_packet(
            head in prop::sample::select(vec![&b""[..], b"SSH-2.0-x\n", b"SSH-2.0-x\r\n\0\0\x02\0\x04\x14"]),
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..6),
        ) {
            let mut reader = Reader::default();
            let mut over = reader.read(head).is_some();
            for part in parts {
                let answer = reader.read(&part);
                prop_assert!(!(over && answer.is_some()));
                over |= answer.is_some();
                prop_assert!(reader.held.len() <= LONGEST_PACKET_BYTES + 4);
            }
        }
    }
}
