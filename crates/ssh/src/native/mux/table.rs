//! The table of a connection's channels: what is sent in which turn, and what comes handed on.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::batch::Batch;
use super::chan::{Chan, MAX_URGENT, QUEUE_BYTES};
use super::ports::{Breach, End, Role, Side, Taker};
use super::window::Budget;
use crate::inbound::{Inbox, Pressure};
use crate::native::frame::{Farewell, Frame};

/// Answers and other frames of the connection that wait to be sent, past which the far end has asked for too much without
/// reading.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Bytes written at once.
const BATCH_BYTES: usize = 128 * 1024;

/// The channels of one connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Mux(pub(super) Arc<Inner>);

/// The same, for what the connection itself holds.
#[derive(Clone)]
pub(crate) struct WeakMux(Weak<Inner>);

impl WeakMux {
    pub(crate) fn upgrade(&self) -> Option<Mux> {
        self.0.upgrade().map(Mux)
    }
}

pub(super) struct Inner {
    side: Side,
    state: Mutex<State>,
    /// There is something to write.
    pub(super) work: Notify,
    /// The connection has ended, or all is said.
    ended: Notify,
    /// Something has come since this was last looked at.
    pub(super) heard: AtomicBool,
}

pub(super) struct State {
    pub(super) channels: HashMap<u32, Chan>,
    /// The next channel of our own.
    pub(super) next: u32,
    /// The last one that the far end has opened.
    last: u32,
    /// Channels that have something to send, in turn.
    ready: VecDeque<u32>,
    /// Encoded frames of the connection, and answers.
    pub(super) control: BytesMut,
    /// Nothing is written yet: more belongs into the first flight.
    pub(super) corked: bool,
    /// What the far end may send on a new channel, and what we may.
    pub(super) first_in: u32,
    pub(super) first_out: u32,
    budget: Budget,
    /// The last frame, once it is known.
    pub(super) goodbye: Option<Goodbye>,
    pub(super) end: Option<End>,
}

/// What we say at the end, behind all that can still be sent.
pub(super) struct Goodbye {
    frame: Bytes,
    /// It was put among what is written, and was written.
    given: bool,
    written: bool,
}

impl Mux {
    /// Of this side; on new channels the far end may send `first_in` bytes, and we `first_out`. What is asked for on a
    /// `corked` one is not written before the first channel or listener is.
    pub(crate) fn new(side: Side, first_in: u32, first_out: u32, corked: bool) -> Self {
        let state = State {
            channels: HashMap::new(),
            next: if side == Side::Client { 1 } else { 2 },
            last: 0,
            ready: VecDeque::new(),
            control: BytesMut::new(),
            corked,
            first_in,
            first_out,
            budget: Budget::default(),
            goodbye: None,
            end: None,
        };
        Self(Arc::new(Inner {
            side,
            state: Mutex::new(state),
            work: Notify::new(),
            ended: Notify::new(),
            heard: AtomicBool::new(false),
        }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Channels that are open.
    pub(crate) fn channels(&self) -> usize {
        self.state().channels.len()
    }

    /// Sends a frame of the connection's.
    ///
    /// # Errors
    /// When too many wait already: the far end asks and does not read.
    pub(crate) fn answer(&self, frame: &Frame) -> Result<(), Breach> {
        let mut state = self.state();
        if state.control.len() > MAX_ANSWER_BYTES {
            return Err(Breach::rule("more was asked for than answers are read"));
        }
        frame.encode(&mut state.control)?;
        state.corked &= matches!(frame, Frame::Hello(_));
        drop(state);
        self.0.work.notify_one();
        Ok(())
    }

    /// For what the connection itself holds.
    pub(crate) fn weak(&self) -> WeakMux {
        WeakMux(Arc::downgrade(&self.0))
    }

    /// Ends the connection, once what can be sent was. The first goodbye counts.
    pub(crate) fn finish(&self, why: Farewell, reason: &str) {
        let mut state = self.state();
        if state.goodbye.is_none() {
            let mut frame = BytesMut::new();
            // A goodbye always fits: its reason is cut.
            let _ = Frame::Goodbye { why, reason: reason.to_owned() }.encode(&mut frame);
            state.goodbye = Some(Goodbye { frame: frame.freeze(), given: false, written: false });
            state.corked = false;
        }
        drop(state);
        self.0.work.notify_one();
    }

    /// How the connection ended, when it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.state().end.clone()
    }

    /// Waits until it has.
    pub(crate) async fn ended(&self) -> End {
        loop {
            let ended = self.0.ended.notified();
            if let Some(end) = self.end() {
                return end;
            }
            ended.await;
        }
    }

    /// An inbox for what comes on a channel: its window follows what is taken out of it.
    pub(crate) fn inbox(&self, pressure: &Arc<Pressure>, id: u32) -> Arc<Inbox> {
        let mux = self.weak();
        let credit = move |bytes| {
            if let Some(mux) = mux.upgrade() {
                mux.taken(id, bytes);
            }
        };
        Inbox::with_credit(pressure.clone(), Box::new(credit))
    }

    /// Windows stay as wide as they begin: for a process that holds many connections. To be said before any is opened.
    pub(crate) fn keep_windows(&self) {
        self.state().budget = Budget::NONE;
    }

    /// The reader of a channel has taken so many bytes.
    pub(crate) fn taken(&self, id: u32, bytes: usize) {
        let mut state = self.state();
        let State { channels, budget, .. } = &mut *state;
        let Some(chan) = channels.get_mut(&id) else { return };
        if chan.closed_there {
            return;
        }
        chan.window.taken(bytes, budget);
        if chan.window.is_due() {
            state.list(id);
            drop(state);
            self.0.work.notify_one();
        }
    }

    /// Waits until the goodbye was written, or the connection has ended.
    pub(crate) async fn all_said(&self) {
        loop {
            let ended = self.0.ended.notified();
            {
                let state = self.state();
                if state.end.is_some() || state.goodbye.as_ref().is_some_and(|goodbye| goodbye.written) {
                    return;
                }
            }
            ended.await;
        }
    }

    pub(super) fn said(&self) {
        if let Some(goodbye) = &mut self.state().goodbye {
            goodbye.written = true;
        }
        self.0.ended.notify_waiters();
    }

    pub(super) fn uncork(&self) {
        self.state().corked = false;
    }

    /// Takes a frame that has come.
    pub(super) fn dispatch(&self, frame: Frame, role: &mut impl Role) -> Result<(), Breach> {
        match frame {
            Frame::Ping(number) => self.answer(&Frame::Pong(number)),
            Frame::Pong(_) => Ok(()),
            Frame::Open(id, _) => {
                self.state().opened(self.0.side, id)?;
                role.frame(frame)
            }
            Frame::Data(id, bytes) => self.data(id, false, bytes),
            Frame::Errors(id, bytes) => self.data(id, true, bytes),
            Frame::Window(id, more) => self.granted(id, more),
            Frame::Eof(id) => self.with(id, |taker| taker.eof()),
            Frame::Close(id) => self.closed(id),
            Frame::Refused(id, reason) => self.refused(id, reason),
            Frame::Opened(id)
            | Frame::Started(id, _)
            | Frame::ExitStatus(id, _)
            | Frame::ExitSignal { channel: id, .. }
            | Frame::Resize(id, _)
            | Frame::Signal(id, _) => self.with(id, |taker| taker.frame(frame)),
            other => role.frame(other),
        }
    }

    /// Hands something to a channel's taker, outside of the lock.
    fn with(&self, id: u32, hand: impl FnOnce(&dyn Taker)) -> Result<(), Breach> {
        let taker = {
            let mut state = self.state();
            let chan = state.known(self.0.side, id)?.filter(|chan| !chan.closed_there);
            chan.map(|chan| chan.taker.clone())
        };
        if let Some(taker) = taker {
            hand(taker.as_ref());
        }
        Ok(())
    }

    fn data(&self, id: u32, errors: bool, bytes: Bytes) -> Result<(), Breach> {
        let taker = {
            let mut state = self.state();
            let Some(chan) = state.known(self.0.side, id)? else { return Ok(()) };
            if !chan.window.came(bytes.len()) {
                let length = bytes.len();
                return Err(Breach::rule(format!("{length} bytes came on a channel, more than its window")));
            }
            // No reader is there any more.
            if chan.closed_here || chan.closed_there || bytes.is_empty() {
                return Ok(());
            }
            chan.taker.clone()
        };
        taker.data(errors, bytes);
        Ok(())
    }

    fn granted(&self, id: u32, more: u32) -> Result<(), Breach> {
        let mut state = self.state();
        let Some(chan) = state.known(self.0.side, id)? else { return Ok(()) };
        chan.credit = chan.credit.saturating_add(u64::from(more));
        state.list(id);
        drop(state);
        self.0.work.notify_one();
        Ok(())
    }

    fn closed(&self, id: u32) -> Result<(), Breach> {
        let mut state = self.state();
        let Some(chan) = state.known(self.0.side, id)? else { return Ok(()) };
        if std::mem::replace(&mut chan.closed_there, true) {
            return Ok(());
        }
        // It takes no more.
        chan.forget_queue();
        let (taker, woken) = (chan.taker.clone(), std::mem::take(&mut chan.waiting));
        if chan.close_sent {
            state.remove(id);
        } else {
            state.list(id);
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        taker.closed();
        self.0.work.notify_one();
        Ok(())
    }

    fn refused(&self, id: u32, reason: String) -> Result<(), Breach> {
        let mut state = self.state();
        state.known(self.0.side, id)?;
        let chan = state.remove(id);
        drop(state);
        if let Some(chan) = chan {
            chan.waiting.into_iter().for_each(Waker::wake);
            if !chan.closed_there {
                chan.taker.gone(Some(reason));
            }
        }
        Ok(())
    }

    /// The connection is over: all channels are told.
    pub(super) fn over(&self, end: End) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(end);
        }
        let channels = std::mem::take(&mut state.channels);
        state.ready.clear();
        drop(state);
        for chan in channels.into_values() {
            chan.waiting.into_iter().for_each(Waker::wake);
            // Who has closed before has sent all there was; that still belongs to the reader.
            if !chan.closed_there {
                chan.taker.gone(None);
            }
        }
        self.0.ended.notify_waiters();
    }

    /// Takes the next bytes to write; false when nothing will follow them.
    pub(super) fn gather(&self, batch: &mut Batch) -> bool {
        let mut woken = Vec::new();
        let mut state = self.state();
        let more = state.gather(batch, &mut woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        more
    }
}

impl State {
    /// The far end opens a channel.
    fn opened(&mut self, side: Side, id: u32) -> Result<(), Breach> {
        if side.owns(id) || id <= self.last {
            return Err(Breach::rule(format!("the channel {id} was opened, and {} before", self.last)));
        }
        self.last = id;
        Ok(())
    }

    /// A channel that a frame is about; none for one that is no more.
    fn known(&mut self, side: Side, id: u32) -> Result<Option<&mut Chan>, Breach> {
        let was = if side.owns(id) { id < self.next } else { id <= self.last };
        if !was {
            return Err(Breach::rule(format!("a frame is about the channel {id}, which was never opened")));
        }
        Ok(self.channels.get_mut(&id))
    }

    pub(super) fn list(&mut self, id: u32) {
        if let Some(chan) = self.channels.get_mut(&id)
            && !chan.listed
            && chan.can_send()
        {
            chan.listed = true;
            self.ready.push_back(id);
        }
    }

    fn gather(&mut self, batch: &mut Batch, woken: &mut Vec<Waker>) -> bool {
        if self.corked {
            return true;
        }
        batch.put(self.control.split().freeze());
        while batch.len() < BATCH_BYTES {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(chan) = self.channels.get_mut(&id) else { continue };
            chan.listed = false;
            let closed = chan.send(id, batch);
            if chan.queued < QUEUE_BYTES && chan.urgent.len() < MAX_URGENT {
                woken.append(&mut chan.waiting);
            }
            if closed && chan.closed_there {
                // Both are done with it.
                self.remove(id);
            } else {
                self.list(id);
            }
        }
        match &mut self.goodbye {
            // What waits for a window is not waited for.
            Some(goodbye) if self.ready.is_empty() => {
                if !std::mem::replace(&mut goodbye.given, true) {
                    batch.put(goodbye.frame.clone());
                }
                false
            }
            _ => true,
        }
    }

    /// A channel is over.
    pub(super) fn remove(&mut self, id: u32) -> Option<Chan> {
        let chan = self.channels.remove(&id)?;
        self.budget.give_back(&chan.window);
        Some(chan)
    }
}
