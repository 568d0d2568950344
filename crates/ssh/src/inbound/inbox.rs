//! What has come from the client for one channel and waits for its reader, in memory.
//!
//! Two things keep it small. While its reader reads, only slower than the client sends, nothing more is *read* from the
//! connection until there is room ([`Inbox::room`], by way of the connection's gate); what the connection writes goes on.
//! That cannot be for long: a command such as `cat` reads only when it may write, and it may write only when the client
//! says so, which stands behind the input on the same connection. So it ends when none of the connection's output gets
//! on, and after [`PATIENCE`]. From then on the channel's window bounds what comes, see [`super::window`]: its client has
//! not been granted more than that. For a reader that has taken nothing since it was last waited for there is no second
//! wait: the other channels are not held up for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::window::{BEHIND_BYTES, MEMORY_BYTES};
use crate::session::{HANDED_PIECES, Incoming};

/// Input handed to the session and not yet read by its process.
const HANDED_BYTES: usize = 256 * 1024;
/// Longest wait for a reader.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for a reader that takes nothing, when the connection has ended,
const LAST_WAIT: Duration = Duration::from_secs(5);
/// and when the client has closed this channel, and has others.
const LAST_WAIT_BESIDE: Duration = Duration::from_secs(60);
/// Output that has been waiting this long for the connection is held up.
const HELD_UP: Duration = Duration::from_millis(1);
/// Input that all channels of a connection may keep, past which one is given up. A client that keeps to its windows does
/// not get there: they are a little less, even if every channel is opened and none is read.
const KEPT_BYTES: u64 = 80 << 20;
/// Small packets are put together up to this.
const PIECE_BYTES: usize = 4096;
/// Requests (sizes, signals) of one channel that may wait.
const MAX_REQUESTS: usize = 1024;

/// How much of a connection's output is waiting for the connection, and how much input for its readers.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    waiting: AtomicUsize,
    gone: AtomicUsize,
    changed: Notify,
    /// What had gone, and one, when output was last found held up.
    found_at: AtomicUsize,
    /// Input that waits, of all channels.
    kept: AtomicU64,
    ended: AtomicBool,
    end: Notify,
}

impl Pressure {
    /// Counts one piece of output until the guard is dropped.
    pub(crate) fn enter(&self) -> PressureGuard<'_> {
        if self.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.changed.notify_waiters();
        }
        PressureGuard(self)
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.end.notify_waiters();
    }

    async fn ended(&self) {
        let end = self.end.notified();
        if !self.ended.load(Ordering::Acquire) {
            end.await;
        }
    }

    /// Waits until output waits, and none of it goes. At once, when none has gone since it last was so.
    async fn held_up(&self) {
        loop {
            let changed = self.changed.notified();
            if self.waiting.load(Ordering::Acquire) == 0 {
                changed.await;
                continue;
            }
            let gone = self.gone.load(Ordering::Acquire);
            if self.found_at.load(Ordering::Acquire) == gone.wrapping_add(1) {
                return;
            }
            sleep(HELD_UP).await;
            if self.gone.load(Ordering::Acquire) == gone && self.waiting.load(Ordering::Acquire) > 0 {
                self.found_at.store(gone.wrapping_add(1), Ordering::Release);
                return;
            }
        }
    }
}

pub(crate) struct PressureGuard<'a>(&'a Pressure);

impl Drop for PressureGuard<'_> {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Ordering::AcqRel);
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why input cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InboxError {
    #[error(
        "{KEPT_BYTES} bytes on this connection wait for commands that do not read them; use several connections"
    )]
    Full,
    #[error("the client sends more requests than can be served")]
    Requests,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Incoming>,
    memory: VecDeque<Piece>,
    memory_bytes: usize,
    handed: usize,
    handed_pieces: usize,
    /// Pieces that the reader has taken, and how many when it was last waited for in vain.
    taken: u64,
    waited_at: Option<u64>,
    eof: bool,
    eof_told: bool,
    /// The client has closed its channel: it is gone when the reader has all that came before.
    closed: bool,
    gone: bool,
    /// The client has closed the channel itself.
    hung_up: bool,
    refused: bool,
    cut: Option<String>,
}

impl State {
    fn keep(&mut self, bytes: &[u8], piece: impl FnOnce(&[u8]) -> Piece) {
        self.memory_bytes += bytes.len();
        match self.memory.back_mut() {
            Some(Piece::Gathered(last)) if last.len() + bytes.len() <= PIECE_BYTES => {
                last.extend_from_slice(bytes);
            }
            _ => self.memory.push_back(piece(bytes)),
        }
    }
}

/// Input that waits.
enum Piece {
    /// Small packets, put together.
    Gathered(BytesMut),
    /// As it came.
    Whole(Bytes),
}

impl Piece {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Gathered(bytes) => bytes.freeze(),
            Self::Whole(bytes) => bytes,
        }
    }
}

/// Told how much a reader has taken, so that as much more may come.
pub(crate) type Credit = Box<dyn Fn(usize) + Send + Sync>;

/// The queue of one channel.
pub(crate) struct Inbox {
    state: Mutex<State>,
    arrived: Notify,
    room: Notify,
    changed: Notify,
    pressure: Arc<Pressure>,
    credit: Option<Credit>,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Inbox {
    pub(crate) fn new(pressure: Arc<Pressure>) -> Arc<Self> {
        Self::make(pressure, None)
    }

    /// Of a channel whose client may send more as soon as the reader has taken what came.
    pub(crate) fn with_credit(pressure: Arc<Pressure>, credit: Credit) -> Arc<Self> {
        Self::make(pressure, Some(credit))
    }

    fn make(pressure: Arc<Pressure>, credit: Option<Credit>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            arrived: Notify::new(),
            room: Notify::new(),
            changed: Notify::new(),
            pressure,
            credit,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Takes a packet of input.
    pub(super) fn accept(&self, bytes: &[u8]) -> Result<(), InboxError> {
        let length = bytes.len() as u64;
        let mut state = self.state();
        // Data without a byte is none: no window bounds how much of it comes.
        if state.gone || state.eof || bytes.is_empty() {
            return Ok(());
        }
        if self.pressure.kept.fetch_add(length, Ordering::AcqRel) + length > KEPT_BYTES {
            self.pressure.kept.fetch_sub(length, Ordering::AcqRel);
            return Err(InboxError::Full);
        }
        state.keep(bytes, |bytes| Piece::Gathered(BytesMut::from(bytes)));
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes a packet of input as it is, unless it is small. The channel's window has bounded it.
    pub(crate) fn accept_whole(&self, bytes: &Bytes) {
        let mut state = self.state();
        if !state.gone && !state.eof && !bytes.is_empty() {
            self.pressure.kept.fetch_add(bytes.len() as u64, Ordering::AcqRel);
            state.keep(bytes, |small| match small.len() {
                0..=PIECE_BYTES => Piece::Gathered(BytesMut::from(small)),
                _ => Piece::Whole(bytes.clone()),
            });
            self.arrived.notify_one();
        }
    }

    /// Whether the connection is better not read for now: there is much, and it is being read.
    pub(super) fn wants_room(&self) -> bool {
        let state = self.state();
        !state.gone
            && (MEMORY_BYTES..BEHIND_BYTES).contains(&state.memory_bytes)
            && state.waited_at != Some(state.taken)
    }

    /// Waits until the reader has taken as much as just came; see the module for when it ends otherwise.
    pub(super) async fn room(self: Arc<Self>, just_came: usize) {
        let enough = self.waiting().saturating_sub(just_came).max(MEMORY_BYTES - 1);
        let taken = async {
            loop {
                let room = self.room.notified();
                if self.waiting() <= enough {
                    return;
                }
                room.await;
            }
        };
        tokio::select! {
            biased;
            () = taken => {}
            () = self.pressure.held_up() => {}
            () = sleep(PATIENCE) => {
                let mut state = self.state();
                state.waited_at = Some(state.taken);
            }
        }
    }

    /// Nothing waits for the reader now.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.state().memory_bytes
    }

    /// Pieces that the reader has taken.
    pub(super) fn taken(&self) -> u64 {
        self.state().taken
    }

    /// Takes a request that passes the input by.
    pub(crate) fn request(&self, request: Incoming) -> Result<(), InboxError> {
        let mut state = self.state();
        if state.requests.len() >= MAX_REQUESTS {
            return Err(InboxError::Requests);
        }
        state.requests.push_back(request);
        self.arrived.notify_one();
        Ok(())
    }

    /// The client sends no more input.
    pub(crate) fn end(&self) {
        self.state().eof = true;
        self.arrived.notify_one();
    }

    /// The client has closed its channel. What came before still belongs to the reader.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.eof = true;
        state.closed = true;
        drop(state);
        self.arrived.notify_one();
        self.changed.notify_waiters();
    }

    /// The client, its channel or the reader has gone: what waits is let go, and what comes as well.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.gone = true;
        drop(state);
        self.forget();
        self.arrived.notify_one();
        self.room.notify_one();
        self.changed.notify_waiters();
    }

    /// The client has closed the channel of a session, and with it all that waits.
    pub(crate) fn hang_up(&self) {
        self.state().hung_up = true;
        self.leave();
    }

    /// Whether the client has closed the channel itself, on a connection that stands.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.state().hung_up
    }

    /// The channel does not come about after all.
    pub(crate) fn refuse(&self) {
        self.state().refused = true;
        self.leave();
    }

    pub(super) fn is_refused(&self) -> bool {
        self.state().refused
    }

    /// Waits until the reader need not go on: the client has gone. What came on a channel that it had closed
    /// before still belongs to the reader, as long as it takes some of it now and then.
    pub(super) async fn abandoned(&self) {
        let stuck = |patience| async move {
            let mut taken = None;
            while taken.replace(self.taken()) != Some(self.taken()) {
                sleep(patience).await;
            }
        };
        tokio::select! {
            () = self.until(|state| state.gone) => {}
            () = async { self.pressure.ended().await; stuck(LAST_WAIT).await } => {}
            () = async { self.until(|state| state.closed).await; stuck(LAST_WAIT_BESIDE).await } => {}
        }
    }

    /// Waits until a session cannot go on: it is to stop, for this reason, or its client has gone. What is to be read stays
    /// there.
    pub(crate) async fn over(&self) -> Option<String> {
        self.until(|state| state.gone || state.cut.is_some()).await;
        self.state().cut.clone()
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// The reader is to stop, for this reason.
    pub(crate) fn cut(&self, reason: &str) {
        let mut state = self.state();
        if state.cut.is_none() {
            state.cut = Some(reason.to_owned());
        }
        drop(state);
        self.arrived.notify_one();
        self.changed.notify_waiters();
    }

    fn forget(&self) {
        let mut state = self.state();
        state.memory = VecDeque::new();
        let kept = std::mem::take(&mut state.memory_bytes);
        self.pressure.kept.fetch_sub(kept as u64, Ordering::AcqRel);
    }

    /// Whether a program that was never started has been sent enough.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting() >= MEMORY_BYTES
    }

    /// The reader is done with a piece of what it was handed, of this length.
    pub(crate) fn consumed(&self, bytes: usize) {
        let mut state = self.state();
        state.handed = state.handed.saturating_sub(bytes);
        state.handed_pieces = state.handed_pieces.saturating_sub(1);
        self.arrived.notify_one();
    }

    /// The next thing for the reader; `None` when the client has gone.
    pub(crate) async fn next(&self) -> Option<Incoming> {
        loop {
            let arrived = self.arrived.notified();
            match self.take() {
                Taken::Nothing => arrived.await,
                Taken::Gone => return None,
                Taken::Some(incoming) => {
                    if let (Some(credit), Incoming::Data(bytes)) = (&self.credit, &incoming) {
                        credit(bytes.len());
                    }
                    return Some(incoming);
                }
            }
        }
    }

    fn take(&self) -> Taken {
        let mut state = self.state();
        if let Some(reason) = state.cut.take() {
            return Taken::Some(Incoming::Cut(reason));
        }
        if state.gone {
            return Taken::Gone;
        }
        if let Some(request) = state.requests.pop_front() {
            return Taken::Some(request);
        }
        if state.handed >= HANDED_BYTES || state.handed_pieces >= HANDED_PIECES {
            return Taken::Nothing;
        }
        if let Some(piece) = state.memory.pop_front() {
            let bytes = piece.into_bytes();
            state.memory_bytes -= bytes.len();
            state.handed += bytes.len();
            state.handed_pieces += 1;
            state.taken += 1;
            self.pressure.kept.fetch_sub(bytes.len() as u64, Ordering::AcqRel);
            self.room.notify_one();
            return Taken::Some(Incoming::Data(bytes));
        }
        if state.eof && !state.eof_told {
            state.eof_told = true;
            return Taken::Some(Incoming::Eof);
        }
        if state.closed && state.eof_told {
            return Taken::Gone;
        }
        Taken::Nothing
    }
}

enum Taken {
    Nothing,
    Gone,
    Some(Incoming),
}

#[cfg(test)]
mod tests;
