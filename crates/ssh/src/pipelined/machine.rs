//! The connection: greeting, key exchange, login and the messages of the one channel.

mod messages;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use sallyport_sal::HybridKeyExchange;
use ssh_key::public::KeyData;

use super::Breach;
use super::channel::{Asked, Channel};
use super::exchange::{Digest, Exchanged, HostKey, Side};
use super::message::{
    DISCONNECT, Draft, GLOBAL_REQUEST, NEWKEYS, SERVICE_REQUEST, Told, USERAUTH_REQUEST, put_string,
};
use super::packet::{Cipher, Incoming, Outgoing};
use super::proposal::{Agreed, propose};
use crate::algorithms::widest_window;
use crate::client::{SessionRequest, WindowSize};

/// SSH_DISCONNECT_PROTOCOL_ERROR and SSH_DISCONNECT_BY_APPLICATION (RFC 4253 §11.1).
const PROTOCOL_ERROR: u32 = 2;
const BY_APPLICATION: u32 = 11;
/// Messages of the transport and of key exchange (RFC 4250 §4.1.2), which go while keys are exchanged.
const TRANSPORT: std::ops::RangeInclusive<u8> = 1..=49;
/// Messages that are held back while keys are exchanged. Standard input waits elsewhere, so that there are few.
const MOST_HELD: usize = 1024;

/// What happens.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The host has proven that it holds this key. Nothing goes on before [`Machine::accept_host`].
    Host(Box<HostKey>),
    /// Words for the user.
    Banner(String),
    /// The login is good.
    LoggedIn,
    /// The login is refused. With `partial`, something else is asked for besides.
    LoginRefused {
        /// What the server would take.
        methods: String,
        /// The certificate is good, and not enough.
        partial: bool,
    },
    /// The channel is open.
    Opened,
    /// The channel is not opened, and why.
    NotOpened(String),
    /// The answer to a question.
    Answered(Asked, bool),
    /// Output; of standard error with `errors`.
    Data {
        /// Standard error's.
        errors: bool,
        /// The output.
        bytes: Bytes,
    },
    /// No more output.
    Eof,
    /// How the program ended.
    Told(Told),
    /// The channel is closed.
    Closed,
    /// The server ends the connection, and why.
    Disconnected(String),
}

/// When this side asks for new keys.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes under one key, either way. RFC 4344 §3.2 allows 2^32 blocks, 64 GiB.
    pub bytes: u64,
    /// Packets under one key, either way (RFC 4344 §3.1).
    pub packets: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 32 << 30, packets: 1 << 31 }
    }
}

/// How to open a connection.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// This side's first line, without its end.
    pub identification: &'static str,
    /// Which key exchange will do.
    pub demand: HybridKeyExchange,
    /// When keys are renewed.
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing has come.
    Greeting,
    /// The first keys are exchanged.
    Exchanging,
    /// The host's key is being judged. What comes waits.
    Judging,
    /// The host is who it should be.
    Proven,
    /// The login and the session have gone.
    LoggingIn,
    /// The server believes the login.
    In,
    /// The end.
    Over,
}

/// A share that waits for its answer.
struct Waiting {
    side: Side,
    agreed: Agreed,
    proposal: Bytes,
}

/// The client's side of one connection with one session.
///
/// The first error is final: everything after it says the same.
pub struct Machine {
    opening: Opening,
    stage: Stage,
    incoming: Incoming,
    outgoing: Outgoing,
    out: BytesMut,
    events: VecDeque<Event>,
    failed: Option<Breach>,
    theirs: String,
    /// Bytes of lines before the greeting.
    prelude: usize,
    /// Our proposal, from when it went until our NEWKEYS.
    proposal: Option<Vec<u8>>,
    waiting: Option<Waiting>,
    /// The first exchange, until the host is believed.
    judged: Option<(Exchanged, Agreed)>,
    next_out: Option<Cipher>,
    next_in: Option<Cipher>,
    /// The next packet is a wrong guess.
    passes_over: bool,
    strict: bool,
    session: Option<Digest>,
    host: Option<KeyData>,
    held: VecDeque<Draft>,
    channel: Option<Channel>,
}

impl Machine {
    /// Begins to speak: version and KEXINIT wait in [`Machine::output`].
    ///
    /// # Errors
    /// [`Breach::Unavailable`] when there is no randomness.
    pub fn new(opening: Opening) -> Result<Self, Breach> {
        let mut machine = Self {
            opening,
            stage: Stage::Greeting,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            out: BytesMut::new(),
            events: VecDeque::new(),
            failed: None,
            theirs: String::new(),
            prelude: 0,
            proposal: None,
            waiting: None,
            judged: None,
            next_out: None,
            next_in: None,
            passes_over: false,
            strict: false,
            session: None,
            host: None,
            held: VecDeque::new(),
            channel: None,
        };
        machine.out.extend_from_slice(opening.identification.as_bytes());
        machine.out.extend_from_slice(b"\r\n");
        machine.propose()?;
        Ok(machine)
    }

    /// What is to be sent. Whoever sends it takes it out.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// The next thing that happened.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The server's first line, once it has come.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.theirs
    }

    /// Whether algorithms are agreed on: from here on no other client is needed.
    #[must_use]
    pub fn has_agreed(&self) -> bool {
        self.waiting.is_some() || self.stage > Stage::Exchanging
    }

    /// Takes bytes of the server's, in pieces of any size.
    ///
    /// # Errors
    /// [`Breach`]. What is in [`Machine::output`] then is to be sent, as far as that is possible.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Breach> {
        self.attempt(|machine| {
            machine.incoming.bytes.extend_from_slice(bytes);
            machine.advance()
        })
    }

    /// The host is who it should be. What has come meanwhile is looked at.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn accept_host(&mut self) -> Result<(), Breach> {
        self.attempt(|machine| {
            let (exchanged, agreed) =
                machine.judged.take().ok_or(Breach::Order("no host waits for a judgement"))?;
            machine.session = Some(exchanged.digest);
            machine.host = Some(exchanged.host.key.clone());
            machine.prepare(&exchanged, &agreed)?;
            machine.stage = Stage::Proven;
            machine.advance()
        })
    }

    /// What is to be signed to log in with a public key or certificate (RFC 4252 §7).
    ///
    /// # Errors
    /// [`Breach::Order`] before [`Machine::accept_host`].
    pub fn to_sign(&self, login: &Login<'_>) -> Result<Vec<u8>, Breach> {
        let session = self.session.as_ref().ok_or(Breach::Order("the host is not believed yet"))?;
        let mut signed = Vec::new();
        put_string(&mut signed, session.as_bytes());
        signed.extend_from_slice(&login.draft().0);
        Ok(signed)
    }

    /// Sends keys, login and session in one flight.
    ///
    /// # Errors
    /// [`Breach::Order`] before [`Machine::accept_host`], and the second time.
    pub fn log_in(
        &mut self,
        login: &Login<'_>,
        signature: &[u8],
        wanted: &SessionRequest,
    ) -> Result<(), Breach> {
        self.attempt(|machine| {
            if machine.stage != Stage::Proven {
                return Err(Breach::Order("a login has its place after the host's proof"));
            }
            machine.stage = Stage::LoggingIn;
            machine.new_keys()?;
            machine.send(Draft::new(SERVICE_REQUEST).string(b"ssh-userauth"))?;
            machine.send(login.draft().string(signature))?;
            let (channel, drafts) =
                Channel::open(wanted, machine.is_openssh(), widest_window(machine.theirs.as_bytes()));
            machine.channel = Some(channel);
            drafts.into_iter().try_for_each(|draft| machine.send(draft))
        })
    }

    /// Whether standard input is taken now.
    #[must_use]
    pub fn takes_input(&self) -> bool {
        self.proposal.is_none() && self.channel.as_ref().is_some_and(Channel::takes_input)
    }

    /// Whether nothing goes on the channel any more.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.stage == Stage::Over || self.channel.as_ref().is_some_and(Channel::is_closing)
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Sends standard input. Only when [`Machine::takes_input`]; it goes as far as the server lets it, and the rest later.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn input(&mut self, bytes: Bytes) -> Result<(), Breach> {
        self.on_channel(|channel| {
            channel.input(bytes);
            None
        })
    }

    /// Ends standard input, behind what is still to go.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn end_input(&mut self) -> Result<(), Breach> {
        self.on_channel(|channel| {
            channel.end_input();
            None
        })
    }

    /// So many bytes of output have been taken: as many more may come.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn took(&mut self, bytes: usize) -> Result<(), Breach> {
        self.on_channel(|channel| channel.took(bytes))
    }

    /// Tells the terminal's new size.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn resize(&mut self, size: WindowSize) -> Result<(), Breach> {
        self.on_channel(|channel| channel.resize(size))
    }

    /// Sends a signal to the program, by its name without `SIG`.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn signal(&mut self, name: &str) -> Result<(), Breach> {
        self.on_channel(|channel| channel.signal(name))
    }

    /// Ends the session from this side.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn close(&mut self) -> Result<(), Breach> {
        self.on_channel(Channel::close)
    }

    /// Ends a session whose program was refused, and what was to go there. OpenSSH closes such a channel after the end of
    /// its input.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn give_up(&mut self) -> Result<(), Breach> {
        self.on_channel(|channel| {
            channel.drop_input();
            None
        })?;
        self.close()
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn ask_for_life(&mut self) -> Result<(), Breach> {
        self.attempt(|machine| {
            if machine.stage != Stage::In {
                return Ok(());
            }
            machine.send(Draft::new(GLOBAL_REQUEST).string(b"keepalive@openssh.com").flag(true))
        })
    }

    /// Asks for new keys, as is done by itself at the limits.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn renew_keys(&mut self) -> Result<(), Breach> {
        self.attempt(|machine| if machine.may_propose() { machine.propose() } else { Ok(()) })
    }

    /// Says farewell.
    pub fn disconnect(&mut self) {
        self.farewell(BY_APPLICATION, "");
        self.stage = Stage::Over;
    }

    /// Runs something whose first error is the last.
    fn attempt(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Breach>) -> Result<(), Breach> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let done = act(self).and_then(|()| self.after());
        if let Err(breach) = &done {
            self.failed = Some(breach.clone());
            // The words go to somebody whom nobody has proven to be anybody.
            let words = if self.session.is_some() { breach.to_string() } else { String::new() };
            self.farewell(PROTOCOL_ERROR, &words);
            self.stage = Stage::Over;
        }
        done
    }

    fn farewell(&mut self, reason: u32, words: &str) {
        if self.stage > Stage::Greeting && self.stage != Stage::Over {
            let draft = Draft::new(DISCONNECT).u32(reason).string(words.as_bytes()).string(b"");
            // Nobody is left to be told that it does not go.
            let _ = self.outgoing.put(&mut self.out, &draft.0);
        }
    }

    fn on_channel(&mut self, act: impl FnOnce(&mut Channel) -> Option<Draft>) -> Result<(), Breach> {
        self.attempt(|machine| match machine.channel.as_mut().and_then(act) {
            Some(draft) => machine.send(draft),
            None => Ok(()),
        })
    }

    /// What follows from what was done: input that may go, and new keys when it is time.
    fn after(&mut self) -> Result<(), Breach> {
        while self.proposal.is_none()
            && let Some(draft) = self.channel.as_mut().and_then(Channel::next_input)
        {
            self.send(draft)?;
        }
        let Limits { bytes, packets } = self.opening.limits;
        let worn = |used: super::packet::Used| used.bytes >= bytes || used.packets >= packets;
        if self.may_propose() && (worn(self.outgoing.used) || worn(self.incoming.used)) {
            self.propose()?;
        }
        Ok(())
    }

    fn may_propose(&self) -> bool {
        self.stage == Stage::In && self.is_settled()
    }

    /// No exchange of keys is under way.
    fn is_settled(&self) -> bool {
        self.proposal.is_none()
            && self.waiting.is_none()
            && self.next_in.is_none()
            && self.next_out.is_none()
            && self.judged.is_none()
    }

    fn is_openssh(&self) -> bool {
        self.theirs.strip_prefix("SSH-2.0-").is_some_and(|software| software.starts_with("OpenSSH_"))
    }

    /// Sends a message, or holds it back while keys are exchanged (RFC 4253 §7.1).
    fn send(&mut self, draft: Draft) -> Result<(), Breach> {
        let number = draft.0.first().copied().unwrap_or_default();
        let is_exchange = TRANSPORT.contains(&number) && number != SERVICE_REQUEST;
        if self.proposal.is_some() && !is_exchange {
            if self.held.len() >= MOST_HELD {
                return Err(Breach::Order("too much waits for new keys"));
            }
            self.held.push_back(draft);
            return Ok(());
        }
        self.outgoing.put(&mut self.out, &draft.0)
    }

    fn propose(&mut self) -> Result<(), Breach> {
        let proposal = propose(self.opening.demand)?;
        self.outgoing.put(&mut self.out, &proposal)?;
        self.proposal = Some(proposal);
        Ok(())
    }

    /// The new keys are made; they are taken into use when each side has said NEWKEYS.
    fn prepare(&mut self, exchanged: &Exchanged, agreed: &Agreed) -> Result<(), Breach> {
        let session = self.session.as_ref().ok_or(Breach::Order("there is no session yet"))?;
        let (to_server, to_client) = exchanged.ciphers(agreed, session)?;
        self.next_out = Some(to_server);
        self.next_in = Some(to_client);
        Ok(())
    }

    /// Says NEWKEYS, and what was held back.
    fn new_keys(&mut self) -> Result<(), Breach> {
        let cipher = self.next_out.take().ok_or(Breach::Order("there are no new keys"))?;
        self.outgoing.put(&mut self.out, &[NEWKEYS])?;
        self.outgoing.rekey(cipher);
        self.proposal = None;
        while let Some(draft) = self.held.pop_front() {
            self.send(draft)?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), Breach> {
        if self.stage == Stage::Greeting && !self.greet()? {
            return Ok(());
        }
        while !matches!(self.stage, Stage::Judging | Stage::Over) {
            let Some(payload) = self.incoming.next()? else { break };
            self.take(&payload)?;
        }
        Ok(())
    }
}

/// Who logs in, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// The account.
    pub name: &'a str,
    /// The name of the public key algorithm, such as `ssh-ed25519-cert-v01@openssh.com`.
    pub algorithm: &'a str,
    /// The public key or certificate on the wire.
    pub key: &'a [u8],
}

impl Login<'_> {
    /// The request without its signature.
    fn draft(&self) -> Draft {
        let draft = Draft::new(USERAUTH_REQUEST).string(self.name.as_bytes()).string(b"ssh-connection");
        draft.string(b"publickey").flag(true).string(self.algorithm.as_bytes()).string(self.key)
    }
}
