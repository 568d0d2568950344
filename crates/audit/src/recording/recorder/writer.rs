//! A thread that writes the recordings of its sessions.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sallyport_access::{RecordPolicy, SessionId};
use tokio::sync::mpsc;

use super::state::{Begun, Command, Live, QUEUE, RecordingError, storage};
use crate::recording::frame::{Body, Frame};

/// A chunk is written at this size,
const FLUSH_BYTES: usize = 256 * 1024;

/// or after this time: what a killed process loses.
const FLUSH_EVERY: Duration = Duration::from_millis(800);

/// Bytes taken in at once that are not a person typing.
const BULK_BYTES: usize = 16 * 1024;

/// After those the writer lets more come together, rather than be woken for each piece.
const BULK_PAUSE: Duration = Duration::from_micros(500);

/// One thread's sessions.
pub(super) struct Writer {
    sessions: HashMap<SessionId, Open>,
    live: Live,
}

struct Open {
    begun: Box<Begun>,
    /// Where the last whole chunk ends.
    good: u64,
    last_flush: Instant,
    /// Budget to give back once it is on disk.
    owed: usize,
}

impl Writer {
    pub(super) fn new(live: Live) -> Self {
        Self { sessions: HashMap::new(), live }
    }

    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let Ok(runtime) = runtime else { return };
        loop {
            let watches = self.watches_the_clock();
            let next = runtime.block_on(async {
                if watches {
                    tokio::time::timeout(FLUSH_EVERY / 4, commands.recv()).await
                } else {
                    Ok(commands.recv().await)
                }
            });
            match next {
                Ok(Some(command)) => {
                    let mut taken = self.take(command);
                    // As much as is there, before the clock is looked at.
                    for _ in 0..QUEUE {
                        match commands.try_recv() {
                            Ok(command) => taken += self.take(command),
                            Err(_) => break,
                        }
                    }
                    if taken >= BULK_BYTES {
                        std::thread::sleep(BULK_PAUSE);
                    }
                }
                Ok(None) => break,
                Err(_) => {}
            }
            for open in self.sessions.values_mut() {
                if open.last_flush.elapsed() >= FLUSH_EVERY {
                    open.flush();
                }
                open.begun.state.look();
            }
        }
        for open in self.sessions.values_mut() {
            open.flush();
        }
    }

    /// Whether there is something to do when nothing comes. Without sessions, or with idle ones only, there is not.
    fn watches_the_clock(&self) -> bool {
        self.sessions.values().any(|open| open.begun.encoder.pending() > 0 || open.begun.state.sync.is_some())
    }

    /// Does as it is told. Gives the bytes that are to be recorded.
    fn take(&mut self, command: Command) -> usize {
        let mut taken = 0;
        match command {
            Command::Begin(begun) => {
                let good = begun.head.len() as u64;
                let open = Open { good, begun, last_flush: Instant::now(), owed: 0 };
                self.sessions.insert(open.begun.session, open);
            }
            Command::Frame(session, frame, cost) => taken = self.push(session, &[frame], cost),
            Command::Frames(session, frames, cost) => taken = self.push(session, &frames, cost),
            Command::Finish(session, answer) => {
                let outcome = match self.sessions.remove(&session) {
                    Some(open) => open.finish(answer.is_some()),
                    None => Err(RecordingError::Stopped),
                };
                // Only now is the file what it will stay.
                self.live.lock().remove(&session);
                if let Some(answer) = answer {
                    let _ = answer.send(outcome);
                }
            }
        }
        taken
    }

    fn push(&mut self, session: SessionId, frames: &[Frame], cost: usize) -> usize {
        let Some(open) = self.sessions.get_mut(&session) else { return 0 };
        for frame in frames {
            open.begun.encoder.push(frame);
        }
        open.owed += cost;
        if open.begun.encoder.pending() >= FLUSH_BYTES {
            open.flush();
        }
        cost
    }
}

impl Open {
    fn flush(&mut self) {
        self.last_flush = Instant::now();
        let pending = self.begun.encoder.pending();
        if pending == 0 {
            return;
        }
        let state = Arc::clone(&self.begun.state);
        if self.lost() && self.begun.policy == RecordPolicy::Strict {
            self.begun.encoder.discard();
        } else {
            let mut bytes = BytesMut::new();
            let sealed =
                self.begun.encoder.flush(&mut bytes).map_err(|error| RecordingError::Seal(error.to_string()));
            let appended = sealed.and_then(|()| {
                self.append(&bytes).inspect_err(|_| self.begun.encoder.taken_back(bytes.len()))
            });
            match appended {
                Ok(()) => {
                    if state.gap.swap(false, Ordering::Relaxed) {
                        let lost = state.lost.load(Ordering::Relaxed);
                        let text = format!(
                            "about {lost} bytes before this are missing: the recording could not be written"
                        );
                        self.begun.encoder.push(&Frame { at: Duration::ZERO, body: Body::Note { text } });
                        state.failed.send_replace(None);
                    }
                }
                Err(error) => {
                    tracing::error!(session = %self.begun.session, %error, "a recording cannot be written");
                    state.lost.fetch_add(pending as u64, Ordering::Relaxed);
                    state.gap.store(true, Ordering::Relaxed);
                    state.failed.send_replace(Some(error));
                }
            }
        }
        state.budget.add_permits(std::mem::take(&mut self.owed));
    }

    /// Whether the file itself failed. That the authority is behind is no reason not to write.
    fn lost(&self) -> bool {
        !matches!(*self.begun.state.failed.borrow(), None | Some(RecordingError::Behind(_)))
    }

    /// Appends a whole chunk, or nothing.
    fn append(&mut self, bytes: &[u8]) -> Result<(), RecordingError> {
        match self.begun.file.write_all(bytes) {
            Ok(()) => {
                self.good += bytes.len() as u64;
                self.begun.state.wrote(self.good);
                Ok(())
            }
            Err(error) => {
                // Half a chunk would read as damage.
                let _ = self.begun.file.set_len(self.good);
                Err(storage(&self.begun.path, &error))
            }
        }
    }

    fn finish(mut self, whole: bool) -> Result<(), RecordingError> {
        self.flush();
        if self.lost()
            && let Some(error) = self.begun.state.failed.borrow().clone()
        {
            return Err(error);
        }
        if !whole {
            return Ok(());
        }
        let Begun { encoder, mut file, path, .. } = *self.begun;
        let mut bytes = BytesMut::new();
        encoder.finish(&mut bytes).map_err(|error| RecordingError::Seal(error.to_string()))?;
        file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(|error| {
            let _ = file.set_len(self.good);
            storage(&path, &error)
        })
    }
}
