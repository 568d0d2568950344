//! What comes from the client on the channels of one connection.
//!
//! It is taken as it comes and waits in memory for the reader of the channel ([`Inbox`]), so that no channel holds up the
//! others for long; the [`window`] of each channel bounds what can come, and a client that sends past it is found out. Both SSH
//! servers, the node's and the proxy's, take their input in this way.

mod carry;
mod inbox;
mod line;
mod window;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use russh::ChannelId;
use russh::server::Session;

pub(crate) use carry::{Counts, ToClient, carry};
pub(crate) use inbox::{Inbox, Pressure};
pub(crate) use line::{Gate, Line};
pub(crate) use window::FIRST_BYTES as FIRST_WINDOW_BYTES;

use crate::algorithms;
use window::Account;

/// The client sent more than it had been granted, and knows that there is no room for it.
#[derive(Debug, thiserror::Error)]
#[error("the client sent {sent} bytes on a channel whose window had {granted} left (RFC 4254, section 5.2)")]
pub(crate) struct PastWindow {
    sent: usize,
    granted: u32,
}

/// A channel, as far as it receives.
struct Receiving {
    inbox: Arc<Inbox>,
    account: Account,
    /// What the client could send with the packet that is being taken, when that brought it a grant.
    before: Option<u32>,
}

/// What all channels of a connection receive. russh's callbacks have it to themselves; none of its methods waits.
pub(crate) struct Inbound {
    gate: Arc<Gate>,
    pressure: Arc<Pressure>,
    channels: HashMap<ChannelId, Receiving>,
    /// What waits on channels that the client has closed.
    closed: Vec<Arc<Inbox>>,
    widest_window: u32,
    /// Packets of input that have come, but for those of channels that are behind.
    turn: u64,
    /// The client did what ends the connection: whatever else it sends is dropped.
    over: bool,
}

impl Drop for Inbound {
    fn drop(&mut self) {
        for receiving in self.channels.values() {
            receiving.inbox.leave();
        }
        self.pressure.end();
    }
}

impl Inbound {
    /// Of a connection that is read through `gate`.
    pub(crate) fn new(gate: Arc<Gate>, pressure: Arc<Pressure>) -> Self {
        Self {
            gate,
            pressure,
            channels: HashMap::new(),
            closed: Vec::new(),
            widest_window: algorithms::FIRST_WINDOW_BYTES,
            turn: 0,
            over: false,
        }
    }

    /// What the client calls itself, by which its windows may become wider.
    pub(crate) fn met(&mut self, identification: &[u8]) {
        self.widest_window = algorithms::widest_window(identification);
    }

    /// Lets a channel in. Those that were refused after all are forgotten: russh does not tell of them.
    pub(crate) fn open(&mut self, id: ChannelId) -> Arc<Inbox> {
        self.channels.retain(|_, receiving| !receiving.inbox.is_refused());
        let inbox = Inbox::new(self.pressure.clone());
        self.channels.insert(id, Receiving { inbox: inbox.clone(), account: Account::new(), before: None });
        inbox
    }

    pub(crate) fn holds(&self, id: ChannelId) -> bool {
        self.channels.contains_key(&id)
    }

    /// Channels that are open, or being opened.
    pub(crate) fn channels(&self) -> usize {
        self.channels.values().filter(|receiving| !receiving.inbox.is_refused()).count()
    }

    /// Counts a packet of a channel against its window, also one that is not read (RFC 4254 §5.2). False when the
    /// connection is over and what comes is to be dropped.
    ///
    /// # Errors
    /// When it was more than the client was granted. The connection is not read any more then, and has to be cut.
    pub(crate) fn came(
        &mut self,
        id: ChannelId,
        length: usize,
        session: &Session,
    ) -> Result<bool, PastWindow> {
        let Some(receiving) = self.channels.get_mut(&id) else { return Ok(!self.over) };
        let granted = receiving.before.take().unwrap_or(receiving.account.left);
        if !self.over && !receiving.account.came(length, granted, session.window_size(&id), Instant::now()) {
            self.over = true;
            self.gate.hold(std::future::pending());
            return Err(PastWindow { sent: length, granted });
        }
        Ok(!self.over)
    }

    /// Takes a packet for the reader of the channel.
    pub(crate) fn take(&mut self, id: ChannelId, data: &[u8]) {
        let Some(Receiving { inbox, account, .. }) = self.channels.get_mut(&id) else { return };
        if let Err(error) = inbox.accept(data) {
            inbox.cut(&error.to_string());
        }
        if data.len() <= window::TRICKLE_BYTES as usize && inbox.waiting() >= window::PROMPT_BYTES {
            if let Some(look) = account.next_look(inbox.taken(), self.turn, Instant::now()) {
                self.gate.hold(tokio::time::sleep_until(look.into()));
            }
        } else {
            self.turn += 1;
            if inbox.wants_room() {
                self.gate.hold(inbox.clone().room(data.len()));
            }
        }
    }

    /// The next target for windows, when a channel was just granted the `current` one.
    pub(crate) fn adjust(&mut self, id: ChannelId, current: u32) -> u32 {
        let now = Instant::now();
        let Some(receiving) = self.channels.get_mut(&id) else { return current };
        receiving.before = Some(receiving.account.left);
        receiving.account.granted(current);
        let view = |receiving: &Receiving| receiving.account.view(receiving.inbox.waiting(), now);
        let granted = view(receiving);
        let others = self.channels.iter().filter(|(other, _)| **other != id);
        let others = others.map(|(_, receiving)| view(receiving));
        let closed = self.closed.iter().map(|inbox| inbox.waiting() as u64).sum();
        window::next(granted, others, closed, self.widest_window)
    }

    /// The client sends no more on this channel.
    pub(crate) fn end(&self, id: ChannelId) {
        if let Some(receiving) = self.channels.get(&id) {
            receiving.inbox.end();
        }
    }

    /// The client has closed this channel. What waits on it still takes room.
    pub(crate) fn close(&mut self, id: ChannelId) -> Option<Arc<Inbox>> {
        let inbox = self.channels.remove(&id)?.inbox;
        self.closed.retain(|inbox| !inbox.is_empty());
        self.closed.push(inbox.clone());
        Some(inbox)
    }
}
