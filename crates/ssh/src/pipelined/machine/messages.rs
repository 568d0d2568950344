//! What the server says, message by message.

use bytes::Bytes;

use super::{Event, Machine, Stage, Waiting};
use crate::pipelined::Breach;
use crate::pipelined::channel::{Asked, OURS};
use crate::pipelined::exchange::{Said, Side, conclude};
use crate::pipelined::message::{
    CHANNEL_FAILURE, CHANNEL_OPEN_FAILURE, Draft, ECDH_INIT, Message, REQUEST_FAILURE, STDERR, Told,
    UNIMPLEMENTED,
};
use crate::pipelined::proposal::agree;

/// Lines that a server may say before it greets (RFC 4253 §4.2), and its greeting, in bytes.
const GREETING_BYTES: usize = 8 * 1024;
/// Longest greeting, in bytes (RFC 4253 §4.2).
const IDENTIFICATION_BYTES: usize = 255;
/// SSH_OPEN_ADMINISTRATIVELY_PROHIBITED (RFC 4254 §5.1).
const PROHIBITED: u32 = 1;

impl Machine {
    /// Looks for the server's first line; true when it is there.
    pub(super) fn greet(&mut self) -> Result<bool, Breach> {
        loop {
            let bytes = &self.incoming.bytes;
            let room = GREETING_BYTES.saturating_sub(self.prelude);
            let Some(end) = bytes.iter().take(room).position(|byte| *byte == b'\n') else {
                return if bytes.len() < room { Ok(false) } else { Err(Breach::Greeting) };
            };
            self.prelude += end + 1;
            let line = self.incoming.bytes.split_to(end + 1);
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.starts_with(b"SSH-") {
                continue;
            }
            let text = std::str::from_utf8(line).map_err(|_| Breach::Greeting)?;
            let speaks = text.starts_with("SSH-2.0-") || text.starts_with("SSH-1.99-");
            let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if !speaks || !printable || text.len() > IDENTIFICATION_BYTES {
                return Err(Breach::Greeting);
            }
            text.clone_into(&mut self.theirs);
            self.stage = Stage::Exchanging;
            return Ok(true);
        }
    }

    pub(super) fn take(&mut self, payload: &Bytes) -> Result<(), Breach> {
        if std::mem::take(&mut self.passes_over) {
            return Ok(());
        }
        let number = payload.first().copied().unwrap_or_default();
        let message = Message::read(payload)?;
        let unexpected = |expected| Err(Breach::Unexpected { message: number, expected });
        match message {
            Message::Disconnect(words) => {
                self.events.push_back(Event::Disconnected(words));
                self.stage = Stage::Over;
                return Ok(());
            }
            Message::Proposal(_) | Message::Reply { .. } | Message::NewKeys => {
                return self.exchange(message, payload);
            }
            // Strict key exchange lets nothing else into the first one.
            _ if self.strict && !self.incoming.is_sealed() => return unexpected("key exchange"),
            Message::Idle(_) => return Ok(()),
            _ if self.stage == Stage::Exchanging => return unexpected("key exchange"),
            // The server has proposed and has not said NEWKEYS (RFC 4253 §7.1).
            _ if self.waiting.is_some() || self.next_in.is_some() => return unexpected("key exchange"),
            Message::Extensions => return Ok(()),
            Message::Banner(words) if self.stage < Stage::In => {
                self.events.push_back(Event::Banner(words));
                return Ok(());
            }
            _ => {}
        }
        match (self.stage, message) {
            (Stage::LoggingIn, Message::ServiceAccepted) => Ok(()),
            (Stage::LoggingIn, Message::LoggedIn) => {
                self.stage = Stage::In;
                self.events.push_back(Event::LoggedIn);
                Ok(())
            }
            (Stage::LoggingIn, Message::LoginRefused { methods, partial }) => {
                self.events.push_back(Event::LoginRefused { methods, partial });
                self.disconnect();
                Ok(())
            }
            (Stage::In, message) => self.serve(number, message),
            _ => unexpected("the answer to the login"),
        }
    }

    fn exchange(&mut self, message: Message, payload: &Bytes) -> Result<(), Breach> {
        let unexpected = |expected| {
            let message = payload.first().copied().unwrap_or_default();
            Err(Breach::Unexpected { message, expected })
        };
        match message {
            Message::Proposal(lists) => {
                // One exchange after the other; and the server's NEWKEYS of the last one has come.
                if self.waiting.is_some() || self.next_in.is_some() || self.next_out.is_some() {
                    return unexpected("the end of the key exchange");
                }
                if self.proposal.is_none() {
                    self.propose()?;
                }
                let agreed = agree(self.opening.demand, &lists)?;
                if self.stage == Stage::Exchanging {
                    self.strict = agreed.strict;
                    if self.strict && self.incoming.sequence != 1 {
                        return unexpected("KEXINIT as the first packet");
                    }
                }
                self.passes_over = agreed.passes_over;
                let side = Side::start(agreed.method)?;
                self.send(Draft::new(ECDH_INIT).string(&side.share()))?;
                self.waiting = Some(Waiting { side, agreed, proposal: payload.clone() });
                Ok(())
            }
            Message::Reply { host_key, share, signature } => {
                let Some(waiting) = self.waiting.take() else { return unexpected("KEXINIT") };
                let Waiting { side, agreed, proposal } = waiting;
                let said = Said {
                    our_identification: self.opening.identification.as_bytes(),
                    their_identification: self.theirs.as_bytes(),
                    our_proposal: self.proposal.as_deref().unwrap_or_default(),
                    their_proposal: &proposal,
                };
                let exchanged = conclude(side, &agreed, &said, (&host_key, &share, &signature))?;
                match &self.host {
                    None => {
                        self.events.push_back(Event::Host(Box::new(exchanged.host.clone())));
                        self.judged = Some((exchanged, agreed));
                        self.stage = Stage::Judging;
                        Ok(())
                    }
                    // Whoever was believed has to be the one who renews.
                    Some(host) if *host == exchanged.host.key => {
                        self.prepare(&exchanged, &agreed)?;
                        self.new_keys()
                    }
                    Some(_) => Err(Breach::OtherHostKey),
                }
            }
            _ => {
                let Some(cipher) = self.next_in.take() else { return unexpected("KEXINIT") };
                self.incoming.rekey(cipher, self.strict);
                Ok(())
            }
        }
    }

    /// What comes once the login is good.
    fn serve(&mut self, number: u8, message: Message) -> Result<(), Breach> {
        let draft = match message {
            Message::Global { wants_answer } => wants_answer.then(|| Draft::new(REQUEST_FAILURE)),
            // A session's client is asked for no channel that it has not offered.
            Message::Open { sender } => {
                let draft = Draft::new(CHANNEL_OPEN_FAILURE).u32(sender).u32(PROHIBITED);
                Some(draft.string(b"nobody has asked for that").string(b""))
            }
            Message::Unknown(_) => {
                let sequence = self.incoming.sequence.wrapping_sub(1);
                Some(Draft::new(UNIMPLEMENTED).u32(sequence))
            }
            Message::Answered | Message::ServiceAccepted | Message::LoggedIn | Message::Banner(_) => None,
            Message::LoginRefused { .. } => None,
            other => return self.on_session(number, other),
        };
        draft.map_or(Ok(()), |draft| self.send(draft))
    }

    fn on_session(&mut self, number: u8, message: Message) -> Result<(), Breach> {
        let channel = self.channel.as_mut();
        let recipient = match &message {
            Message::Opened { recipient, .. }
            | Message::NotOpened { recipient, .. }
            | Message::Adjust { recipient, .. }
            | Message::Data { recipient, .. }
            | Message::Request { recipient, .. }
            | Message::Granted { recipient, .. }
            | Message::Eof(recipient)
            | Message::Close(recipient) => *recipient,
            _ => return Err(Breach::Unexpected { message: number, expected: "a message of the channel" }),
        };
        let opens = matches!(message, Message::Opened { .. } | Message::NotOpened { .. });
        let Some(channel) = channel.filter(|channel| recipient == OURS && (opens || channel.is_open()))
        else {
            return Err(Breach::Unexpected { message: number, expected: "a channel that is open" });
        };
        let mut drafts = Vec::new();
        let event = match message {
            Message::Opened { sender, window, most, .. } => {
                drafts = channel.opened(sender, window, most)?;
                Some(Event::Opened)
            }
            Message::NotOpened { words, .. } => {
                if channel.is_open() {
                    return Err(Breach::Unexpected { message: number, expected: "no second answer" });
                }
                channel.not_opened();
                Some(Event::NotOpened(words))
            }
            Message::Adjust { by, .. } => {
                channel.adjust(by)?;
                None
            }
            Message::Data { kind, bytes, .. } => {
                channel.came(bytes.len())?;
                match kind {
                    // What nobody reads is taken all the same.
                    kind if kind > STDERR => {
                        drafts.extend(channel.took(bytes.len()));
                        None
                    }
                    kind => Some(Event::Data { errors: kind == STDERR, bytes }),
                }
            }
            Message::Eof(_) => Some(Event::Eof),
            Message::Close(_) => {
                drafts.extend(channel.closed());
                Some(Event::Closed)
            }
            Message::Request { what, wants_answer, .. } => {
                if wants_answer {
                    drafts.extend(channel.answer(CHANNEL_FAILURE));
                }
                (what != Told::Other).then_some(Event::Told(what))
            }
            Message::Granted { granted, .. } => {
                let asked = channel.answered();
                // A program that is refused leaves a channel that nothing will end but this side.
                if (asked, granted) == (Some(Asked::Program), false) {
                    drafts.extend(channel.close());
                }
                asked.map(|asked| Event::Answered(asked, granted))
            }
            _ => None,
        };
        self.events.extend(event);
        drafts.into_iter().try_for_each(|draft| self.send(draft))
    }
}
