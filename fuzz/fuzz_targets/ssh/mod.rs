//! The far end of a connection whose keys are truly exchanged, so that every message arrives: curve25519-sha256 (RFC 8731), packets
//! under AES-GCM (RFC 5647), and messages that are put together of an input.

pub(super) mod number;

use sallyport_sal::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm};
use sallyport_sal::provider::{AeadKey, Agreement};
use sallyport_sal::{Primitive, hash, selection};

use number::{
    CHANNEL_CLOSE, CHANNEL_DATA, CHANNEL_EOF, CHANNEL_EXTENDED_DATA, CHANNEL_FAILURE,
    CHANNEL_OPEN_CONFIRMATION, CHANNEL_OPEN_FAILURE, CHANNEL_REQUEST, CHANNEL_SUCCESS, CHANNEL_WINDOW_ADJUST,
    KEXINIT,
};

const CIPHER: AeadAlgorithm = AeadAlgorithm::Aes256Gcm;
const TAG_BYTES: usize = 16;

/// A `string` (RFC 4251 §5).
pub(super) fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The field of a message that begins at `at`, a `string`; empty where there is none.
pub(super) fn string_at(payload: &[u8], at: usize) -> &[u8] {
    let rest = payload.get(at..).unwrap_or_default();
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return &[] };
    rest.get(..u32::from_be_bytes(*length) as usize).unwrap_or_default()
}

/// What is left of the input; zeros behind its end.
pub(super) struct Script<'a>(pub(super) &'a [u8]);

impl Script<'_> {
    pub(super) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    pub(super) fn string(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte());
        string(&self.bytes(length))
    }

    /// Mostly a name that means something, as a `string`.
    pub(super) fn name(&mut self, known: &[&str]) -> Vec<u8> {
        match self.byte() {
            how @ 0..=239 => string(known[usize::from(how) % known.len()].as_bytes()),
            _ => self.string(),
        }
    }

    /// Mostly the number of an open channel.
    pub(super) fn channel(&mut self, open: &[[u8; 4]]) -> [u8; 4] {
        match self.byte() {
            how @ 0..=239 if !open.is_empty() => open[usize::from(how) % open.len()],
            other => [other, 0, 0, other.wrapping_sub(239)],
        }
    }

    pub(super) fn number(&mut self) -> [u8; 4] {
        match self.byte() {
            255 => [255; 4],
            other => (u32::from(other) << (other & 15)).to_be_bytes(),
        }
    }

    /// A message that either side says of a channel.
    pub(super) fn on_channel(&mut self, how: u8, open: &[[u8; 4]]) -> Vec<u8> {
        match how {
            0 => [&[CHANNEL_DATA][..], &self.channel(open), &self.string()].concat(),
            1 => {
                let length = usize::from(self.byte()) << 8;
                [&[CHANNEL_DATA][..], &self.channel(open), &string(&vec![b'x'; length])].concat()
            }
            2 => [&[CHANNEL_EXTENDED_DATA][..], &self.channel(open), &self.number(), &self.string()].concat(),
            3 => [&[CHANNEL_WINDOW_ADJUST][..], &self.channel(open), &self.number()].concat(),
            4 => [&[CHANNEL_EOF][..], &self.channel(open)].concat(),
            5 => [&[CHANNEL_CLOSE][..], &self.channel(open)].concat(),
            6 => [&[CHANNEL_SUCCESS][..], &self.channel(open)].concat(),
            7 => [&[CHANNEL_FAILURE][..], &self.channel(open)].concat(),
            8 => [&[CHANNEL_REQUEST][..], &self.channel(open), &self.string(), &[self.byte()]].concat(),
            9 => {
                let (channel, sender) = (self.channel(open), self.number());
                [&[CHANNEL_OPEN_CONFIRMATION][..], &channel, &sender, &self.number(), &self.number()].concat()
            }
            _ => {
                let (channel, code) = (self.channel(open), self.number());
                [&[CHANNEL_OPEN_FAILURE][..], &channel, &code, &self.string()].concat()
            }
        }
    }
}

/// A KEXINIT whose names are these.
pub(super) fn proposal(methods: &str, host_keys: &str) -> Vec<u8> {
    let (cipher, none) = (CIPHER.ssh_name(), "none");
    let lists = [methods, host_keys, cipher, cipher, none, none, none, none, "", ""];
    let lists = lists.map(|list| string(list.as_bytes())).concat();
    [&[KEXINIT][..], &[7; 16], &lists, &[0; 5]].concat()
}

/// One direction's key, and the nonce of its next packet (RFC 5647 §7.1).
pub(super) struct Keyed(Box<dyn AeadKey>, [u8; 12]);

impl Keyed {
    fn nonce(&mut self) -> [u8; 12] {
        let nonce = self.1;
        let (_, counter) = self.1.split_last_chunk_mut::<8>().unwrap();
        *counter = (u64::from_be_bytes(*counter).wrapping_add(1)).to_be_bytes();
        nonce
    }
}

/// What goes and what comes, in packets.
#[derive(Default)]
pub(super) struct Packets {
    pub(super) sending: Option<Keyed>,
    pub(super) receiving: Option<Keyed>,
    pub(super) out: Vec<u8>,
    /// The peer's first line.
    pub(super) theirs: Option<Vec<u8>>,
    heard: Vec<u8>,
}

impl Packets {
    /// Begins with a line.
    pub(super) fn greet(greeting: &str) -> Self {
        Self { out: [greeting.as_bytes(), b"\r\n"].concat(), ..Self::default() }
    }

    /// Puts a message into a packet.
    pub(super) fn say(&mut self, payload: &[u8]) {
        let (block, ahead) = if self.sending.is_some() { (16, 0) } else { (8, 4) };
        let mut padding = block - (ahead + 1 + payload.len()) % block;
        if padding < 4 {
            padding += block;
        }
        let head = u32::try_from(1 + payload.len() + padding).unwrap().to_be_bytes();
        let mut body = [&[u8::try_from(padding).unwrap()], payload, &vec![0; padding]].concat();
        self.out.extend_from_slice(&head);
        let tag = self.sending.as_mut().map(|keyed| {
            let nonce = keyed.nonce();
            keyed.0.seal(&nonce, &head, &mut body).unwrap()
        });
        self.out.extend_from_slice(&body);
        self.out.extend(tag.iter().flatten());
    }

    /// Takes the peer's bytes.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
        if self.theirs.is_none()
            && let Some(end) = self.heard.iter().position(|byte| *byte == b'\n')
        {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            self.theirs = Some(line.trim_ascii_end().to_vec());
        }
    }

    /// The next message of the peer's, which is under its key.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let head = self.heard.first_chunk::<4>().copied().filter(|_| self.theirs.is_some())?;
        let length = u32::from_be_bytes(head) as usize;
        let tag = if self.receiving.is_some() { TAG_BYTES } else { 0 };
        if self.heard.len() < 4 + length + tag {
            return None;
        }
        let packet: Vec<u8> = self.heard.drain(..4 + length + tag).skip(4).collect();
        let (body, tag) = packet.split_at(length);
        let mut body = body.to_vec();
        if let Some(keyed) = &mut self.receiving {
            let (nonce, tag) = (keyed.nonce(), tag.first_chunk().unwrap());
            keyed.0.open(&nonce, &head, &mut body, tag).expect("the peer's own packet");
        }
        Some(body[1..length - usize::from(body[0])].to_vec())
    }
}

/// A side of X25519.
pub(super) fn begin() -> Box<dyn Agreement> {
    selection::global()
        .run(Primitive::Agree(DhGroup::X25519), |provider| provider.start_agreement(DhGroup::X25519))
        .unwrap()
}

/// What is hashed of an exchange beside its secret (RFC 5656 §4).
pub(super) struct Said<'a> {
    pub(super) client_line: &'a [u8],
    pub(super) server_line: &'a [u8],
    pub(super) client_proposal: &'a [u8],
    pub(super) server_proposal: &'a [u8],
    pub(super) host_key: &'a [u8],
    pub(super) client_share: &'a [u8],
    pub(super) server_share: &'a [u8],
}

/// What an exchange leads to.
pub(super) struct Exchanged {
    pub(super) digest: [u8; 32],
    /// The secret, as an `mpint`.
    number: Vec<u8>,
}

impl Exchanged {
    pub(super) fn new(side: Box<dyn Agreement>, theirs: &[u8], said: &Said<'_>) -> Self {
        let secret = side.finish(theirs).unwrap();
        let bytes = secret.as_bytes();
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        let sign: &[u8] = if bytes[0] & 0x80 != 0 { &[0] } else { &[] };
        let number = string(&[sign, bytes].concat());
        let parts = [
            said.client_line,
            said.server_line,
            said.client_proposal,
            said.server_proposal,
            said.host_key,
            said.client_share,
            said.server_share,
        ];
        let digest = hash::sha256(&[parts.map(string).concat(), number.clone()].concat());
        Self { digest, number }
    }

    /// The keys to the server and to the client (RFC 4253 §7.2).
    pub(super) fn keys(&self, session: &[u8; 32]) -> (Keyed, Keyed) {
        let keyed = |nonce: u8, key: u8| {
            let derived = |letter: u8| {
                let mut out = [0; 32];
                let parts: [&[u8]; 4] = [&self.number, &self.digest, &[letter], session];
                hash::digest(HashAlgorithm::Sha256, &parts, &mut out);
                out
            };
            let key = selection::global()
                .run(Primitive::Aead(CIPHER), |provider| provider.aead(CIPHER, &derived(key)))
                .unwrap();
            Keyed(key, derived(nonce)[..12].try_into().unwrap())
        };
        (keyed(b'A', b'C'), keyed(b'B', b'D'))
    }
}
