//! What a server says to the pipelined client once keys are exchanged: during the login, on the channel, and when keys are
//! renewed. The exchange is a true one, so that every message arrives; what it says is the input's.
//!
//! The first byte says what the server is like. Of the rest each message takes a byte that says which it is, and what it is made of.

use std::sync::LazyLock;

use bytes::Bytes;
use sallyport_ca::keys::{ssh_public_key, ssh_signature};
use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, MemoryKey, Signer};
use sallyport_ssh::client::{Program, SessionRequest, Terminal, WindowSize};
use sallyport_ssh::pipelined::{Asked, Breach, Event, Limits, Login, Machine, Opening};

use super::ssh::number::{
    CHANNEL_OPEN, CHANNEL_OPEN_CONFIRMATION, CHANNEL_REQUEST, DISCONNECT, ECDH_INIT, ECDH_REPLY,
    GLOBAL_REQUEST, KEXINIT, NEWKEYS, SERVICE_ACCEPT, USERAUTH_BANNER, USERAUTH_FAILURE, USERAUTH_SUCCESS,
};
use super::ssh::{Exchanged, Keyed, Packets, Said, Script, begin, proposal, string, string_at};

const OURS: &str = "SSH-2.0-fuzz";
/// The number of the one channel.
const CHANNEL: &[[u8; 4]] = &[[0; 4]];
/// Bytes that the client may answer to one message: lists of algorithms, a login and a session's requests fit.
const LONGEST_ANSWER_BYTES: usize = 256 * 1024;

static KEY: LazyLock<MemoryKey> = LazyLock::new(|| MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap());

/// A message that servers say, of parts that they may not.
fn message(script: &mut Script<'_>, how: u8) -> Vec<u8> {
    let kinds: [&[u8]; 5] =
        [b"session", b"x11", b"auth-agent@openssh.com", b"forwarded-tcpip", b"tun@openssh.com"];
    match how % 20 {
        how @ 0..=7 => script.on_channel(how, CHANNEL),
        8 => {
            let kind = string(kinds[usize::from(script.byte()) % kinds.len()]);
            let (sender, window, most) = (script.number(), script.number(), script.number());
            [&[CHANNEL_OPEN][..], &kind, &sender, &window, &most, &script.string(), &script.number()].concat()
        }
        9 => script.on_channel(9, CHANNEL),
        10 => script.on_channel(10, CHANNEL),
        11 => {
            let (channel, status) = (script.channel(CHANNEL), script.number());
            [&[CHANNEL_REQUEST][..], &channel, &string(b"exit-status"), &[script.byte()], &status].concat()
        }
        12 => {
            let (channel, name) = (script.channel(CHANNEL), script.string());
            let (kind, flags) = (string(b"exit-signal"), script.byte());
            [&[CHANNEL_REQUEST][..], &channel, &kind, &[flags & 1], &name, &[flags & 2], &script.string()]
                .concat()
        }
        13 => script.on_channel(8, CHANNEL),
        14 => [&[GLOBAL_REQUEST][..], &script.string(), &[script.byte()]].concat(),
        15 => [&[USERAUTH_BANNER][..], &script.string()].concat(),
        16 => [&[USERAUTH_FAILURE][..], &script.string(), &[script.byte()]].concat(),
        17 => [&[DISCONNECT][..], &script.number(), &script.string()].concat(),
        18 => vec![USERAUTH_SUCCESS],
        _ => [&[SERVICE_ACCEPT][..], &script.string()].concat(),
    }
}

/// The other end: honest about its keys, unless it is to forge.
struct Server {
    greeting: &'static str,
    strict: bool,
    forges: bool,
    packets: Packets,
    next: Option<Keyed>,
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
            packets: Packets::greet(greeting),
            next: None,
            our_proposal: Vec::new(),
            their_proposal: Vec::new(),
            proposing: false,
            session: None,
        };
        server.propose();
        server
    }

    fn propose(&mut self) {
        let strict = "curve25519-sha256,kex-strict-s-v00@openssh.com";
        let methods = if self.strict { strict } else { "curve25519-sha256" };
        self.our_proposal = proposal(methods, "ssh-ed25519");
        self.proposing = true;
        self.packets.say(&self.our_proposal);
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.packets.hear(bytes);
        while let Some(payload) = self.packets.next() {
            self.take(&payload);
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
            ECDH_INIT => self.reply(string_at(payload, 1)),
            NEWKEYS => self.packets.receiving = self.next.take(),
            _ => {}
        }
    }

    fn reply(&mut self, theirs: &[u8]) {
        let side = begin();
        let ours = side.share().to_vec();
        let host_key =
            ssh_key::PublicKey::from(ssh_public_key(&KEY.public_key()).unwrap()).to_bytes().unwrap();
        let said = Said {
            client_line: self.packets.theirs.as_deref().unwrap(),
            server_line: self.greeting.as_bytes(),
            client_proposal: &self.their_proposal,
            server_proposal: &self.our_proposal,
            host_key: &host_key,
            client_share: theirs,
            server_share: &ours,
        };
        let exchanged = Exchanged::new(side, theirs, &said);
        let signed = if self.forges { [0; 32] } else { exchanged.digest };
        let signature = ssh_signature(&*KEY, &signed).unwrap();
        let reply = [&[ECDH_REPLY][..], &string(&host_key), &string(&ours), &string(&signature)].concat();
        self.packets.say(&reply);
        let session = *self.session.get_or_insert(exchanged.digest);
        self.packets.say(&[NEWKEYS]);
        let (to_server, to_client) = exchanged.keys(&session);
        self.packets.sending = Some(to_client);
        self.next = Some(to_server);
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
        if server.packets.out.is_empty() {
            return;
        }
        client.receive(&std::mem::take(&mut server.packets.out));
    }
}

fuzz_target!(|data: (u8, &[u8])| {
    let (flags, script) = data;
    let (mut client, mut server) = (Client::new(flags), Server::new(flags));
    settle(&mut client, &mut server);
    assert_eq!((client.hosts, client.failed.is_some()), if server.forges { (0, true) } else { (1, false) });
    // Half of the inputs begin with an open session.
    if flags & 0x80 == 0 {
        server.packets.say(&[USERAUTH_SUCCESS]);
        let window = 16_384_u32.to_be_bytes();
        server.packets.say(&[&[CHANNEL_OPEN_CONFIRMATION][..], &[0; 8], &window, &window].concat());
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
                server.packets.out.extend(script.bytes(length));
            }
            how @ 220..=239 => {
                let length = usize::from(how - 220) * 4;
                let payload = script.bytes(length);
                server.packets.say(if payload.is_empty() { &[0] } else { &payload });
            }
            how => {
                let message = message(&mut script, how);
                server.packets.say(&message);
            }
        }
        settle(&mut client, &mut server);
    }
});
