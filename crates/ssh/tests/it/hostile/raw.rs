//! An SSH client that does what it is told, however wrong: version, key exchange, authentication and packets by hand.
//!
//! curve25519-sha256 and aes128-gcm@openssh.com only, whatever host answers: these tests are about the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::algorithm::{AeadAlgorithm, DhGroup};
use sallyport_sal::provider::{self, AeadKey, Provider};

pub(crate) const VERSION: &str = "SSH-2.0-hostile_1";

/// Messages of RFC 4253, 4252 and 4254.
pub(crate) mod message {
    pub(crate) const DISCONNECT: u8 = 1;
    pub(crate) const IGNORE: u8 = 2;
    pub(crate) const SERVICE_REQUEST: u8 = 5;
    pub(crate) const KEXINIT: u8 = 20;
    pub(crate) const NEWKEYS: u8 = 21;
    pub(crate) const ECDH_INIT: u8 = 30;
    pub(crate) const ECDH_REPLY: u8 = 31;
    pub(crate) const USERAUTH_REQUEST: u8 = 50;
    pub(crate) const USERAUTH_FAILURE: u8 = 51;
    pub(crate) const USERAUTH_SUCCESS: u8 = 52;
    pub(crate) const USERAUTH_PK_OK: u8 = 60;
    pub(crate) const GLOBAL_REQUEST: u8 = 80;
    pub(crate) const REQUEST_SUCCESS: u8 = 81;
    pub(crate) const REQUEST_FAILURE: u8 = 82;
    pub(crate) const CHANNEL_OPEN: u8 = 90;
    pub(crate) const CHANNEL_CONFIRMATION: u8 = 91;
    pub(crate) const CHANNEL_FAILURE: u8 = 92;
    pub(crate) const WINDOW_ADJUST: u8 = 93;
    pub(crate) const CHANNEL_DATA: u8 = 94;
    pub(crate) const CHANNEL_CLOSE: u8 = 97;
    pub(crate) const CHANNEL_REQUEST: u8 = 98;
}

/// Builds a message.
#[derive(Clone)]
pub(crate) struct Packet(pub(crate) Vec<u8>);

impl Packet {
    pub(crate) fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub(crate) fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn number(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn string(mut self, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.0.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn raw(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }
}

fn string(value: &[u8]) -> Vec<u8> {
    Packet(Vec::new()).string(value).0
}

/// A positive number as RFC 4251 §5 has it.
fn mpint(value: &[u8]) -> Vec<u8> {
    let value: Vec<u8> = value.iter().copied().skip_while(|byte| *byte == 0).collect();
    let mut padded = if value.first().is_some_and(|first| first & 0x80 != 0) { vec![0] } else { Vec::new() };
    padded.extend(value);
    string(&padded)
}

/// Takes a string off the front.
pub(crate) fn take_string<'a>(from: &mut &'a [u8]) -> &'a [u8] {
    let (length, rest) = from.split_at(4);
    let (value, rest) = rest.split_at(u32::from_be_bytes(length.try_into().unwrap()) as usize);
    *from = rest;
    value
}

pub(crate) fn number_at(from: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(from[at..at + 4].try_into().unwrap())
}

struct Direction {
    key: Box<dyn AeadKey>,
    nonce: [u8; 12],
}

impl Direction {
    fn next_nonce(&mut self) -> [u8; 12] {
        let nonce = self.nonce;
        let count = u64::from_be_bytes(nonce[4..].try_into().unwrap()).wrapping_add(1);
        self.nonce[4..].copy_from_slice(&count.to_be_bytes());
        nonce
    }
}

pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    provider: &'static dyn Provider,
    server_version: String,
    out: Option<Direction>,
    back: Option<Direction>,
    session: Vec<u8>,
    buffered: Vec<u8>,
}

impl Raw {
    /// Connects and exchanges versions.
    pub(crate) fn greet(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("{VERSION}\r\n").as_bytes())?;
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") {
            stream.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        let server_version = String::from_utf8(line).unwrap().trim_end().to_owned();
        let provider = provider::by_name("aws-lc").unwrap();
        let (out, back) = (None, None);
        Ok(Self { stream, provider, server_version, out, back, session: Vec::new(), buffered: Vec::new() })
    }

    /// As far as a connection with keys.
    pub(crate) fn keyed(address: SocketAddr) -> io::Result<Self> {
        let mut raw = Self::greet(address)?;
        raw.exchange()?;
        Ok(raw)
    }

    /// As far as an authenticated connection.
    pub(crate) fn authenticated(
        address: SocketAddr,
        login: &str,
        key: &SshKeyPair,
        certificate: &[u8],
    ) -> io::Result<Self> {
        let mut raw = Self::keyed(address)?;
        raw.service()?;
        let answer = raw.authenticate(login, key, certificate)?;
        assert_eq!(answer, message::USERAUTH_SUCCESS);
        Ok(raw)
    }

    pub(crate) fn kexinit() -> Packet {
        let mut packet = Packet::new(message::KEXINIT).raw(&[7; 16]).string("curve25519-sha256");
        packet = packet.string("ssh-ed25519-cert-v01@openssh.com,ssh-ed25519");
        for _ in 0..2 {
            packet = packet.string("aes128-gcm@openssh.com");
        }
        for _ in 0..2 {
            packet = packet.string("hmac-sha2-256");
        }
        for _ in 0..2 {
            packet = packet.string("none");
        }
        packet.string("").string("").byte(0).number(0)
    }

    /// A key exchange, the first or another.
    pub(crate) fn exchange(&mut self) -> io::Result<()> {
        let mine = Self::kexinit();
        self.send(&mine)?;
        let theirs = self.receive_kind(message::KEXINIT)?;
        let agreement = self.provider.start_agreement(DhGroup::X25519).unwrap();
        let share = agreement.share().to_vec();
        self.send(&Packet::new(message::ECDH_INIT).string(&share))?;
        let reply = self.receive_kind(message::ECDH_REPLY)?;
        let mut rest = &reply[1..];
        let (host_key, their_share) = (take_string(&mut rest), take_string(&mut rest));
        let secret = mpint(agreement.finish(their_share).unwrap().as_bytes());
        let hash = sallyport_sal::hash::sha256(
            &[
                string(VERSION.as_bytes()),
                string(self.server_version.as_bytes()),
                string(&mine.0),
                string(&theirs),
                string(host_key),
                string(&share),
                string(their_share),
                secret.clone(),
            ]
            .concat(),
        );
        if self.session.is_empty() {
            self.session = hash.to_vec();
        }
        let derive = |letter: u8| {
            sallyport_sal::hash::sha256(&[&secret[..], &hash[..], &[letter][..], &self.session[..]].concat())
        };
        let direction = |nonce: u8, key: u8| Direction {
            key: self.provider.aead(AeadAlgorithm::Aes128Gcm, &derive(key)[..16]).unwrap(),
            nonce: derive(nonce)[..12].try_into().unwrap(),
        };
        let (out, back) = (direction(b'A', b'C'), direction(b'B', b'D'));
        self.send(&Packet::new(message::NEWKEYS))?;
        self.out = Some(out);
        self.receive_kind(message::NEWKEYS)?;
        self.back = Some(back);
        Ok(())
    }

    pub(crate) fn service(&mut self) -> io::Result<()> {
        self.send(&Packet::new(message::SERVICE_REQUEST).string("ssh-userauth"))?;
        self.receive_kind(6).map(|_| ())
    }

    /// Tries a certificate, and gives the answer: success or failure.
    pub(crate) fn authenticate(
        &mut self,
        login: &str,
        key: &SshKeyPair,
        certificate: &[u8],
    ) -> io::Result<u8> {
        self.prove(login, "ssh-ed25519-cert-v01@openssh.com", certificate, |signed| {
            [string(b"ssh-ed25519"), string(&key.signer().sign(signed).unwrap())].concat()
        })
    }

    /// Tries a key or certificate of any algorithm, with what `sign` makes of the request, and gives the answer: success or failure.
    pub(crate) fn prove(
        &mut self,
        login: &str,
        algorithm: &str,
        key: &[u8],
        sign: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> io::Result<u8> {
        let request = Self::request(login, algorithm, key, 1);
        let signature = sign(&[string(&self.session), request.0.clone()].concat());
        self.send(&request.string(signature))?;
        self.answer()
    }

    /// Asks whether a key or certificate would do (RFC 4252 §7), and gives the answer: that it would, or failure.
    pub(crate) fn would_do(&mut self, login: &str, algorithm: &str, key: &[u8]) -> io::Result<u8> {
        self.send(&Self::request(login, algorithm, key, 0))?;
        self.answer()
    }

    fn request(login: &str, algorithm: &str, key: &[u8], is_signed: u8) -> Packet {
        let request = Packet::new(message::USERAUTH_REQUEST).string(login).string("ssh-connection");
        request.string("publickey").byte(is_signed).string(algorithm).string(key)
    }

    fn answer(&mut self) -> io::Result<u8> {
        loop {
            let answer = self.receive()?[0];
            if matches!(
                answer,
                message::USERAUTH_FAILURE | message::USERAUTH_SUCCESS | message::USERAUTH_PK_OK
            ) {
                return Ok(answer);
            }
        }
    }

    pub(crate) fn send(&mut self, packet: &Packet) -> io::Result<()> {
        let bytes = self.encode(packet);
        self.stream.write_all(&bytes)
    }

    /// Many at once, in one write.
    pub(crate) fn send_all(&mut self, packets: impl Iterator<Item = Packet>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for packet in packets {
            bytes.extend(self.encode(&packet));
        }
        self.stream.write_all(&bytes)
    }

    fn encode(&mut self, packet: &Packet) -> Vec<u8> {
        let payload = &packet.0;
        // RFC 4253 §6: at least four bytes of padding, to a multiple of 16 with AES; the length does not count there
        // with GCM (RFC 5647 §7.2).
        let uncounted = if self.out.is_some() { 0 } else { 4 };
        let mut padding = 16 - (uncounted + 1 + payload.len()) % 16;
        if padding < 4 {
            padding += 16;
        }
        let length = u32::try_from(1 + payload.len() + padding).unwrap().to_be_bytes();
        let mut body = vec![u8::try_from(padding).unwrap()];
        body.extend_from_slice(payload);
        body.extend(std::iter::repeat_n(0, padding));
        let mut bytes = length.to_vec();
        match &mut self.out {
            None => bytes.extend(body),
            Some(direction) => {
                let nonce = direction.next_nonce();
                let tag = direction.key.seal(&nonce, &length, &mut body).unwrap();
                bytes.extend(body);
                bytes.extend(tag);
            }
        }
        bytes
    }

    pub(crate) fn receive(&mut self) -> io::Result<Vec<u8>> {
        let tag = if self.back.is_some() { 16 } else { 0 };
        self.fill(4)?;
        let length = number_at(&self.buffered, 0) as usize;
        if length > 1 << 20 {
            return Err(io::Error::other(format!("a packet of {length} bytes")));
        }
        self.fill(4 + length + tag)?;
        let bytes: Vec<u8> = self.buffered.drain(..4 + length + tag).collect();
        let mut body = bytes[4..4 + length].to_vec();
        if let Some(direction) = &mut self.back {
            let nonce = direction.next_nonce();
            let tag = bytes[4 + length..].try_into().unwrap();
            direction.key.open(&nonce, &bytes[..4], &mut body, &tag).map_err(|_| io::Error::other("tag"))?;
        }
        let padding = usize::from(body[0]);
        Ok(body[1..length - padding].to_vec())
    }

    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let mut block = [0; 16 * 1024];
        while self.buffered.len() < wanted {
            let read = match self.stream.read(&mut block) {
                // A child of this process may end at any time, and its signal ends a read that has a timeout (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffered.extend_from_slice(&block[..read]);
        }
        Ok(())
    }

    /// The next packet of this kind; others are dropped on the way.
    pub(crate) fn receive_kind(&mut self, kind: u8) -> io::Result<Vec<u8>> {
        loop {
            let packet = self.receive()?;
            if packet[0] == kind {
                return Ok(packet);
            }
            if packet[0] == message::DISCONNECT {
                return Err(io::Error::other(String::from_utf8_lossy(&packet[9..]).into_owned()));
            }
        }
    }

    pub(crate) fn open(number: u32, window: u32, most: u32) -> Packet {
        Packet::new(message::CHANNEL_OPEN).string("session").number(number).number(window).number(most)
    }

    pub(crate) fn exec(channel: u32, command: impl AsRef<[u8]>) -> Packet {
        Packet::new(message::CHANNEL_REQUEST).number(channel).string("exec").byte(1).string(command)
    }
}
