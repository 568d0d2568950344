//! The transport of either side (RFC 4253): identification, key exchange and renewal, packets.

mod keys;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sallyport_sal::HybridKeyExchange;
use ssh_key::public::KeyData;

use super::Breach;
use super::exchange::{Digest, Exchanged, HostKey, Side};
use super::host::Host;
use super::message::{
    DEBUG, DISCONNECT, Draft, ECDH_INIT, ECDH_REPLY, EXT_INFO, Fields, IGNORE, KEXINIT, NEWKEYS,
    SERVICE_ACCEPT, SERVICE_REQUEST, UNIMPLEMENTED,
};
use super::packet::{Cipher, Incoming, Outgoing, Used};
use super::proposal::{Agreed, Spoken};

/// SSH_DISCONNECT_PROTOCOL_ERROR (RFC 4253 §11.1).
pub(crate) const PROTOCOL_ERROR: u32 = 2;
/// SSH_DISCONNECT_BY_APPLICATION.
pub(crate) const BY_APPLICATION: u32 = 11;
/// Lines that a server may say before it greets (RFC 4253 §4.2), and its greeting, in bytes.
const GREETING_BYTES: usize = 8 * 1024;
/// Longest greeting, in bytes (RFC 4253 §4.2).
const IDENTIFICATION_BYTES: usize = 255;
/// Messages of the transport and of key exchange (RFC 4250 §4.1.2), which go while keys are exchanged.
const TRANSPORT: std::ops::RangeInclusive<u8> = 1..=49;
/// Messages that are held back while keys are exchanged. Who sends much waits elsewhere, so that there are few.
const MOST_HELD: usize = 1024;

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

/// What comes of the peer's bytes, beyond what the transport answers by itself.
#[derive(Debug)]
pub(crate) enum Step {
    /// To a client: the host has proven that it holds this key. Nothing goes on before [`Transport::accept_host`].
    Host(Box<HostKey>),
    /// A message that is not the transport's.
    Message(Bytes),
    /// The peer ends the connection: its message.
    Farewell(Bytes),
}

/// Which side this is.
enum Role {
    Client,
    Server(Arc<Host>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing has come.
    Greeting,
    /// Keys are exchanged, for the first time or again.
    Open,
    /// The host's key is being judged. What comes waits.
    Judging,
    /// The end.
    Over,
}

/// What this side waits for in an exchange.
enum Waiting {
    /// A client, for the answer to its share.
    Reply { side: Side, agreed: Agreed, proposal: Bytes },
    /// A server, for the client's share.
    Share { agreed: Agreed, proposal: Bytes },
}

/// What a host has proven an exchange with, for an agent that is told of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proof {
    /// The key or certificate, as it was shown.
    pub(crate) host_key: Bytes,
    /// Over the exchange hash.
    pub(crate) signature: Bytes,
}

/// One side of a connection's transport.
pub(crate) struct Transport {
    role: Role,
    opening: Opening,
    spoken: Spoken,
    stage: Stage,
    incoming: Incoming,
    outgoing: Outgoing,
    out: BytesMut,
    theirs: String,
    /// Bytes of lines before the greeting.
    prelude: usize,
    /// Our proposal, from when it went until our NEWKEYS.
    proposal: Option<Vec<u8>>,
    /// What had come under the peer's key when it went, in bytes.
    came_before: u64,
    waiting: Option<Waiting>,
    /// A client's first exchange, until the host is believed.
    judged: Option<(Exchanged, Agreed, KeyData)>,
    next_out: Option<Cipher>,
    next_in: Option<Cipher>,
    /// The next packet is a wrong guess.
    passes_over: bool,
    strict: bool,
    /// The client hears of extensions, and has not been told.
    tells_extensions: bool,
    session: Option<Digest>,
    host: Option<KeyData>,
    proof: Proof,
    held: VecDeque<Vec<u8>>,
    /// The user is in: keys are renewed from here on.
    is_in: bool,
    /// Exchanges since the last message that was not the transport's.
    idle_exchanges: u32,
}

impl Transport {
    /// Begins to speak as a client: identification and KEXINIT wait in [`Transport::output`].
    ///
    /// # Errors
    /// [`Breach::Unavailable`] when there is no randomness.
    pub(crate) fn client(opening: Opening) -> Result<Self, Breach> {
        Self::begin(Role::Client, opening, Spoken::client(opening.demand))
    }

    /// A client that speaks as much as servers of ours do.
    #[cfg(test)]
    pub(crate) fn wide_client(opening: Opening, spoken: Spoken) -> Result<Self, Breach> {
        Self::begin(Role::Client, opening, spoken)
    }

    /// The same as a server.
    ///
    /// # Errors
    /// As [`Transport::client`].
    pub(crate) fn server(opening: Opening, host: Arc<Host>) -> Result<Self, Breach> {
        Self::begin(Role::Server(host), opening, Spoken::server(opening.demand))
    }

    fn begin(role: Role, opening: Opening, spoken: Spoken) -> Result<Self, Breach> {
        let mut transport = Self {
            role,
            opening,
            spoken,
            stage: Stage::Greeting,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            out: BytesMut::new(),
            theirs: String::new(),
            prelude: 0,
            proposal: None,
            came_before: 0,
            waiting: None,
            judged: None,
            next_out: None,
            next_in: None,
            passes_over: false,
            strict: false,
            tells_extensions: false,
            session: None,
            host: None,
            proof: Proof::default(),
            held: VecDeque::new(),
            is_in: false,
            idle_exchanges: 0,
        };
        transport.out.extend_from_slice(opening.identification.as_bytes());
        transport.out.extend_from_slice(b"\r\n");
        transport.propose()?;
        Ok(transport)
    }

    /// What is to be sent. The caller takes out what it sends.
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// Where the peer's bytes go, in pieces of any size, before [`Transport::next`].
    pub(crate) fn input(&mut self) -> &mut BytesMut {
        &mut self.incoming.bytes
    }

    /// The peer's first line, once it has come.
    pub(crate) fn peer(&self) -> &str {
        &self.theirs
    }

    /// The name of the session: what users sign. None before the host is believed.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        self.session.as_ref().map(Digest::as_bytes)
    }

    /// What the host has proven the first exchange with.
    pub(crate) fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The host that this side is, where it is a server.
    pub(crate) fn own_host(&self) -> Option<&Host> {
        match &self.role {
            Role::Server(host) => Some(host),
            Role::Client => None,
        }
    }

    /// Whether algorithms are agreed on.
    pub(crate) fn has_agreed(&self) -> bool {
        self.waiting.is_some() || self.session.is_some() || self.judged.is_some()
    }

    /// Whether our proposal is out, so that nothing but the transport's messages may go.
    pub(crate) fn is_exchanging(&self) -> bool {
        self.proposal.is_some()
    }

    /// Whether keys are being renewed: either side has proposed, and NEWKEYS of either is not there yet.
    pub(crate) fn is_renewing(&self) -> bool {
        !self.is_settled()
    }

    /// What has come since our proposal went, in bytes on the wire. None of it once there are new keys.
    pub(crate) fn came_since_proposal(&self) -> u64 {
        match self.proposal {
            Some(_) => self.incoming.used.bytes.saturating_sub(self.came_before),
            None => 0,
        }
    }

    /// The user is in: from here on keys are renewed, by either side.
    pub(crate) fn let_in(&mut self) {
        self.is_in = true;
    }

    /// The next thing that follows from what has come.
    ///
    /// # Errors
    /// [`Breach`]. The connection is over then; what is in [`Transport::output`] is to be sent as far as that is possible.
    pub(crate) fn next(&mut self) -> Result<Option<Step>, Breach> {
        if self.stage == Stage::Greeting && !self.greet()? {
            return Ok(None);
        }
        while self.stage == Stage::Open {
            let Some(payload) = self.incoming.next()? else { break };
            if self.incoming.used.packets > u64::from(u32::MAX) {
                return Err(Breach::Keys("went on under a key that is worn out"));
            }
            let step = self.take(payload)?;
            self.renew_when_worn()?;
            if step.is_some() {
                return Ok(step);
            }
        }
        Ok(None)
    }

    /// Sends a message, or holds it back while keys are exchanged (RFC 4253 §7.1).
    ///
    /// # Errors
    /// [`Breach::Order`] when too much is held back, or the message is longer than a packet.
    pub(crate) fn send(&mut self, payload: &[u8]) -> Result<(), Breach> {
        let number = payload.first().copied().unwrap_or_default();
        let is_exchange = TRANSPORT.contains(&number) && !matches!(number, SERVICE_REQUEST | SERVICE_ACCEPT);
        if self.proposal.is_some() && !is_exchange {
            if self.held.len() >= MOST_HELD {
                return Err(Breach::Order("too much waits for new keys"));
            }
            self.held.push_back(payload.to_vec());
            return Ok(());
        }
        self.outgoing.put(&mut self.out, payload)?;
        self.renew_when_worn()
    }

    /// Tells the peer that this side does not know the message that came last (RFC 4253 §11.4).
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub(crate) fn unimplemented(&mut self) -> Result<(), Breach> {
        let sequence = self.incoming.sequence.wrapping_sub(1);
        self.send(&Draft::new(UNIMPLEMENTED).u32(sequence).0)
    }

    /// Says farewell, once, where the peer has greeted.
    pub(crate) fn farewell(&mut self, reason: u32, words: &str) {
        if self.stage > Stage::Greeting && self.stage != Stage::Over {
            let draft = Draft::new(DISCONNECT).u32(reason).string(words.as_bytes()).string(b"");
            // Nothing is left to do when it does not go.
            let _ = self.outgoing.put(&mut self.out, &draft.0);
        }
        self.stage = Stage::Over;
    }

    /// Says farewell for a breach. A host that has not proven its key is not told what it did; a client before its login is told
    /// of its own mistakes, and nothing of this side's state.
    pub(crate) fn break_off(&mut self, breach: &Breach) {
        let is_told = match self.role {
            Role::Server(_) if !self.is_in => {
                matches!(
                    breach,
                    Breach::Unexpected { .. } | Breach::Malformed(_) | Breach::Attempts | Breach::Account
                )
            }
            _ => true,
        };
        let words = if is_told && self.session.is_some() { breach.to_string() } else { String::new() };
        let reason = match breach {
            Breach::NotSpoken { .. } | Breach::NothingCommon { .. } => 3,
            _ => PROTOCOL_ERROR,
        };
        self.farewell(reason, &words);
    }

    /// Whether the connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Looks for the peer's first line; true when it is there.
    fn greet(&mut self) -> Result<bool, Breach> {
        loop {
            let bytes = &self.incoming.bytes;
            let most = GREETING_BYTES.saturating_sub(self.prelude);
            let Some(end) = bytes.iter().take(most).position(|byte| *byte == b'\n') else {
                return if bytes.len() < most { Ok(false) } else { Err(Breach::Greeting) };
            };
            self.prelude += end + 1;
            let line = self.incoming.bytes.split_to(end + 1);
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.starts_with(b"SSH-") {
                // Only a server may say something before (RFC 4253 §4.2).
                match self.role {
                    Role::Client => continue,
                    Role::Server(_) => return Err(Breach::Greeting),
                }
            }
            let text = std::str::from_utf8(line).map_err(|_| Breach::Greeting)?;
            let speaks = text.starts_with("SSH-2.0-") || text.starts_with("SSH-1.99-");
            let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if !speaks || !printable || text.len() > IDENTIFICATION_BYTES {
                return Err(Breach::Greeting);
            }
            text.clone_into(&mut self.theirs);
            self.stage = Stage::Open;
            return Ok(true);
        }
    }

    fn take(&mut self, payload: Bytes) -> Result<Option<Step>, Breach> {
        if std::mem::take(&mut self.passes_over) {
            return Ok(None);
        }
        let number = payload.first().copied().ok_or(Breach::Malformed("an empty packet"))?;
        match number {
            DISCONNECT => {
                self.stage = Stage::Over;
                Ok(Some(Step::Farewell(payload)))
            }
            KEXINIT | NEWKEYS | ECDH_INIT | ECDH_REPLY => self.exchange(number, &payload),
            // Strict key exchange lets nothing else into the first one.
            _ if self.strict && !self.incoming.is_sealed() => Err(unexpected(number, "key exchange")),
            IGNORE | DEBUG | UNIMPLEMENTED => Ok(None),
            _ if !self.incoming.is_sealed() => Err(unexpected(number, "key exchange")),
            // The peer has proposed and has not said NEWKEYS (RFC 4253 §7.1).
            _ if self.waiting.is_some() || self.next_in.is_some() => Err(unexpected(number, "key exchange")),
            EXT_INFO => Ok(None),
            _ => {
                self.idle_exchanges = 0;
                Ok(Some(Step::Message(payload)))
            }
        }
    }

    /// Asks for new keys when those in use are worn.
    fn renew_when_worn(&mut self) -> Result<(), Breach> {
        let Limits { bytes, packets } = self.opening.limits;
        let worn = |used: Used| used.bytes >= bytes || used.packets >= packets;
        if worn(self.outgoing.used) || worn(self.incoming.used) { self.renew_keys() } else { Ok(()) }
    }

    /// Asks for new keys, as is done at the limits, where that can be.
    ///
    /// # Errors
    /// [`Breach::Unavailable`] when there is no randomness.
    pub(crate) fn renew_keys(&mut self) -> Result<(), Breach> {
        if self.is_in && self.is_settled() && self.stage == Stage::Open { self.propose() } else { Ok(()) }
    }

    /// Whether no exchange of keys is under way.
    fn is_settled(&self) -> bool {
        self.proposal.is_none()
            && self.waiting.is_none()
            && self.next_in.is_none()
            && self.next_out.is_none()
            && self.judged.is_none()
    }
}

#[cfg(test)]
impl Transport {
    /// Packets under the peer's key, and under this side's.
    pub(super) fn came(&self) -> u64 {
        self.incoming.used.packets
    }

    pub(super) fn said(&self) -> u64 {
        self.outgoing.used.packets
    }

    /// Sends what [`Transport::send`] would hold back.
    pub(super) fn say_out_of_turn(&mut self, payload: &[u8]) {
        let _ = self.outgoing.put(&mut self.out, payload);
    }
}

fn unexpected(message: u8, expected: &'static str) -> Breach {
    Breach::Unexpected { message, expected }
}
