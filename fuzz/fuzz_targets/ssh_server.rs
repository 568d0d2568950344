//! What a client says to the proxy's SSH server once keys are exchanged: during its login, on channels, in global requests, and when
//! keys are renewed, before and behind the hand-over to the library inside. The exchange is a true one, so that every message arrives;
//! what it says is the input's. The server answers, refuses or ends, and lets in no client but by a certificate and its key.
//!
//! The first byte says what the client is like. Of the rest each message takes a byte that says which it is, and what it is made of.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use sallyport_access::{
    ClusterName, HostId, HostRole, Identity, Login, NodeName, Principal, RoleName, Traits, UserName,
};
use sallyport_ca::keys::{SshKeyPair, TlsKey, certificate, ssh_signature};
use sallyport_ca::{Authority, CaKind, HostRequest, SshOptions, Trust, issue_host, issue_user};
use sallyport_sal::Suite;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::provider::Agreement;
use sallyport_ssh::BoxedStream;
use sallyport_ssh::jump::{Answered, Dial, Jump, JumpConfig, Question, Refusal};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ssh::number::{
    CHANNEL_OPEN, CHANNEL_OPEN_CONFIRMATION, CHANNEL_REQUEST, DEBUG, DISCONNECT, ECDH_INIT, ECDH_REPLY,
    EXT_INFO, GLOBAL_REQUEST, IGNORE, KEXINIT, NEWKEYS, REQUEST_FAILURE, REQUEST_SUCCESS, SERVICE_REQUEST,
    UNIMPLEMENTED, USERAUTH_INFO_RESPONSE, USERAUTH_REQUEST, USERAUTH_SUCCESS,
};
use super::ssh::{Exchanged, Keyed, Packets, Said, Script, begin, proposal, string, string_at};

const OURS: &str = "SSH-2.0-fuzz";
/// The name of the account that is asked for a second factor, and the answer.
const ASKED: &str = "mfa";
const CODE: &str = "right";
/// Messages of one input. What a few do not do, many do not either.
const MOST_MESSAGES: usize = 256;
/// How often all of the server's tasks go round without a word before it is taken to have said all: a message passes through some.
const QUIET_ROUNDS: usize = 12;
/// Rounds that an exchange of keys may take.
const EXCHANGE_ROUNDS: usize = 200;
/// How long a server may take to end once its client has.
const PATIENCE: Duration = Duration::from_secs(8);
/// What a server may say before the login beside an answer to each byte: lists of algorithms, its certificate, prompts.
const UNASKED_BYTES: usize = 16 * 1024;

/// A user's key and certificate, and a proxy that believes it.
struct World {
    jump: Jump,
    key: SshKeyPair,
    plain: Vec<u8>,
    certificate: Vec<u8>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let custody = SealedCustody::new(Arc::new(SealingKey::create(&directory.path().join("key")).unwrap()));
    let (name, now) = (ClusterName::new("fuzz").unwrap(), OffsetDateTime::now_utc());
    let (suite, lifetime) = (Suite::BalancedV1, time::Duration::hours(12));
    let authority = |kind| Authority::generate(kind, &name, &custody, suite, now).unwrap();
    let (users, hosts) = (authority(CaKind::User), authority(CaKind::Host));
    let trust = Arc::new(Trust::from_authorities(&[&users, &hosts], None).unwrap());

    let (host, tls) = (SshKeyPair::generate(suite, "host").unwrap(), TlsKey::generate(suite).unwrap());
    let request = HostRequest {
        id: HostId::new(),
        name: &NodeName::new("proxy").unwrap(),
        role: HostRole::Proxy,
        join_id: Uuid::nil(),
        public_names: &["proxy.example".to_owned()],
        ssh_public_key: host.public_line(),
        tls_spki: tls.spki_der(),
    };
    let shown = issue_host(&hosts, &request, now, lifetime).unwrap().ssh;
    let jump =
        Jump::new(JumpConfig::default(), &host.private_openssh(), &shown, Arc::new(Nodes(trust))).unwrap();

    let key = SshKeyPair::generate(suite, "alice").unwrap();
    let identity = Identity {
        principal: Principal::User {
            name: UserName::new("alice").unwrap(),
            roles: [RoleName::new("dev").unwrap()].into_iter().collect(),
            logins: [Login::new("root").unwrap()].into_iter().collect(),
            traits: Traits::new(),
        },
        login_id: Uuid::nil(),
        device: None,
        pinned_to: None,
        valid_after: now,
        valid_before: now + lifetime,
    };
    let line = key.public_line();
    let options = SshOptions::default();
    let issued = issue_user(&users, &identity, line, tls.spki_der(), now, lifetime, &options).unwrap();
    let certificate = certificate(&issued.ssh).unwrap().to_bytes().unwrap();
    let plain = ssh_key::PublicKey::from_openssh(line).unwrap().to_bytes().unwrap();
    World { jump, key, plain, certificate }
});

/// The nodes behind the proxy: a node gives back what it hears, a node says much, a node hears nothing, a node is gone at once,
/// and none of another name.
struct Nodes(Arc<Trust>);

#[async_trait]
impl Dial for Nodes {
    fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.0)
    }

    async fn question(&self, _: &Identity, _: &str, _: SocketAddr) -> Option<Question> {
        Some(Question { words: "prove it".to_owned(), challenge: "x".to_owned(), sessions: Vec::new() })
    }

    async fn answer(&self, _: &Question, typed: &str, _: &str, _: SocketAddr) -> Answered {
        if typed == CODE { Answered::Done } else { Answered::Again("wrong".to_owned()) }
    }

    async fn dial(
        &self,
        _: &Identity,
        _: &str,
        host: &str,
        _: SocketAddr,
        cut: CancellationToken,
    ) -> Result<BoxedStream, Refusal> {
        let (near, mut far) = duplex(16 * 1024);
        match host {
            "echo" => {
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(far);
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
            "talks" => {
                tokio::spawn(async move { far.write_all(&[b'o'; 100_000]).await });
            }
            "deaf" => {
                tokio::spawn(async move {
                    let _held = far;
                    std::future::pending::<()>().await;
                });
            }
            "cut" => cut.cancel(),
            "gone" => drop(far),
            other => return Err(Refusal::new(format!("there is no node {other}"))),
        }
        Ok(Box::new(near))
    }
}

/// The client: honest about its keys.
struct Client {
    methods: String,
    packets: Packets,
    /// The server's next key, until it says NEWKEYS.
    receiving: Option<Keyed>,
    side: Option<Box<dyn Agreement>>,
    proposal: Vec<u8>,
    their_proposal: Vec<u8>,
    proposing: bool,
    session: Option<[u8; 32]>,
    /// The server's numbers of the channels that are open.
    open: Vec<[u8; 4]>,
    /// The client has shown its certificate and signed, under a name of which the proxy asks nothing more, and under `mfa`, of which it does.
    signed: bool,
    signed_asked: bool,
    /// The client has said the code.
    answered: bool,
    is_in: bool,
    /// It has said a message of the exchange out of its turn, and has not the keys that the server has.
    lost: bool,
    said: usize,
    heard: usize,
    /// The server has ended.
    ended: bool,
}

impl Client {
    fn new(flags: u8) -> Self {
        let mut methods = "curve25519-sha256".to_owned();
        for (flag, name) in [(1, ",kex-strict-c-v00@openssh.com"), (2, ",ext-info-c")] {
            if flags & flag == 0 {
                methods.push_str(name);
            }
        }
        let mut client = Self {
            methods,
            packets: Packets::greet(OURS),
            receiving: None,
            side: None,
            proposal: Vec::new(),
            their_proposal: Vec::new(),
            proposing: false,
            session: None,
            open: Vec::new(),
            signed: false,
            signed_asked: false,
            answered: false,
            is_in: false,
            lost: false,
            said: 0,
            heard: 0,
            ended: false,
        };
        client.propose();
        client
    }

    fn propose(&mut self) {
        self.proposal = proposal(&self.methods, "ssh-ed25519-cert-v01@openssh.com,ssh-ed25519");
        self.proposing = true;
        self.packets.say(&self.proposal);
    }

    fn take(&mut self, payload: &[u8]) {
        match payload[0] {
            KEXINIT => {
                self.their_proposal = payload.to_vec();
                if !self.proposing {
                    self.propose();
                }
                let side = begin();
                let share = [&[ECDH_INIT][..], &string(side.share())].concat();
                self.packets.say(&share);
                self.side = Some(side);
            }
            ECDH_REPLY => self.conclude(payload),
            NEWKEYS => self.packets.receiving = self.receiving.take(),
            USERAUTH_SUCCESS => {
                let proven = self.signed || self.signed_asked && self.answered;
                assert!(proven, "the server lets in a client without a proof");
                self.is_in = true;
            }
            CHANNEL_OPEN_CONFIRMATION => {
                assert!(self.is_in, "a channel before the login");
                self.open.push(*payload[5..].first_chunk().unwrap());
            }
            _ => {}
        }
    }

    fn conclude(&mut self, payload: &[u8]) {
        let host_key = string_at(payload, 1);
        let theirs = string_at(payload, 5 + host_key.len());
        let side = self.side.take().expect("an answer to a share");
        let share = side.share().to_vec();
        let said = Said {
            client_line: OURS.as_bytes(),
            server_line: self.packets.theirs.as_deref().unwrap(),
            client_proposal: &self.proposal,
            server_proposal: &self.their_proposal,
            host_key,
            client_share: &share,
            server_share: theirs,
        };
        let exchanged = Exchanged::new(side, theirs, &said);
        let session = *self.session.get_or_insert(exchanged.digest);
        let (to_server, to_client) = exchanged.keys(&session);
        self.receiving = Some(to_client);
        self.packets.say(&[NEWKEYS]);
        self.packets.sending = Some(to_server);
        self.proposing = false;
    }

    /// A request to log in by a key, which is signed or asks whether the key would do.
    fn by_key(&mut self, script: &mut Script<'_>) -> Vec<u8> {
        let (user, service) = (script.name(&["root", ASKED]), script.name(&["ssh-connection"]));
        let how = script.byte();
        let shown = match how & 3 {
            0 | 1 => string(&WORLD.certificate),
            2 => string(&WORLD.plain),
            _ => script.string(),
        };
        let algorithm = match how & 3 {
            0 | 1 => script.name(&["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519"]),
            _ => script.name(&[
                "ssh-ed25519",
                "rsa-sha2-512",
                "ecdsa-sha2-nistp256",
                "sk-ssh-ed25519@openssh.com",
            ]),
        };
        let is_bound = how & 4 != 0;
        let method: &[u8] = if is_bound { b"publickey-hostbound-v00@openssh.com" } else { b"publickey" };
        let signs = how & 8 == 0;
        let mut request = [&[USERAUTH_REQUEST][..], &user, &service, &string(method)].concat();
        request.extend([&[u8::from(signs)][..], &algorithm, &shown].concat());
        if is_bound {
            request.extend(script.string());
        }
        if !signs {
            return request;
        }
        let message = [string(&self.session.unwrap_or_default()), request.clone()].concat();
        let mut signature = ssh_signature(&*WORLD.key.signer(), &message).unwrap();
        if how & 0x30 == 0x30 {
            let at = usize::from(script.byte()) % signature.len();
            signature[at] ^= 1 << (how >> 6);
        } else if how & 3 < 2 {
            let is_asked = user == string(ASKED.as_bytes());
            self.signed |= !is_asked;
            self.signed_asked |= is_asked;
        }
        request.extend(string(&signature));
        request
    }

    /// A message that clients say, of parts that they may not.
    fn message(&mut self, script: &mut Script<'_>, how: u8) -> Vec<u8> {
        match how % 26 {
            how @ 0..=10 => script.on_channel(how, &self.open),
            11 | 12 => {
                let sender = script.number();
                let (window, most) = (script.number(), script.number());
                let kinds = ["session", "direct-streamlocal@openssh.com", "x11", "forwarded-tcpip"];
                let kind = script.name(&kinds);
                [&[CHANNEL_OPEN][..], &kind, &sender, &window, &most, &script.string(), &script.number()]
                    .concat()
            }
            13 | 14 => {
                let (sender, window, most) = (script.number(), script.number(), script.number());
                let host = script.name(&["echo", "talks", "deaf", "cut", "gone", "none"]);
                let (port, from) = (script.number(), script.string());
                let kind = string(b"direct-tcpip");
                [&[CHANNEL_OPEN][..], &kind, &sender, &window, &most, &host, &port, &from, &[0; 4]].concat()
            }
            15 | 16 => {
                let channel = script.channel(&self.open);
                let kinds = [
                    "shell",
                    "exec",
                    "subsystem",
                    "pty-req",
                    "env",
                    "window-change",
                    "signal",
                    "x11-req",
                    "auth-agent-req@openssh.com",
                    "break",
                    "xon-xoff",
                    "exit-status",
                    "exit-signal",
                    "keepalive@openssh.com",
                    "eow@openssh.com",
                ];
                let kind = script.name(&kinds);
                let (flag, first, length) = (script.byte() & 1, script.string(), usize::from(script.byte()));
                [&[CHANNEL_REQUEST][..], &channel, &kind, &[flag], &first, &script.bytes(length)].concat()
            }
            17 => {
                let kinds = [
                    "tcpip-forward",
                    "cancel-tcpip-forward",
                    "streamlocal-forward@openssh.com",
                    "cancel-streamlocal-forward@openssh.com",
                    "no-more-sessions@openssh.com",
                    "keepalive@openssh.com",
                    "hostkeys-prove-00@openssh.com",
                ];
                let kind = script.name(&kinds);
                [&[GLOBAL_REQUEST][..], &kind, &[script.byte() & 1], &script.string(), &script.number()]
                    .concat()
            }
            18 => [&[SERVICE_REQUEST][..], &script.name(&["ssh-userauth", "ssh-connection"])].concat(),
            19 | 20 => self.by_key(script),
            21 => {
                let (user, service) = (script.name(&["root", ASKED]), script.name(&["ssh-connection"]));
                let method = script.name(&["none", "password", "keyboard-interactive", "hostbased"]);
                let fields = [script.string(), script.string()].concat();
                let fields = if script.byte() & 1 == 0 { fields } else { script.bytes(8) };
                [&[USERAUTH_REQUEST][..], &user, &service, &method, &fields].concat()
            }
            22 => {
                let (user, language) = (string(ASKED.as_bytes()), string(b""));
                let (service, method) = (string(b"ssh-connection"), string(b"keyboard-interactive"));
                [&[USERAUTH_REQUEST][..], &user, &service, &method, &language, &language].concat()
            }
            23 => {
                let count = [0, 0, 0, script.byte().max(1)];
                let typed = script.name(&[CODE, "wrong"]);
                self.answered |= typed == string(CODE.as_bytes());
                [&[USERAUTH_INFO_RESPONSE][..], &count, &typed].concat()
            }
            24 => {
                let numbers = [IGNORE, UNIMPLEMENTED, DEBUG, EXT_INFO, REQUEST_SUCCESS, REQUEST_FAILURE];
                let number = numbers[usize::from(script.byte()) % numbers.len()];
                [&[number][..], &script.number(), &script.string()].concat()
            }
            _ => [&[DISCONNECT][..], &script.number(), &script.string()].concat(),
        }
    }

    /// Shows its certificate.
    fn log_in(&mut self) {
        self.packets.say(&[&[SERVICE_REQUEST][..], &string(b"ssh-userauth")].concat());
        let request = self.by_key(&mut Script(&[]));
        self.packets.say(&request);
    }

    /// Says what the input says next.
    fn act(&mut self, script: &mut Script<'_>) {
        match script.byte() {
            240..=244 if !self.proposing => self.propose(),
            245 => {
                // Not under the key.
                let length = usize::from(script.byte());
                let bytes = script.bytes(length);
                self.packets.out.extend(bytes);
            }
            how @ 220..=239 => {
                let payload = script.bytes(usize::from(how - 220) * 4);
                self.lost |= matches!(payload.first(), Some(&(KEXINIT..=ECDH_REPLY)));
                self.packets.say(if payload.is_empty() { &[0] } else { &payload });
            }
            how => {
                let message = self.message(script, how);
                self.packets.say(&message);
            }
        }
    }

    /// Sends and hears what can be; whether that was anything.
    fn poll(&mut self, cx: &mut Context<'_>, stream: &mut DuplexStream) -> bool {
        let mut moved = false;
        while !self.packets.out.is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, &self.packets.out) {
                Poll::Ready(Ok(length)) => {
                    self.packets.out.drain(..length);
                    self.said += length;
                    moved = true;
                }
                // The server hears no more; it may have said why.
                Poll::Ready(Err(_)) => self.packets.out.clear(),
                Poll::Pending => break,
            }
        }
        let mut space = [0; 16 * 1024];
        let mut heard = ReadBuf::new(&mut space);
        if let Poll::Ready(read) = Pin::new(stream).poll_read(cx, &mut heard) {
            read.expect("a stream in memory");
            self.ended |= heard.filled().is_empty();
            self.hear(heard.filled());
            moved |= !self.ended;
        }
        moved
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.heard += bytes.len();
        if self.lost {
            return;
        }
        self.packets.hear(bytes);
        while let Some(payload) = self.packets.next() {
            self.take(&payload);
        }
        let most = UNASKED_BYTES + 2 * self.said;
        assert!(self.is_in || self.heard <= most, "{} bytes for {}", self.heard, self.said);
    }
}

/// Lets both say what they have to, until the server is silent, and keys are exchanged.
async fn settle(client: &mut Client, stream: &mut DuplexStream) {
    let (mut quiet, mut rounds) = (0, 0);
    while !client.ended && (quiet < QUIET_ROUNDS || client.proposing && rounds < EXCHANGE_ROUNDS) {
        let moved = poll_fn(|cx| Poll::Ready(client.poll(cx, stream))).await;
        quiet = if moved { 0 } else { quiet + 1 };
        rounds += 1;
        tokio::task::yield_now().await;
    }
}

async fn converse(flags: u8, script: &[u8], mut stream: DuplexStream) {
    let mut client = Client::new(flags);
    settle(&mut client, &mut stream).await;
    assert!(client.session.is_some(), "keys are exchanged");
    // Half of the inputs begin with a user who is in.
    if flags & 0x80 == 0 {
        client.log_in();
        settle(&mut client, &mut stream).await;
        assert!(client.is_in, "a certificate and its key let in");
    }
    let mut script = Script(script);
    for number in 0..MOST_MESSAGES {
        if script.0.is_empty() || client.ended {
            break;
        }
        client.act(&mut script);
        // Some come together.
        if flags & 4 == 0 || number % 4 == 0 || client.proposing {
            settle(&mut client, &mut stream).await;
        }
    }
    settle(&mut client, &mut stream).await;
    let _ = stream.shutdown().await;
    while !client.ended {
        poll_fn(|cx| match client.poll(cx, &mut stream) || client.ended {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

fuzz_target!(|data: (u8, &[u8])| {
    let (flags, script) = data;
    // One of its own, which ends what an input has left.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (near, far) = duplex(64 * 1024);
        let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 22));
        let serving = WORLD.jump.serve(far, client, Arc::new(|_: &Identity| Ok(())));
        let both = async { tokio::join!(serving, converse(flags, script, near)) };
        let _ = timeout(PATIENCE, both).await.expect("the server ends with its client");
    });
});
