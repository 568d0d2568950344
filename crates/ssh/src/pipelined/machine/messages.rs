//! What the server says, message by message.

use bytes::Bytes;

use super::{Event, Machine, Stage};
use crate::pipelined::Breach;
use crate::pipelined::channel::{Asked, OURS};
use crate::pipelined::message::{
    CHANNEL_FAILURE, CHANNEL_OPEN_FAILURE, Draft, Message, REQUEST_FAILURE, STDERR, Told,
};

/// SSH_OPEN_ADMINISTRATIVELY_PROHIBITED (RFC 4254 §5.1).
const PROHIBITED: u32 = 1;

impl Machine {
    pub(super) fn take(&mut self, payload: &Bytes) -> Result<(), Breach> {
        let number = payload.first().copied().unwrap_or_default();
        let message = Message::read(payload)?;
        let unexpected = |expected| Err(Breach::Unexpected { message: number, expected });
        match (self.stage, message) {
            (_, Message::Disconnect(words)) => {
                self.events.push_back(Event::Disconnected(words));
                self.stage = Stage::Over;
                Ok(())
            }
            (stage, Message::Banner(words)) if stage < Stage::In => {
                self.events.push_back(Event::Banner(words));
                Ok(())
            }
            (Stage::LoggingIn, Message::ServiceAccepted) => Ok(()),
            (Stage::LoggingIn, Message::LoggedIn) => {
                self.stage = Stage::In;
                self.transport.let_in();
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

    /// What comes once the login is good.
    fn serve(&mut self, number: u8, message: Message) -> Result<(), Breach> {
        let draft = match message {
            Message::Global { wants_answer } => wants_answer.then(|| Draft::new(REQUEST_FAILURE)),
            // A session's client is asked for no channel that it has not offered.
            Message::Open { sender } => {
                let draft = Draft::new(CHANNEL_OPEN_FAILURE).u32(sender).u32(PROHIBITED);
                Some(draft.string(b"the client has not asked for that").string(b""))
            }
            Message::Unknown(_) => return self.transport.unimplemented(),
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
                    // Output that is not read is taken all the same.
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
