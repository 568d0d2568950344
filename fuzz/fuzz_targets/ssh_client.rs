//! What a server says to the pipelined client once keys are exchanged: during the login, on the channel, and when keys are
//! renewed. The exchange is a true one, so that every message arrives; what it says is the input's.
//!
//! The first byte says what the server is like. Of the rest each message takes a byte that says which it is, and what it is made of.

use std::sync::LazyLock;

use bytes::Bytes;
use sallyport_ca::keys::{ssh_public_key, ssh_signature};
use sallyport_sal::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm};
use sallyport_sal::provider::AeadKey;
use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, MemoryKey, Primitive, Signer, hash, selection};
use sallyport_ssh::client::{Program, SessionRequest, Terminal, WindowSize};
use sallyport_ssh::pipelined::{Asked, Breach, Event, Limits, Login, Machine, Opening};

const OURS: &str = "SSH-2.0-fuzz";
const CIPHER: AeadAlgorithm = AeadAlgorithm::Aes256Gcm;
const TAG_BYTES: usize = 16;
/// Bytes that the client may answer to one message: lists of algorithms, a login and a session's requests fit.
const LONGEST_ANSWER_BYTES: usize = 256 * 1024;

/// RFC 4250 §4.1.2.
const DISCONNECT: u8 = 1;
const SERVICE_ACCEPT: u8 = 6;
const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;
const ECDH_INIT: u8 = 30;
const ECDH_REPLY: u8 = 31;
const USERAUTH_FAILURE: u8 = 51;
const USERAUTH_SUCCESS: u8 = 52;
const USERAUTH_BANNER: u8 = 53;
const GLOBAL_REQUEST: u8 = 80;
const CHANNEL_OPEN: u8 = 90;
const CHANNEL_OPEN_CONFIRMATION: u8 = 91;
const CHANNEL_OPEN_FAILURE: u8 = 92;
const CHANNEL_WINDOW_ADJUST: u8 = 93;
const CHANNEL_DATA: u8 = 94;
const CHANNEL_EXTENDED_DATA: u8 = 95;
const CHANNEL_EOF: u8 = 96;
const CHANNEL_CLOSE: u8 = 97;
const CHANNEL_REQUEST: u8 = 98;
const CHANNEL_SUCCESS: u8 = 99;
const CHANNEL_FAILURE: u8 = 100;

static KEY: LazyLock<MemoryKey> = LazyLock::new(|| MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap());

/// What is left of the input; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    fn string(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte());
        string(&self.bytes(length))
    }

    /// Mostly the channel's number.
    fn channel(&mut self) -> [u8; 4] {
        match self.byte() {
            0..=239 => [0; 4],
            other => [other, 0, 0, other - 239],
        }
    }

    fn number(&mut self) -> [u8; 4] {
        match self.byte() {
            255 => [255; 4],
            other => (u32::from(other) << (other & 15)).to_be_bytes(),
        }
    }

    /// A message that servers say, of parts that they may not.
    fn message(&mut self, how: u8) -> Vec<u8> {
        let kinds: [&[u8]; 5] =
            [b"session", b"x11", b"auth-agent@openssh.com", b"forwarded-tcpip", b"tun@openssh.com"];
        match how % 20 {
            0 => [&[CHANNEL_DATA][..], &self.channel(), &self.string()].concat(),
            1 => {
                let length = usize::from(self.byte()) << 8;
                [&[CHANNEL_DATA][..], &self.channel(), &string(&vec![b'x'; length])].concat()
            }
            2 => [&[CHANNEL_EXTENDED_DATA][..], &self.channel(), &self.number(), &self.string()].concat(),
            3 => [&[CHANNEL_WINDOW_ADJUST][..], &self.channel(), &self.number()].concat(),
            4 => [&[CHANNEL_EOF][..], &self.channel()].concat(),
            5 => [&[CHANNEL_CLOSE][..], &self.channel()].concat(),
            6 => [&[CHANNEL_SUCCESS][..], &self.channel()].concat(),
            7 => [&[CHANNEL_FAILURE][..], &self.channel()].concat(),
            8 => {
                let kind = string(kinds[usize::from(self.byte()) % kinds.len()]);
                let (sender, window, most) = (self.number(), self.number(), self.number());
                [&[CHANNEL_OPEN][..], &kind, &sender, &window, &most, &self.string(), &self.number()].concat()
            }
            9 => {
                let (channel, sender) = (self.channel(), self.number());
                [&[CHANNEL_OPEN_CONFIRMATION][..], &channel, &sender, &self.number(), &self.number()].concat()
            }
            10 => [&[CHANNEL_OPEN_FAILURE][..], &self.channel(), &self.number(), &self.string()].concat(),
            11 => {
                let (channel, status) = (self.channel(), self.number());
                [&[CHANNEL_REQUEST][..], &channel, &string(b"exit-status"), &[self.byte()], &status].concat()
            }
            12 => {
                let (channel, name) = (self.channel(), self.string());
                let (kind, flags) = (string(b"exit-signal"), self.byte());
                [&[CHANNEL_REQUEST][..], &channel, &kind, &[flags & 1], &name, &[flags & 2], &self.string()]
                    .concat()
            }
            13 => [&[CHANNEL_REQUEST][..], &self.channel(), &self.string(), &[self.byte()]].concat(),
            14 => [&[GLOBAL_REQUEST][..], &self.string(), &[self.byte()]].concat(),
            15 => [&[USERAUTH_BANNER][..], &self.string()].concat(),
            16 => [&[USERAUTH_FAILURE][..], &self.string(), &[self.byte()]].concat(),
            17 => [&[DISCONNECT][..], &self.number(), &self.string()].concat(),
            18 => vec![USERAUTH_SUCCESS],
            _ => [&[SERVICE_ACCEPT][..], &self.string()].concat(),
        }
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// One direction's key, and the nonce of its next packet (RFC 5647 §7.1).
struct Keyed(Box<dyn AeadKey>, [u8; 12]);

impl Keyed {
    fn nonce(&mut self) -> [u8; 12] {
        let nonce = self.1;
        let (_, counter) = self.1.split_last_chunk_mut::<8>().unwrap();
        *counter = (u64::from_be_bytes(*counter).wrapping_add(1)).to_be_bytes();
        nonce
    }
}

/// The other end: honest about its keys, unless it is to forge.
struct Server {
    greeting: &'static str,
    strict: bool,
    forges: bool,
    sending: Option<Keyed>,
    receiving: Option<Keyed>,
    next: Option<Keyed>,
    heard: Vec<u8>,
    out: Vec<u8>,
    /// The client's first line.
    theirs: Option<Vec<u8>>,
    our_proposal: Vec<u8>,
    their_proposal: Vec<u8>,
    proposing: bool,
    session: Option<[u8; 32]>,
}

impl Server {
    fn new(flags: u8) -> Self {
        let greeting = if flags & 1 == 0 { "SSH-2.0-OpenSSH_9.2" } else { "SSH-2.0-other" };
        let mut server = Self {
            greeting,
            strict: flags & 2 == 0,
            forges: flags & 0xf0 == 0xf0,
            sending: None,
            receiving: None,
            next: None,
            heard: Vec::new(),
            out: Vec::new(),
            theirs: None,
            our_proposal: Vec::new(),
            their_proposal: Vec::new(),
            proposing: false,
            session: None,
        };
        server.out.extend_from_slice(greeting.as_bytes());
        server.out.extend_from_slice(b"\r\n");
        server.propose();
        server
    }

    fn propose(&mut self) {
        let kex =
            if self.strict { "curve25519-sha256,kex-strict-s-v00@openssh.com" } else { "curve25519-sha256" };
        let lists = [
            kex,
            "ssh-ed25519",
            CIPHER.ssh_name(),
            CIPHER.ssh_name(),
            "none",
            "none",
            "none",
            "none",
            "",
            "",
        ];
        let lists = lists.map(|list| string(list.as_bytes())).concat();
        self.our_proposal = [&[KEXINIT][..], &[7; 16], &lists, &[0; 5]].concat();
        self.proposing = true;
        let proposal = self.our_proposal.clone();
        self.say(&proposal);
    }

    /// Puts a message into a packet.
    fn say(&mut self, payload: &[u8]) {
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

    fn hear(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
        if self.theirs.is_none() {
            let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') else { return };
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            self.theirs = Some(line.trim_ascii_end().to_vec());
        }
        while let Some(head) = self.heard.first_chunk::<4>().copied() {
            let length = u32::from_be_bytes(head) as usize;
            let tag = if self.receiving.is_some() { TAG_BYTES } else { 0 };
            if self.heard.len() < 4 + length + tag {
                return;
            }
            let packet: Vec<u8> = self.heard.drain(..4 + length + tag).skip(4).collect();
            let (body, tag) = packet.split_at(length);
            let mut body = body.to_vec();
            if let Some(keyed) = &mut self.receiving {
                let nonce = keyed.nonce();
                keyed
                    .0
                    .open(&nonce, &head, &mut body, tag.first_chunk().unwrap())
                    .expect("the client's own packet");
            }
            let end = length - usize::from(body[0]);
            self.take(&body[1..end]);
        }
    }

    fn take(&mut self, payload: &[u8]) {
        match payload[0] {
            KEXINIT => {
                if !self.proposing {
                    self.propose();
                }
                self.their_proposal = payload.to_vec();
            }
            ECDH_INIT => self.reply(&payload[5..]),
            NEWKEYS => self.receiving = self.next.take(),
            _ => {}
        }
    }

    /// The other end of curve25519-sha256 (RFC 8731).
    fn reply(&mut self, theirs: &[u8]) {
        let side = selection::global()
            .run(Primitive::Agree(DhGroup::X25519), |provider| provider.start_agreement(DhGroup::X25519))
            .unwrap();
        let ours = side.share().to_vec();
        let secret = side.finish(theirs).unwrap();
        let bytes = secret.as_bytes();
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        let sign: &[u8] = if bytes[0] & 0x80 != 0 { &[0] } else { &[] };
        let number = string(&[sign, bytes].concat());
        let host_key =
            ssh_key::PublicKey::from(ssh_public_key(&KEY.public_key()).unwrap()).to_bytes().unwrap();
        let parts: [&[u8]; 7] = [
            self.theirs.as_deref().unwrap(),
            self.greeting.as_bytes(),
            &self.their_proposal,
            &self.our_proposal,
            &host_key,
            theirs,
            &ours,
        ];
        let digest = hash::sha256(&[parts.map(string).concat(), number.clone()].concat());
        let signed = if self.forges { [0; 32] } else { digest };
        let signature = ssh_signature(&*KEY, &signed).unwrap();
        self.say(&[&[ECDH_REPLY][..], &string(&host_key), &string(&ours), &string(&signature)].concat());
        let session = *self.session.get_or_insert(digest);
        let keyed = |nonce: u8, key: u8| {
            let derived = |letter: u8| {
                let mut out = [0; 32];
                let parts: [&[u8]; 4] = [&number, &digest, &[letter], &session];
                hash::digest(HashAlgorithm::Sha256, &parts, &mut out);
                out
            };
            let key = selection::global()
                .run(Primitive::Aead(CIPHER), |provider| provider.aead(CIPHER, &derived(key)))
                .unwrap();
            Keyed(key, derived(nonce)[..12].try_into().unwrap())
        };
        self.say(&[NEWKEYS]);
        self.sending = Some(keyed(b'B', b'D'));
        self.next = Some(keyed(b'A', b'C'));
        self.proposing = false;
    }
}

/// The client, and what has happened to it.
struct Client {
    machine: Machine,
    flags: u8,
    hosts: usize,
    logins: usize,
    opened: usize,
    failed: Option<Breach>,
}

impl Client {
    fn new(flags: u8) -> Self {
        let (demand, limits) = (HybridKeyExchange::Preferred, Limits::default());
        let machine = Machine::new(Opening { identification: OURS, demand, limits }).unwrap();
        Self { machine, flags, hosts: 0, logins: 0, opened: 0, failed: None }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let step = if self.flags & 4 == 0 { usize::MAX } else { 7 };
        for part in bytes.chunks(step) {
            let heard = self.machine.receive(part).and_then(|()| self.act());
            if let Some(first) = &self.failed {
                assert_eq!(heard.as_ref(), Err(first), "the first error is the last");
            }
            self.failed = heard.err().or(self.failed.take());
        }
    }

    /// Does what a user's session does.
    fn act(&mut self) -> Result<(), Breach> {
        while let Some(event) = self.machine.event() {
            match event {
                Event::Host(_) => {
                    self.hosts += 1;
                    self.machine.accept_host()?;
                    let login = Login { name: "root", algorithm: "ssh-ed25519", key: b"key" };
                    assert!(!self.machine.to_sign(&login)?.is_empty());
                    let terminal =
                        Terminal { term: "xterm".to_owned(), size: WindowSize::default(), modes: Vec::new() };
                    let environment = vec![("LANG".to_owned(), "C".to_owned())];
                    let mut wanted = SessionRequest { environment, ..SessionRequest::new(Program::Shell) };
                    wanted.terminal = (self.flags & 8 != 0).then_some(terminal);
                    self.machine.log_in(&login, b"signature", &wanted)?;
                }
                Event::LoggedIn => self.logins += 1,
                Event::Opened => {
                    assert_eq!(self.logins, 1, "a channel before the login");
                    self.opened += 1;
                    if self.machine.takes_input() {
                        self.machine.input(Bytes::from_static(&[b'i'; 4096]))?;
                    }
                }
                Event::Data { bytes, .. } => {
                    assert_eq!(self.opened, 1, "output of no channel");
                    self.machine.took(bytes.len())?;
                }
                Event::Answered(Asked::Program, _) => self.machine.resize(WindowSize::default())?,
                Event::Eof => self.machine.end_input()?,
                Event::Told(_) => self.machine.signal("HUP")?,
                Event::Closed => self.machine.ask_for_life()?,
                _ => {}
            }
        }
        assert!(self.hosts <= 1 && self.logins <= 1 && self.opened <= 1);
        Ok(())
    }
}

/// Lets both send what is waiting, until nothing waits.
fn settle(client: &mut Client, server: &mut Server) {
    for _ in 0..16 {
        let said = client.machine.output().split();
        assert!(said.len() <= LONGEST_ANSWER_BYTES, "{} bytes at once", said.len());
        server.hear(&said);
        if server.out.is_empty() {
            return;
        }
        client.receive(&std::mem::take(&mut server.out));
    }
}

fuzz_target!(|data: (u8, &[u8])| {
    let (flags, script) = data;
    let (mut client, mut server) = (Client::new(flags), Server::new(flags));
    settle(&mut client, &mut server);
    assert_eq!((client.hosts, client.failed.is_some()), if server.forges { (0, true) } else { (1, false) });
    // Half of the inputs begin with an open session.
    if flags & 0x80 == 0 {
        server.say(&[USERAUTH_SUCCESS]);
        let window = 16_384_u32.to_be_bytes();
        server.say(&[&[CHANNEL_OPEN_CONFIRMATION][..], &[0; 8], &window, &window].concat());
        settle(&mut client, &mut server);
    }
    let mut script = Script(script);
    while !script.0.is_empty() && client.failed.is_none() && !client.machine.is_over() {
        match script.byte() {
            240..=247 => server.propose(),
            248 => {
                let _ = client.machine.renew_keys();
            }
            249 => {
                // Not under the key.
                let length = usize::from(script.byte());
                server.out.extend(script.bytes(length));
            }
            how @ 220..=239 => {
                let length = usize::from(how - 220) * 4;
                let payload = script.bytes(length);
                server.say(if payload.is_empty() { &[0] } else { &payload });
            }
            how => {
                let message = script.message(how);
                server.say(&message);
            }
        }
        settle(&mut client, &mut server);
    }
});
