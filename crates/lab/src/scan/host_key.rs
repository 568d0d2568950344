//! Asking an SSH server for its host keys, without being an SSH client.
//!
//! A server shows its host key and proves it in the clear, in the last message before encryption begins (RFC 4253 §8). It
//! is enough to send a public value that looks right and to read the answer. Nothing is agreed on, verified or believed.

/// Longest packet that is read (RFC 4253 §6.1).
const PACKET_BYTES: usize = 35_000;
/// Longest that lines before the packets may be in all.
const LINES_BYTES: usize = 16 * 1024;
/// Packets that are read; a real server sends three at most.
const MOST_PACKETS: usize = 16;

const DISCONNECT: u8 = 1;
const KEXINIT: u8 = 20;
const EXCHANGE_INIT: u8 = 30;
/// SSH_MSG_KEXDH_REPLY, SSH_MSG_KEX_ECDH_REPLY, and SSH_MSG_KEX_DH_GEX_GROUP, which shares their number.
const EXCHANGE_REPLY: u8 = 31;
const GROUP_REQUEST: u8 = 34;

/// A host key that a server showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// Its type: `ssh-rsa`, `ssh-ed25519`.
    pub kind: String,
    /// Length of the modulus of an RSA or DSA key, in bits.
    pub bits: Option<usize>,
    /// Length of the key as it is sent.
    pub bytes: usize,
    /// How it signed: `rsa-sha2-512`.
    pub signed_with: String,
    /// Length of the signature as it is sent.
    pub signature_bytes: usize,
}

/// What a server answered to a key exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Its host key.
    Key(HostKey),
    /// The prime that it gives to those who leave the choice to it (RFC 4419 §3), in bits.
    Prime(usize),
    /// It went away, with these words.
    Gone(String),
}

/// Why what came is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Something is longer than RFC 4253 allows.
    #[error("its {0} is longer than RFC 4253 allows")]
    TooLong(&'static str),
    /// Something is not made as the standards say.
    #[error("its {0} is malformed")]
    Malformed(&'static str),
    /// Packets that have no place here.
    #[error("it sends packets without end")]
    Endless,
}

/// Reads what a server says up to its answer, in whatever pieces it comes.
#[derive(Debug, Default)]
pub struct Reader {
    held: Vec<u8>,
    identified: bool,
    lines: usize,
    packets: usize,
}

impl Reader {
    /// Looks at the next bytes. The answer comes with the byte that completes it.
    ///
    /// # Errors
    /// [`Unreadable`]; nothing can be made of what follows.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Reply>, Unreadable> {
        self.held.extend_from_slice(bytes);
        loop {
            if !self.identified {
                let Some(end) = self.held.iter().position(|byte| *byte == b'\n') else {
                    let most = LINES_BYTES.saturating_sub(self.lines);
                    return if self.held.len() > most {
                        Err(Unreadable::TooLong("greeting"))
                    } else {
                        Ok(None)
                    };
                };
                let rest = self.held.split_off(end + 1);
                let line = std::mem::replace(&mut self.held, rest);
                self.lines += line.len();
                if self.lines > LINES_BYTES {
                    return Err(Unreadable::TooLong("greeting"));
                }
                self.identified = line.starts_with(b"SSH-");
                continue;
            }
            let Some(length) = self.held.first_chunk().map(|length| u32::from_be_bytes(*length)) else {
                return Ok(None);
            };
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > PACKET_BYTES {
                return Err(Unreadable::TooLong("packet"));
            }
            if self.held.len() < 4 + length {
                return Ok(None);
            }
            let rest = self.held.split_off(4 + length);
            let packet = std::mem::replace(&mut self.held, rest);
            self.packets += 1;
            if self.packets > MOST_PACKETS {
                return Err(Unreadable::Endless);
            }
            if let Some(reply) = packet_reply(packet.get(4..).unwrap_or_default())? {
                return Ok(Some(reply));
            }
        }
    }
}

fn packet_reply(packet: &[u8]) -> Result<Option<Reply>, Unreadable> {
    let malformed = Unreadable::Malformed("packet");
    let (padding, rest) = packet.split_first().ok_or(malformed)?;
    let payload = rest.len().checked_sub(usize::from(*padding)).and_then(|length| rest.get(..length));
    let (message, content) = payload.and_then(<[u8]>::split_first).ok_or(malformed)?;
    match *message {
        DISCONNECT => {
            let text = content.get(4..).and_then(|mut rest| string(&mut rest)).unwrap_or_default();
            Ok(Some(Reply::Gone(printable(text))))
        }
        EXCHANGE_REPLY => reply(content).map(Some).ok_or(Unreadable::Malformed("key exchange")),
        _ => Ok(None),
    }
}

/// RFC 4253 §8, RFC 5656 §4: host key, public value, signature. RFC 4419 §3: a prime and a generator.
fn reply(content: &[u8]) -> Option<Reply> {
    let mut rest = content;
    let first = string(&mut rest)?;
    let second = string(&mut rest)?;
    if rest.is_empty() {
        let _generator = second;
        return Some(Reply::Prime(bits(first)));
    }
    let signature = string(&mut rest)?;
    let mut key = first;
    let kind = string(&mut key)?;
    let is_certificate = kind.ends_with(b"-cert-v01@openssh.com");
    if is_certificate {
        // The nonce stands before the key (PROTOCOL.certkeys).
        string(&mut key)?;
    }
    let bits = if kind.starts_with(b"ssh-rsa") {
        let _exponent = string(&mut key)?;
        Some(bits(string(&mut key)?))
    } else if kind.starts_with(b"ssh-dss") {
        Some(bits(string(&mut key)?))
    } else {
        None
    };
    let signed_with = string(&mut &*signature)?;
    Some(Reply::Key(HostKey {
        kind: printable(kind),
        bits,
        bytes: first.len(),
        signed_with: printable(signed_with),
        signature_bytes: signature.len(),
    }))
}

/// A KEXINIT (RFC 4253 §7.1) with one method and one type of host key, and whatever the server has for the rest.
#[must_use]
pub fn offer(
    cookie: [u8; 16],
    method: &str,
    host_key: &str,
    cipher: &str,
    mac: &str,
    compression: &str,
) -> Vec<u8> {
    let mut payload = vec![KEXINIT];
    payload.extend_from_slice(&cookie);
    for names in [method, host_key, cipher, cipher, mac, mac, compression, compression, "", ""] {
        put(&mut payload, names.as_bytes());
    }
    payload.extend_from_slice(&[0; 5]);
    packet(&payload)
}

/// The client's side of an exchange: a public value, or a number, which look alike.
#[must_use]
pub fn public_value(value: &[u8]) -> Vec<u8> {
    let mut payload = vec![EXCHANGE_INIT];
    put(&mut payload, value);
    packet(&payload)
}

/// Asks for a group of this many bits (RFC 4419 §3): at least, best, at most.
#[must_use]
pub fn group_request(bits: [u32; 3]) -> Vec<u8> {
    let mut payload = vec![GROUP_REQUEST];
    bits.iter().for_each(|bits| payload.extend_from_slice(&bits.to_be_bytes()));
    packet(&payload)
}

/// RFC 4253 §6, before encryption: a multiple of eight bytes with at least four of padding.
fn packet(payload: &[u8]) -> Vec<u8> {
    let padding = 4 + (8 - (5 + payload.len() + 4) % 8) % 8;
    let length = u32::try_from(1 + payload.len() + padding).unwrap_or(u32::MAX);
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).unwrap_or(4));
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + padding, 0);
    packet
}

fn put(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(content);
}

/// RFC 4251 §5, "string" and "mpint".
fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let (taken, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = after;
    Some(taken)
}

fn bits(number: &[u8]) -> usize {
    let significant = number.iter().position(|byte| *byte != 0).and_then(|at| number.get(at..));
    significant.map_or(0, |bytes| {
        let leading = bytes.first().map_or(0, |byte| byte.leading_zeros());
        bytes.len() * 8 - usize::try_from(leading).unwrap_or_default()
    })
}

fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    bytes.iter().take(200).map(shown).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn strings(parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        parts.iter().for_each(|part| put(&mut out, part));
        out
    }

    fn server(key: &[u8], signature: &[u8]) -> Vec<u8> {
        let answer = [&[EXCHANGE_REPLY][..], &strings(&[key, &[9; 32], signature])].concat();
        [
            &b"a banner\r\nSSH-2.0-OpenSSH_9.2p1\r\n"[..],
            &offer([7; 16], "curve25519-sha256", "rsa-sha2-512", "aes128-ctr", "hmac-sha2-256", "none"),
            &packet(&answer),
        ]
        .concat()
    }

    fn read(bytes: &[u8], step: usize) -> Result<Option<Reply>, Unreadable> {
        let mut reader = Reader::default();
        for part in bytes.chunks(step) {
            if let Some(reply) = reader.read(part)? {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    #[test]
    fn keys_are_read_with_their_sizes_in_whatever_pieces_they_come() {
        let modulus = [&[0][..], &[0xc0; 384]].concat();
        let plain = strings(&[b"ssh-rsa", &[1, 0, 1], &modulus]);
        let certified = strings(&[b"ssh-rsa-cert-v01@openssh.com", &[5; 32], &[1, 0, 1], &modulus, b"more"]);
        let signature = strings(&[b"rsa-sha2-512", &[1; 384]]);
        for key in [plain, certified] {
            for step in [1, 7, 100_000] {
                let Some(Reply::Key(found)) = read(&server(&key, &signature), step).unwrap() else {
                    panic!("no key")
                };
                assert_eq!((found.bits, found.signed_with.as_str()), (Some(3072), "rsa-sha2-512"));
                assert_eq!((found.bytes, found.signature_bytes), (key.len(), signature.len()));
            }
        }
        let short = strings(&[b"ssh-ed25519", &[3; 32]]);
        let Some(Reply::Key(found)) =
            read(&server(&short, &strings(&[b"ssh-ed25519", &[1; 64]])), 9).unwrap()
        else {
            panic!("no key")
        };
        assert_eq!((found.kind.as_str(), found.bits, found.bytes), ("ssh-ed25519", None, 51));
    }

    #[test]
    fn groups_and_farewells_are_told_apart_from_keys() {
        let prime = [&[0][..], &[0xff; 256]].concat();
        let group = [&[EXCHANGE_REPLY][..], &strings(&[&prime, &[2]])].concat();
        let with = |payload: &[u8]| [&b"SSH-2.0-x\n"[..], &packet(payload)].concat();
        assert_eq!(read(&with(&group), 5), Ok(Some(Reply::Prime(2048))));
        let gone =
            [&[DISCONNECT, 0, 0, 0, 2][..], &strings(&[b"too many\nauthentication failures", b""])].concat();
        let Ok(Some(Reply::Gone(words))) = read(&with(&gone), 5) else { panic!("still there") };
        assert_eq!(words, "too many?authentication failures");
    }

    #[test]
    fn nonsense_is_refused_within_bounds() {
        assert_eq!(read(&[b'x'; 20_000], 1000), Err(Unreadable::TooLong("greeting")));
        assert_eq!(read(&b"lines\n".repeat(5000), 1000), Err(Unreadable::TooLong("greeting")));
        assert_eq!(read(b"SSH-2.0-x\n\x7f\0\0\0", 3), Err(Unreadable::TooLong("packet")));
        assert_eq!(read(b"SSH-2.0-x\n\0\0\0\0", 3), Err(Unreadable::Malformed("packet")));
        assert_eq!(read(b"SSH-2.0-x\n\0\0\0\x02\x04\x1f", 3), Err(Unreadable::Malformed("packet")));
        let ignored = [&b"SSH-2.0-x\n"[..], &packet(&[2, 0, 0, 0, 0]).repeat(17)].concat();
        assert_eq!(read(&ignored, 64), Err(Unreadable::Endless));
        assert_eq!(
            read(&[&b"SSH-2.0-x\n"[..], &packet(&[31, 0, 0])].concat(), 3),
            Err(Unreadable::Malformed("key exchange"))
        );
    }

    #[test]
    fn what_is_sent_is_made_as_the_standard_says() {
        for packet in [
            offer([1; 16], "a", "b", "c", "d", "none"),
            public_value(&[1; 32]),
            group_request([2048, 3072, 8192]),
        ] {
            assert_eq!(packet.len() % 8, 0);
            let length = u32::from_be_bytes(packet[..4].try_into().unwrap());
            assert!(usize::try_from(length).unwrap() == packet.len() - 4 && packet[4] >= 4, "{packet:?}");
        }
    }
}
