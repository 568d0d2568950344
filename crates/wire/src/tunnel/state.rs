//! The rules of a tunnel: frames and `now` in, frames out. No I/O and no clock of its own.

mod config;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use super::TunnelError;
use super::frame::{Frame, MAX_DATA, MAX_OPEN};
use stream::{Fin, StreamState, wake};

pub use config::{Config, MAX_RECEIVED, MAX_SENT};

/// Which side of the connection this is. The client opens streams with odd numbers, the server with even ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Dialled.
    Client,
    /// Was dialled.
    Server,
}

/// What a stream may always run ahead of the connection.
const LEAST_SEND_BUFFER: usize = 4 * 1024;
/// The longest round trip that is believed. The peer can make it as long as it likes by answering late, and credit grows
/// with it; by satellite it is 0.6 s.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);
/// A stream that uses half its credit up in more round trips than this has more than it needs, and gets less.
const SLOW_ROUND_TRIPS: u32 = 32;
/// Where round trips are short: the same as a time.
const SLOW: Duration = Duration::from_millis(200);
/// A queue of answers that was longer than this gives its room back when it is empty.
const FEW_ANSWERS: usize = 256;

/// Answers to the other side's frames that may wait to be sent. A peer that asks for more without reading is broken.
const MAX_CONTROL: usize = 65_536;

/// Both directions of one tunnel.
#[derive(Debug)]
pub struct State {
    config: Config,
    side: Side,
    streams: BTreeMap<u32, StreamState>,
    next_id: u32,
    last_peer_id: u32,
    pending: VecDeque<(u32, Bytes)>,
    control: VecDeque<Frame>,
    ready: VecDeque<u32>,
    growth: u64,
    /// Half of it is the delay of the link.
    round_trip: Duration,
    heard_at: Duration,
    asked: Option<(u32, Duration)>,
    /// Why the peer takes no new streams.
    peer_drains: Option<String>,
    we_drain: bool,
    closed: Option<TunnelError>,
    acceptor: Option<Waker>,
    sender: Option<Waker>,
}

/// What a read finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// These bytes.
    Data(Bytes),
    /// The peer has sent everything.
    End,
    /// Nothing yet; the waker is kept.
    Pending,
}

impl State {
    /// A fresh tunnel.
    #[must_use]
    pub fn new(side: Side, config: Config) -> Self {
        Self {
            config,
            side,
            streams: BTreeMap::new(),
            next_id: if side == Side::Client { 1 } else { 2 },
            last_peer_id: 0,
            pending: VecDeque::new(),
            // The first answer tells how long the link is.
            control: VecDeque::from([Frame::Ping(0)]),
            ready: VecDeque::new(),
            growth: 0,
            round_trip: Duration::from_millis(20),
            heard_at: Duration::ZERO,
            asked: Some((0, Duration::ZERO)),
            peer_drains: None,
            we_drain: false,
            closed: None,
            acceptor: None,
            sender: None,
        }
    }

    /// Takes in one frame of the peer's. `now` counts from the beginning of the tunnel.
    ///
    /// # Errors
    /// [`TunnelError::Protocol`]: the tunnel cannot go on.
    pub fn receive(&mut self, frame: Frame, now: Duration) -> Result<(), TunnelError> {
        self.heard_at = now;
        match frame {
            Frame::Data(id, bytes) => self.receive_data(id, bytes),
            Frame::Open(id, header) => self.receive_open(id, header, now),
            Frame::Window(id, more) => self.receive_window(id, more),
            Frame::Fin(id) => {
                self.check_known(id)?;
                // One that has failed must not look as if all of it had been read.
                if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.failed.is_none()) {
                    if stream.received_fin {
                        return Err(TunnelError::Protocol(format!("stream {id} ended twice")));
                    }
                    stream.received_fin = true;
                    wake(&mut stream.reader);
                }
                Ok(())
            }
            Frame::Reset(id, reason) => {
                self.check_known(id)?;
                self.fail(id, TunnelError::Reset(reason));
                Ok(())
            }
            Frame::Ping(number) => self.control(Frame::Pong(number)),
            Frame::Pong(number) => {
                if let Some((asked, at)) = self.asked
                    && asked == number
                {
                    self.round_trip = now.saturating_sub(at).min(MAX_ROUND_TRIP);
                    self.asked = None;
                }
                Ok(())
            }
            Frame::GoAway(reason) => {
                self.peer_drains = Some(reason);
                Ok(())
            }
        }
    }

    fn receive_data(&mut self, id: u32, bytes: Bytes) -> Result<(), TunnelError> {
        self.check_known(id)?;
        // A stream that we have reset: what was on its way is dropped.
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if stream.failed.is_some() {
            return Ok(());
        }
        if stream.received_fin {
            return Err(TunnelError::Protocol(format!("data after the end of stream {id}")));
        }
        stream.peer_credit = stream.peer_credit.checked_sub(length).ok_or_else(|| {
            TunnelError::Protocol(format!(
                "stream {id} was sent {length} bytes with credit for {}",
                stream.peer_credit
            ))
        })?;
        if !bytes.is_empty() && !stream.released {
            stream.received.receive(bytes);
            wake(&mut stream.reader);
            if self.config.received.is_over() {
                return self.relieve();
            }
        }
        Ok(())
    }

    /// Ends the stream that holds most of the memory.
    fn relieve(&mut self) -> Result<(), TunnelError> {
        let most = self.streams.iter().max_by_key(|(_, stream)| stream.received.charged());
        let Some((&id, _)) = most else { return Ok(()) };
        tracing::warn!(stream = id, "a stream of a tunnel was ended: too much waits to be read");
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.received.clear();
            stream.received_fin = false;
        }
        self.fail(id, TunnelError::Reset(TOO_MUCH.to_owned()));
        self.control(Frame::Reset(id, TOO_MUCH.to_owned()))
    }

    fn receive_open(&mut self, id: u32, header: Bytes, now: Duration) -> Result<(), TunnelError> {
        let theirs = if self.side == Side::Client { 0 } else { 1 };
        if id % 2 != theirs || id == 0 || id <= self.last_peer_id {
            return Err(TunnelError::Protocol(format!(
                "stream {id} cannot be opened after {}",
                self.last_peer_id
            )));
        }
        self.last_peer_id = id;
        let refusal = if self.we_drain {
            Some("shutting down".to_owned())
        } else if self.streams.len() >= self.config.max_streams
            || self.pending.len() >= self.config.max_pending
        {
            Some("too many streams".to_owned())
        } else {
            None
        };
        if let Some(reason) = refusal {
            return self.control(Frame::Reset(id, reason));
        }
        self.streams.insert(id, StreamState::new(&self.config, now));
        self.pending.push_back((id, header));
        wake(&mut self.acceptor);
        Ok(())
    }

    fn receive_window(&mut self, id: u32, more: u32) -> Result<(), TunnelError> {
        self.check_known(id)?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.credit = stream
            .credit
            .checked_add(more)
            .ok_or_else(|| TunnelError::Protocol(format!("the credit of stream {id} overflows")))?;
        self.schedule(id);
        Ok(())
    }

    /// A frame for a stream that was never opened breaks the protocol; one for a stream that is over does not.
    fn check_known(&self, id: u32) -> Result<(), TunnelError> {
        let ours = if self.side == Side::Client { 1 } else { 0 };
        let opened = if id % 2 == ours { id < self.next_id } else { id <= self.last_peer_id };
        if opened && id != 0 {
            Ok(())
        } else {
            Err(TunnelError::Protocol(format!("stream {id} was never opened")))
        }
    }

    fn control(&mut self, frame: Frame) -> Result<(), TunnelError> {
        if self.control.len() >= MAX_CONTROL {
            return Err(TunnelError::Protocol("the peer asks without reading the answers".to_owned()));
        }
        self.control.push_back(frame);
        wake(&mut self.sender);
        Ok(())
    }

    fn fail(&mut self, id: u32, error: TunnelError) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.to_send.clear();
            stream.failed = Some(error);
            stream.wake();
        }
    }

    fn schedule(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.queued
            && stream.ready()
        {
            stream.queued = true;
            self.ready.push_back(id);
            wake(&mut self.sender);
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// When the tunnel is closed, drains, or has as many streams as it may.
    pub fn open(&mut self, header: Bytes, now: Duration) -> Result<u32, TunnelError> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        if self.is_draining() {
            return Err(TunnelError::Draining);
        }
        if header.len() > MAX_OPEN {
            return Err(TunnelError::HeaderTooLarge { got: header.len(), max: MAX_OPEN });
        }
        if self.streams.len() >= self.config.max_streams {
            return Err(TunnelError::TooManyStreams(self.streams.len()));
        }
        let id = self.next_id;
        // After two thousand million streams the connection is due for renewal.
        self.next_id = id.checked_add(2).ok_or(TunnelError::Draining)?;
        self.streams.insert(id, StreamState::new(&self.config, now));
        self.control(Frame::Open(id, header))?;
        Ok(id)
    }

    /// The next stream that the peer has opened; the waker is kept when there is none.
    ///
    /// # Errors
    /// Why the tunnel ended.
    pub fn accept(&mut self, waker: &Waker) -> Result<Option<(u32, Bytes)>, TunnelError> {
        if let Some(pending) = self.pending.pop_front() {
            return Ok(Some(pending));
        }
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        self.acceptor = Some(waker.clone());
        Ok(None)
    }

    /// Reads at most `most` bytes of a stream.
    ///
    /// # Errors
    /// Why the stream or the tunnel ended before its time. What had arrived before is read first.
    pub fn read(&mut self, id: u32, most: usize, waker: &Waker, now: Duration) -> Result<Read, TunnelError> {
        let closed = self.closed.clone();
        let stream = self.streams.get_mut(&id).ok_or(TunnelError::Closed)?;
        if let Some(taken) = stream.received.pop(most) {
            let length = u32::try_from(taken.len()).unwrap_or(u32::MAX);
            stream.consumed = stream.consumed.saturating_add(length);
            self.give_credit(id, now)?;
            return Ok(Read::Data(taken));
        }
        if stream.received_fin {
            return Ok(Read::End);
        }
        if let Some(error) = stream.failed.clone().or(closed) {
            return Err(error);
        }
        stream.reader = Some(waker.clone());
        Ok(Read::Pending)
    }

    /// Gives credit back when half of it is used up: more than before when the link is faster than the credit, less when it
    /// is much slower.
    fn give_credit(&mut self, id: u32, now: Duration) -> Result<(), TunnelError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.consumed < stream.window / 2 || stream.received_fin {
            return Ok(());
        }
        let mut more = stream.consumed;
        let took = now.saturating_sub(stream.granted_at);
        let fast = took < self.round_trip * 2 && !self.config.received.is_scarce();
        let growth = stream.window.min(self.config.max_window.saturating_sub(stream.window));
        if fast && growth > 0 && self.growth + u64::from(growth) <= self.config.max_growth {
            stream.window += growth;
            self.growth += u64::from(growth);
            more = more.saturating_add(growth);
        } else if took > SLOW.max(self.round_trip * SLOW_ROUND_TRIPS) {
            let enough = (stream.window / 2).max(self.config.initial_window);
            let less = stream.window.saturating_sub(enough).min(more);
            stream.window -= less;
            self.growth = self.growth.saturating_sub(u64::from(less));
            more -= less;
        }
        stream.peer_credit = stream.peer_credit.saturating_add(more);
        stream.consumed = 0;
        stream.granted_at = now;
        if more == 0 { Ok(()) } else { self.control(Frame::Window(id, more)) }
    }

    /// Takes bytes to be sent, as many as there is room for; `None` when there is none, and then the waker is kept.
    ///
    /// # Errors
    /// Why the stream or the tunnel ended.
    pub fn write(
        &mut self,
        id: u32,
        bytes: &mut impl Buf,
        waker: &Waker,
    ) -> Result<Option<usize>, TunnelError> {
        let room = match self.room(id, waker)? {
            0 => return Ok(None),
            room => room.min(bytes.remaining()),
        };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.to_send.write(bytes, room);
        }
        self.schedule(id);
        Ok(Some(room))
    }

    fn room(&mut self, id: u32, waker: &Waker) -> Result<usize, TunnelError> {
        let closed = self.closed.clone();
        let stream = self.streams.get_mut(&id).ok_or(TunnelError::Closed)?;
        if let Some(error) = stream.failed.clone().or(closed) {
            return Err(error);
        }
        if stream.fin != Fin::Open {
            return Err(TunnelError::Closed);
        }
        // A stream with something to send is woken when some of it is sent, whatever others hold.
        let most = if self.config.sent.is_over() { LEAST_SEND_BUFFER } else { self.config.send_buffer };
        let room = most.saturating_sub(stream.to_send.len());
        if room == 0 {
            stream.writer = Some(waker.clone());
        }
        Ok(room)
    }

    /// Says that no more will be written.
    pub fn finish(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.fin == Fin::Open
            && stream.failed.is_none()
        {
            stream.fin = Fin::Wanted;
        }
        self.schedule(id);
    }

    /// Ends a stream, telling the peer why.
    pub fn reset(&mut self, id: u32, reason: &str) {
        if let Some(mut stream) = self.streams.remove(&id) {
            wake(&mut stream.reader);
            wake(&mut stream.writer);
            self.growth = self.growth.saturating_sub(u64::from(stream.window - self.config.initial_window));
            let over = stream.received_fin && stream.fin == Fin::Sent;
            if !over && stream.failed.is_none() && self.closed.is_none() {
                // Beyond its bound the tunnel is broken anyway, and the peer learns of it by the end of the connection.
                let _ = self.control(Frame::Reset(id, reason.to_owned()));
            }
        }
    }

    /// The handle of a stream is gone. What was written before a [`State::finish`] is still sent, and so it is, with an end
    /// behind it, when the peer had ended its side and nothing of that was left unread: as when a TCP connection is closed.
    pub fn release(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(|stream| stream.received_fin && stream.received.is_empty()) {
            self.finish(id);
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let goes_on = stream.fin == Fin::Wanted && stream.failed.is_none() && self.closed.is_none();
        if goes_on {
            stream.released = true;
            stream.received.clear();
            stream.reader = None;
            stream.writer = None;
        } else {
            self.reset(id, GONE);
        }
    }

    /// Appends frames to `out` until it holds about `enough` bytes: answers first, then data, a frame from each stream
    /// in turn. `false` when there was nothing; then the waker is kept.
    pub fn next_batch(&mut self, out: &mut BytesMut, enough: usize, waker: &Waker) -> bool {
        let before = out.len();
        self.add_to_batch(out, enough);
        if out.len() == before {
            self.sender = Some(waker.clone());
        }
        out.len() > before
    }

    /// As [`State::next_batch`], for one who does not wait.
    pub fn add_to_batch(&mut self, out: &mut BytesMut, enough: usize) {
        while out.len() < enough {
            if let Some(frame) = self.control.pop_front() {
                frame.encode(out);
            } else if let Some(id) = self.ready.pop_front() {
                self.next_of(id, out);
            } else {
                break;
            }
        }
        if self.control.is_empty() && self.control.capacity() > FEW_ANSWERS {
            self.control = VecDeque::new();
        }
    }

    fn next_of(&mut self, id: u32, out: &mut BytesMut) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.queued = false;
        let most = MAX_DATA.min(stream.credit as usize);
        if most > 0
            && let Some(payload) = stream.to_send.pop(most)
        {
            stream.credit -= u32::try_from(payload.len()).unwrap_or(stream.credit);
            Frame::Data(id, payload).encode(out);
            wake(&mut stream.writer);
        }
        if stream.to_send.is_empty() && stream.fin == Fin::Wanted && stream.failed.is_none() {
            stream.fin = Fin::Sent;
            Frame::Fin(id).encode(out);
            if stream.released {
                self.reset(id, GONE);
                return;
            }
        }
        self.schedule(id);
    }

    /// Looks at the clock: asks a silent peer whether it is there.
    ///
    /// # Errors
    /// [`TunnelError::DeadPeer`] after too long a silence.
    pub fn tick(&mut self, now: Duration) -> Result<(), TunnelError> {
        let silent = now.saturating_sub(self.heard_at);
        if silent >= self.config.dead_after {
            return Err(TunnelError::DeadPeer(silent.as_secs()));
        }
        if silent >= self.config.ping_after
            && self.asked.is_none_or(|(_, at)| now.saturating_sub(at) >= self.config.ping_after)
        {
            let number = self.asked.map_or(1, |(number, _)| number.wrapping_add(1));
            self.asked = Some((number, now));
            self.control(Frame::Ping(number))?;
        }
        Ok(())
    }

    /// How often [`State::tick`] wants to be called.
    #[must_use]
    pub fn tick_every(&self) -> Duration {
        self.config.ping_after / 3
    }

    /// Takes and opens no new streams from now on; those that are open go on.
    pub fn drain(&mut self, reason: &str) {
        if !self.we_drain {
            self.we_drain = true;
            let _ = self.control(Frame::GoAway(reason.to_owned()));
        }
    }

    /// Whether either side takes no new streams.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.we_drain || self.peer_drains.is_some()
    }

    /// Ends everything. The first reason stands.
    pub fn close(&mut self, reason: TunnelError) {
        if self.closed.is_none() {
            self.closed = Some(reason);
        }
        for stream in self.streams.values_mut() {
            stream.wake();
        }
        wake(&mut self.acceptor);
        wake(&mut self.sender);
    }

    /// What the end of the connection means.
    #[must_use]
    pub fn ended_by_peer(&self) -> TunnelError {
        self.peer_drains.clone().map_or(TunnelError::Closed, TunnelError::Left)
    }

    /// Why everything ended, if it has.
    #[must_use]
    pub fn closed(&self) -> Option<&TunnelError> {
        self.closed.as_ref()
    }

    /// Streams open now.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The delay of the link, there and back.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// What the bytes of all streams cost in memory, in both directions.
    #[must_use]
    pub fn charged(&self) -> usize {
        let of = |stream: &StreamState| stream.to_send.charged() + stream.received.charged();
        self.streams.values().map(of).sum()
    }

    /// Bytes held for all streams, in both directions.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let of = |stream: &StreamState| stream.to_send.len() + stream.received.len();
        self.streams.values().map(of).sum()
    }
}

const GONE: &str = "the other end went away";
const TOO_MUCH: &str =
    "more waits to be read here than there is memory for; read faster, or have fewer sessions stand still";

#[cfg(test)]
mod tests;
