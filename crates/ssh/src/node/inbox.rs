//! What has come from the client for one channel and waits for its reader.
//!
//! russh serves a whole connection with one task, which calls [`Inbox::accept`] for every packet: while that waits,
//! nothing of the connection moves. It must therefore not wait for something which itself needs the connection. A
//! command such as `cat` reads only when it may write, and it may write only when the connection moves: waiting until
//! it reads would be for ever. So a packet that finds no room in memory waits only while none of the connection's
//! output is held up, and never long; past that it goes to an unlinked file. In the ordinary case, a reader that is slow
//! but reads, nothing ever touches the disk and the client is slowed down by the connection itself. For a reader that has
//! taken nothing since the last such wait there is no second one: the other channels are not held up for it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::session::Incoming;

/// Input of one channel kept in memory.
pub(super) const MEMORY_BYTES: usize = 256 * 1024;
/// Input handed to the session and not yet read by its process.
const HANDED_BYTES: usize = 256 * 1024;
/// Longest wait for room before a packet goes to the file.
const PATIENCE: Duration = Duration::from_secs(1);
/// Output that has been waiting this long for the connection is held up.
const HELD_UP: Duration = Duration::from_millis(1);
/// How much longer a packet waits while output is held up, by the bytes that are in the file already. Each return lets
/// all the output go that is ready, and one packet in: input gains on output only when the client takes no output, and
/// then it is slowed down more and more.
const HURRIES: [(u64, Duration); 3] =
    [(8 << 20, Duration::ZERO), (64 << 20, Duration::from_millis(50)), (u64::MAX, PATIENCE)];
/// Bytes in files, of all channels of a connection, past which a channel is given up.
const SPILL_BYTES: u64 = 1 << 30;
/// Bytes in one file, after which the next is begun: a reader that never quite catches up gives disk back all the same.
const SPILL_FILE_BYTES: u64 = 32 << 20;
/// Bytes taken from a file at once.
const SPILL_BLOCK_BYTES: usize = 64 * 1024;
/// Requests (sizes, signals) of one channel that may wait.
const MAX_REQUESTS: usize = 1024;

/// How much of a connection's output is waiting for the connection.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    waiting: AtomicUsize,
    gone: AtomicUsize,
    changed: Notify,
    /// Bytes in the files of the connection's channels.
    spilled: AtomicU64,
}

impl Pressure {
    /// Counts one piece of output until the guard is dropped.
    pub(super) fn enter(&self) -> PressureGuard<'_> {
        if self.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.changed.notify_waiters();
        }
        PressureGuard(self)
    }

    /// Waits until output waits, and none of it goes.
    async fn held_up(&self) {
        loop {
            let changed = self.changed.notified();
            if self.waiting.load(Ordering::Acquire) == 0 {
                changed.await;
                continue;
            }
            let gone = self.gone.load(Ordering::Acquire);
            sleep(HELD_UP).await;
            if self.gone.load(Ordering::Acquire) == gone && self.waiting.load(Ordering::Acquire) > 0 {
                return;
            }
        }
    }
}

pub(super) struct PressureGuard<'a>(&'a Pressure);

impl Drop for PressureGuard<'_> {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Ordering::AcqRel);
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why input cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum InboxError {
    #[error(
        "the client has sent {SPILL_BYTES} bytes more than its commands read; read their output, or send less at once"
    )]
    Full,
    #[error("cannot keep the client's input in {}: {source}", directory.display())]
    Spill { directory: PathBuf, source: io::Error },
    #[error("the client sends more requests than can be served")]
    Requests,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Incoming>,
    memory: VecDeque<Bytes>,
    memory_bytes: usize,
    spill: VecDeque<Spill>,
    handed: usize,
    /// Pieces that the reader has taken, and how many when it was last waited for in vain.
    taken: u64,
    waited_at: Option<u64>,
    eof: bool,
    eof_told: bool,
    /// The client has closed its channel: it is gone when the reader has all that came before.
    closed: bool,
    gone: bool,
    cut: Option<String>,
}

/// One of the files that input is in, in order. It goes when it has been read.
struct Spill {
    file: File,
    read: u64,
    written: u64,
    pressure: Arc<Pressure>,
}

impl Spill {
    fn waiting(&self) -> u64 {
        self.written - self.read
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.pressure.spilled.fetch_sub(self.written, Ordering::AcqRel);
    }
}

/// The queue of one channel.
pub(super) struct Inbox {
    state: Mutex<State>,
    arrived: Notify,
    room: Notify,
    pressure: Arc<Pressure>,
    directory: PathBuf,
}

impl Inbox {
    pub(super) fn new(pressure: Arc<Pressure>, directory: &Path) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            arrived: Notify::new(),
            room: Notify::new(),
            pressure,
            directory: directory.to_owned(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a packet of input; see the module for when it waits.
    pub(super) async fn accept(&self, bytes: Bytes) -> Result<(), InboxError> {
        loop {
            let room = self.room.notified();
            let (spilled, stuck) = {
                let mut state = self.state();
                if state.gone || state.eof {
                    return Ok(());
                }
                let spilled = state.spill.iter().map(Spill::waiting).sum::<u64>();
                if spilled == 0 && state.memory_bytes < MEMORY_BYTES {
                    state.memory_bytes += bytes.len();
                    state.memory.push_back(bytes);
                    self.arrived.notify_one();
                    return Ok(());
                }
                (spilled, state.waited_at == Some(state.taken))
            };
            let hurry = HURRIES.iter().find(|(most, _)| spilled < *most).map_or(PATIENCE, |(_, wait)| *wait);
            let held_up = async {
                self.pressure.held_up().await;
                if !hurry.is_zero() {
                    sleep(hurry).await;
                }
            };
            tokio::select! {
                biased;
                () = room => {}
                () = held_up => return self.spill(&bytes),
                () = sleep(if stuck { hurry } else { PATIENCE }) => {
                    let mut state = self.state();
                    state.waited_at = Some(state.taken);
                    drop(state);
                    return self.spill(&bytes);
                }
            }
        }
    }

    fn spill(&self, bytes: &[u8]) -> Result<(), InboxError> {
        let failed = |source| InboxError::Spill { directory: self.directory.clone(), source };
        let mut state = self.state();
        if state.spill.back().is_none_or(|last| last.written >= SPILL_FILE_BYTES) {
            let file = tempfile::tempfile_in(&self.directory).map_err(failed)?;
            state.spill.push_back(Spill { file, read: 0, written: 0, pressure: self.pressure.clone() });
        }
        if let Some(spill) = state.spill.back_mut() {
            let length = bytes.len() as u64;
            // What was read back stays on the disk until its file goes: it counts.
            if self.pressure.spilled.fetch_add(length, Ordering::AcqRel) + length > SPILL_BYTES {
                self.pressure.spilled.fetch_sub(length, Ordering::AcqRel);
                return Err(InboxError::Full);
            }
            // Into the page cache: a short copy, not a wait for the disk.
            let written = spill.file.write_all_at(bytes, spill.written);
            spill.written += length;
            written.map_err(failed)?;
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes a request that passes the input by.
    pub(super) fn request(&self, request: Incoming) -> Result<(), InboxError> {
        let mut state = self.state();
        if state.requests.len() >= MAX_REQUESTS {
            return Err(InboxError::Requests);
        }
        state.requests.push_back(request);
        self.arrived.notify_one();
        Ok(())
    }

    /// The client sends no more input.
    pub(super) fn end(&self) {
        self.state().eof = true;
        self.arrived.notify_one();
    }

    /// The client has closed its channel. What came before still belongs to the reader.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.eof = true;
        state.closed = true;
        drop(state);
        self.arrived.notify_one();
    }

    /// The client, its channel or the reader has gone: what waits is let go, and what comes as well.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.gone = true;
        state.memory = VecDeque::new();
        state.memory_bytes = 0;
        state.spill = VecDeque::new();
        drop(state);
        self.arrived.notify_one();
        self.room.notify_one();
    }

    /// The reader is to stop, for this reason.
    pub(super) fn cut(&self, reason: &str) {
        let mut state = self.state();
        if state.cut.is_none() {
            state.cut = Some(reason.to_owned());
        }
        self.arrived.notify_one();
    }

    /// Whether a packet more would have to wait.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        !state.spill.is_empty() || state.memory_bytes >= MEMORY_BYTES
    }

    /// Whether nothing waits: the reader keeps up.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.memory.is_empty() && state.spill.is_empty()
    }

    /// Whether the reader is so far behind that input went to the file.
    pub(super) fn is_behind(&self) -> bool {
        !self.state().spill.is_empty()
    }

    /// The reader is done with this much of what it was handed.
    pub(super) fn consumed(&self, bytes: usize) {
        let mut state = self.state();
        state.handed = state.handed.saturating_sub(bytes);
        self.arrived.notify_one();
    }

    /// The next thing for the reader; `None` when the client has gone.
    pub(super) async fn next(&self) -> Option<Incoming> {
        loop {
            let arrived = self.arrived.notified();
            match self.take() {
                Taken::Nothing => arrived.await,
                Taken::Gone => return None,
                Taken::Some(incoming) => return Some(incoming),
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
        if state.handed >= HANDED_BYTES {
            return Taken::Nothing;
        }
        if let Some(bytes) = state.memory.pop_front() {
            state.memory_bytes -= bytes.len();
            state.handed += bytes.len();
            state.taken += 1;
            self.room.notify_one();
            return Taken::Some(Incoming::Data(bytes));
        }
        if let Some(spill) = state.spill.front_mut() {
            let left = usize::try_from(spill.waiting()).unwrap_or(usize::MAX);
            let mut block = vec![0; left.min(SPILL_BLOCK_BYTES)];
            let read = spill.file.read_exact_at(&mut block, spill.read);
            if let Err(error) = read {
                tracing::error!(%error, "cannot read back a client's input");
                return Taken::Some(Incoming::Cut("the node lost part of the input".to_owned()));
            }
            spill.read += block.len() as u64;
            if spill.read == spill.written {
                state.spill.pop_front();
                if state.spill.is_empty() {
                    self.room.notify_one();
                }
            }
            state.handed += block.len();
            state.taken += 1;
            return Taken::Some(Incoming::Data(Bytes::from(block)));
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
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn drain(inbox: &Inbox) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match inbox.next().await {
                Some(Incoming::Data(bytes)) => {
                    inbox.consumed(bytes.len());
                    all.extend_from_slice(&bytes);
                }
                Some(Incoming::Eof) => return all,
                other => panic!("{other:?}"),
            }
        }
    }

    fn block(number: usize) -> Bytes {
        Bytes::from(vec![u8::try_from(number % 251).unwrap(); 32 * 1024])
    }

    #[tokio::test(start_paused = true)]
    async fn order_is_kept_through_memory_and_file() {
        let pressure = Arc::new(Pressure::default());
        let inbox = Inbox::new(pressure.clone(), &std::env::temp_dir());
        // Output is held up all the time: nothing may wait.
        let guard = pressure.enter();
        let began = Instant::now();
        let mut expected = Vec::new();
        // More than one file.
        for number in 0..1200 {
            expected.extend_from_slice(&block(number));
            inbox.accept(block(number)).await.unwrap();
        }
        // Held-up output is let go at each; past 8 MiB a little later.
        assert!(began.elapsed() < PATIENCE * 60, "{:?}", began.elapsed());
        assert!(inbox.is_behind() && !inbox.is_empty());
        drop(guard);
        assert!(pressure.spilled.load(Ordering::Acquire) > 0);
        inbox.end();
        assert!(drain(&inbox).await == expected);
        assert!(inbox.is_empty());
        assert_eq!(pressure.spilled.load(Ordering::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_inbox_waits_for_room_and_then_for_patience() {
        let inbox = Inbox::new(Arc::new(Pressure::default()), &std::env::temp_dir());
        for number in 0..MEMORY_BYTES / (32 * 1024) {
            inbox.accept(block(number)).await.unwrap();
        }
        assert!(!inbox.is_behind());
        // A reader that reads: no file.
        let reader = {
            let inbox = inbox.clone();
            tokio::spawn(async move {
                sleep(PATIENCE / 2).await;
                let Some(Incoming::Data(bytes)) = inbox.next().await else { panic!() };
                inbox.consumed(bytes.len());
            })
        };
        inbox.accept(block(0)).await.unwrap();
        reader.await.unwrap();
        assert!(!inbox.is_behind());
        // A reader that does not: after the patience, the file.
        let began = Instant::now();
        inbox.accept(block(0)).await.unwrap();
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(inbox.is_behind());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_stuck_is_waited_for_once() {
        let inbox = Inbox::new(Arc::new(Pressure::default()), &std::env::temp_dir());
        let began = Instant::now();
        for _ in 0..64 {
            inbox.accept(block(1)).await.unwrap();
        }
        assert_eq!(began.elapsed(), PATIENCE);
        // Once it has read something, it is again.
        assert!(matches!(inbox.next().await, Some(Incoming::Data(_))));
        inbox.accept(block(1)).await.unwrap();
        assert_eq!(began.elapsed(), PATIENCE * 2);
    }

    #[tokio::test]
    async fn a_closed_channel_still_gives_what_came_before() {
        let inbox = Inbox::new(Arc::new(Pressure::default()), &std::env::temp_dir());
        inbox.accept(block(1)).await.unwrap();
        inbox.close();
        inbox.accept(block(2)).await.unwrap();
        assert!(drain(&inbox).await == block(1));
        assert!(inbox.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_files_of_a_connection_are_bounded_and_go_with_their_reader() {
        let pressure = Arc::new(Pressure::default());
        let inbox = Inbox::new(pressure.clone(), &std::env::temp_dir());
        while !inbox.is_full() {
            inbox.accept(block(1)).await.unwrap();
        }
        inbox.accept(block(1)).await.unwrap();
        // As if another channel had taken all but a little.
        pressure.spilled.fetch_add(SPILL_BYTES - 40 * 1024, Ordering::AcqRel);
        assert!(matches!(inbox.accept(block(1)).await, Err(InboxError::Full)));
        pressure.spilled.fetch_sub(SPILL_BYTES - 40 * 1024, Ordering::AcqRel);
        inbox.accept(block(1)).await.unwrap();
        inbox.leave();
        assert_eq!(pressure.spilled.load(Ordering::Acquire), 0);
        assert!(inbox.is_empty());
        let began = Instant::now();
        inbox.accept(block(1)).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn requests_and_cuts_pass_waiting_input() {
        let inbox = Inbox::new(Arc::new(Pressure::default()), &std::env::temp_dir());
        inbox.accept(block(1)).await.unwrap();
        inbox.request(Incoming::Signal(crate::session::Signal::INT)).unwrap();
        assert!(matches!(inbox.next().await, Some(Incoming::Signal(_))));
        inbox.cut("locked");
        assert!(matches!(inbox.next().await, Some(Incoming::Cut(reason)) if reason == "locked"));
        for _ in 0..MAX_REQUESTS {
            inbox.request(Incoming::Signal(crate::session::Signal::INT)).unwrap();
        }
        let refused = inbox.request(Incoming::Signal(crate::session::Signal::INT));
        assert!(matches!(refused, Err(InboxError::Requests)));
        inbox.leave();
        assert!(inbox.next().await.is_none());
    }
}
