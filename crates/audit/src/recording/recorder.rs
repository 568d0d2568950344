//! Writes recordings: many sessions, few threads, bounded memory.

mod state;
mod writer;

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use sallyport_access::{RecordPolicy, SessionId};
use sallyport_sal::hpke::RecipientPublic;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use self::state::{Begun, Command, Live, QUEUE, SessionState, storage};
pub use self::state::{RecordingError, SyncBounds};
use self::writer::Writer;
use super::format::Encoder;
use super::frame::{Body, Exit, Frame, SessionMetadata};

/// What one session may have on its way to the disk.
const BUDGET_BYTES: usize = 1 << 20;
/// Longest piece of output in one frame.
const PIECE_BYTES: usize = 64 * 1024;
/// How long a strict session waits for a disk that does not answer before it ends.
const STRICT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a best-effort session waits before it goes on without being recorded.
const BEST_EFFORT_PATIENCE: Duration = Duration::from_secs(2);

/// Makes recordings in one spool directory.
#[derive(Clone)]
pub struct Recorders {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    recipient: Mutex<RecipientPublic>,
    writers: Vec<mpsc::Sender<Command>>,
    live: Live,
    full: Arc<AtomicBool>,
    /// A caller waits for the authority to have more.
    wanted: Notify,
}

impl fmt::Debug for Recorders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorders").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl Recorders {
    /// Starts writers for a spool directory, which is made if needed. Recordings are sealed to `recipient`.
    ///
    /// # Errors
    /// What making the directory or a thread says.
    pub fn open(directory: &Path, recipient: RecipientPublic) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let mut writers = Vec::with_capacity(count);
        let live = Live::default();
        for number in 0..count {
            let (queue, commands) = mpsc::channel(QUEUE);
            let writer = Writer::new(Arc::clone(&live));
            std::thread::Builder::new()
                .name(format!("recording-{number}"))
                .spawn(move || writer.run(commands))?;
            writers.push(queue);
        }
        Ok(Self {
            shared: Arc::new(Shared {
                directory: directory.to_owned(),
                recipient: Mutex::new(recipient),
                writers,
                live,
                full: Arc::default(),
                wanted: Notify::new(),
            }),
        })
    }

    /// From now on recordings are sealed to another key.
    pub fn set_recipient(&self, recipient: RecipientPublic) {
        *self.shared.recipient.lock() = recipient;
    }

    /// Where the files are: `SESSION.rec` each.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Whether this process still writes that recording.
    #[must_use]
    pub fn is_live(&self, session: &SessionId) -> bool {
        self.shared.live.lock().contains_key(session)
    }

    /// How much of a recording is on the disk for good, while this process writes it; none once nothing is added any
    /// more. What is in the file beyond that may be taken back.
    #[must_use]
    pub fn written(&self, session: &SessionId) -> Option<u64> {
        let live = self.shared.live.lock();
        live.get(session).map(|state| state.written.load(Ordering::Relaxed))
    }

    /// The authority has so much of a recording.
    pub fn stored(&self, session: &SessionId, bytes: u64) {
        let live = self.shared.live.lock();
        let Some(state) = live.get(session).cloned() else { return };
        drop(live);
        let moved = state.stored.send_if_modified(|stored| {
            let more = bytes > *stored;
            *stored = bytes.max(*stored);
            more
        });
        if moved {
            *state.moved.lock() = Instant::now();
        }
    }

    /// Waits until a session waits for the authority to have more of its recording.
    pub async fn wanted(&self) {
        self.shared.wanted.notified().await;
    }

    /// Set while what waits for the authority fills its share of the disk: no recording begins then.
    #[must_use]
    pub fn full(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.full)
    }

    /// Begins a recording.
    ///
    /// # Errors
    /// [`RecordingError`] when the file cannot be made. What that means for the session is the caller's to decide by
    /// the policy.
    pub fn start(
        &self,
        metadata: &SessionMetadata,
        policy: RecordPolicy,
    ) -> Result<Recorder, RecordingError> {
        self.begin(metadata, policy, None)
    }

    /// Begins a recording that is kept in step with the authority's copy. The session may begin when
    /// [`Recorder::head_stored`] has returned.
    ///
    /// # Errors
    /// As [`Recorders::start`].
    pub fn start_in_step(
        &self,
        metadata: &SessionMetadata,
        policy: RecordPolicy,
        bounds: SyncBounds,
    ) -> Result<Recorder, RecordingError> {
        self.begin(metadata, policy, Some(bounds))
    }

    fn begin(
        &self,
        metadata: &SessionMetadata,
        policy: RecordPolicy,
        sync: Option<SyncBounds>,
    ) -> Result<Recorder, RecordingError> {
        if self.shared.full.load(Ordering::Relaxed) {
            return Err(RecordingError::Full);
        }
        let session = metadata.session_id;
        let path = self.shared.directory.join(format!("{session}.rec"));
        let recipient = *self.shared.recipient.lock();
        let mut head = BytesMut::new();
        let mut encoder = Encoder::new(session, &recipient, &mut head)
            .map_err(|error| RecordingError::Seal(error.to_string()))?;
        encoder.push(&Frame { at: Duration::ZERO, body: Body::Start(Box::new(metadata.clone())) });
        encoder.flush(&mut head).map_err(|error| RecordingError::Seal(error.to_string()))?;
        let mut file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| storage(&path, &error))?;
        if let Err(error) = file.write_all(&head) {
            drop(file);
            let _ = fs::remove_file(&path);
            return Err(storage(&path, &error));
        }
        let state = Arc::new(SessionState {
            budget: Semaphore::new(BUDGET_BYTES),
            failed: watch::channel(None).0,
            lost: AtomicU64::new(0),
            written: AtomicU64::new(head.len() as u64),
            stored: watch::channel(0).0,
            moved: Mutex::new(Instant::now()),
            sync,
            gap: AtomicBool::new(false),
        });
        let head_bytes = head.len() as u64;
        let begun = Begun { session, file, path, encoder, head, policy, state: Arc::clone(&state) };
        let writer = self.writer(session).clone();
        self.shared.live.lock().insert(session, Arc::clone(&state));
        let recorder = Recorder {
            session,
            began: Instant::now(),
            policy,
            writer,
            state,
            shared: Arc::clone(&self.shared),
            head: head_bytes,
            done: AtomicBool::new(false),
        };
        if recorder.writer.try_send(Command::Begin(Box::new(begun))).is_err() {
            // No writer knows of it that could take it off the list.
            self.shared.live.lock().remove(&session);
            return Err(RecordingError::Stopped);
        }
        if sync.is_some() {
            self.shared.wanted.notify_one();
        }
        Ok(recorder)
    }

    fn writer(&self, session: SessionId) -> &mpsc::Sender<Command> {
        let last = session.to_string().bytes().map(usize::from).sum::<usize>();
        let index = last % self.shared.writers.len().max(1);
        #[allow(
            clippy::expect_used,
            clippy::indexing_slicing,
            reason = "open() makes at least one writer; the index is taken modulo their number"
        )]
        &self.shared.writers[index]
    }
}

/// One session's way into its recording. Cheap; every method waits while too much is on its way to the disk, so that
/// memory stays bounded and the session goes at the pace of its recording.
pub struct Recorder {
    session: SessionId,
    began: Instant,
    policy: RecordPolicy,
    writer: mpsc::Sender<Command>,
    state: Arc<SessionState>,
    shared: Arc<Shared>,
    /// Bytes of the file's head, with whose session it is.
    head: u64,
    done: AtomicBool,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("session", &self.session)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Records output.
    ///
    /// # Errors
    /// Under the strict policy, why it cannot be recorded: the session must end. Under best effort never.
    pub async fn output(&self, bytes: Bytes) -> Result<(), RecordingError> {
        self.pieces(bytes, Body::Output).await
    }

    /// Records input.
    ///
    /// # Errors
    /// As [`Recorder::output`].
    pub async fn input(&self, bytes: Bytes) -> Result<(), RecordingError> {
        self.pieces(bytes, Body::Input).await
    }

    async fn pieces(&self, bytes: Bytes, body: fn(Bytes) -> Body) -> Result<(), RecordingError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            self.body(body(piece)).await?;
        }
        Ok(())
    }

    /// Records anything else.
    ///
    /// # Errors
    /// As [`Recorder::output`].
    pub async fn body(&self, body: Body) -> Result<(), RecordingError> {
        let at = self.began.elapsed();
        let cost = match &body {
            Body::Output(bytes) | Body::Input(bytes) => bytes.len(),
            Body::Database(frame) => frame.size(),
            _ => 256,
        }
        .clamp(64, PIECE_BYTES);
        self.send(cost, Command::Frame(self.session, Frame { at, body }, cost)).await
    }

    /// Since the session began, by the clock of [`Frame::at`].
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records several things at once that happened when they say, none before what is recorded already. `size` is about how
    /// many bytes they take.
    ///
    /// # Errors
    /// As [`Recorder::output`].
    pub async fn frames(&self, frames: Vec<Frame>, size: usize) -> Result<(), RecordingError> {
        let cost = size.clamp(64, BUDGET_BYTES / 4);
        self.send(cost, Command::Frames(self.session, frames, cost)).await
    }

    async fn send(&self, cost: usize, command: Command) -> Result<(), RecordingError> {
        if let Some(error) = self.state.failed.borrow().clone()
            && self.policy == RecordPolicy::Strict
        {
            return Err(error);
        }
        let patience = match self.policy {
            RecordPolicy::Strict => STRICT_PATIENCE,
            // Once the disk is known to hang, no further output waits for it.
            RecordPolicy::BestEffort if self.state.gap.load(Ordering::Relaxed) => Duration::ZERO,
            RecordPolicy::BestEffort => BEST_EFFORT_PATIENCE,
        };
        self.in_step().await?;
        let sent = tokio::time::timeout(patience, async {
            let permits = u32::try_from(cost).unwrap_or(u32::MAX);
            let permit =
                self.state.budget.acquire_many(permits).await.map_err(|_| RecordingError::Stopped)?;
            permit.forget();
            self.writer.send(command).await.map_err(|_| RecordingError::Stopped)
        })
        .await
        .unwrap_or(Err(RecordingError::Stuck(patience.as_secs())));
        match (sent, self.policy) {
            (Ok(()), _) => Ok(()),
            (Err(error), RecordPolicy::Strict) => {
                self.state.failed.send_replace(Some(error.clone()));
                Err(error)
            }
            (Err(error), RecordPolicy::BestEffort) => {
                self.state.lost.fetch_add(cost as u64, Ordering::Relaxed);
                self.state.gap.store(true, Ordering::Relaxed);
                self.state.failed.send_replace(Some(error));
                Ok(())
            }
        }
    }

    /// Waits while too much of a recording that is kept in step waits for the authority. By default, and once the
    /// authority is known to be behind, not at all.
    async fn in_step(&self) -> Result<(), RecordingError> {
        let Some(bounds) = &self.state.sync else { return Ok(()) };
        if self.state.waiting() <= bounds.bytes || self.state.failed.borrow().is_some() {
            return Ok(());
        }
        let (mut stored, mut failed) = (self.state.stored.subscribe(), self.state.failed.subscribe());
        loop {
            if self.state.waiting() <= bounds.bytes {
                return Ok(());
            }
            self.shared.wanted.notify_one();
            tokio::select! {
                moved = stored.changed() => moved.map_err(|_| RecordingError::Stopped)?,
                // The writer looks at the clock; what it finds is the policy's to judge.
                changed = failed.changed() => {
                    changed.map_err(|_| RecordingError::Stopped)?;
                    let found = failed.borrow_and_update().clone();
                    match found {
                        Some(error) if self.policy == RecordPolicy::Strict => return Err(error),
                        Some(_) => return Ok(()),
                        None => {}
                    }
                }
            }
        }
    }

    /// Waits until the authority has the head of a recording that is kept in step with it, and so knows whose session
    /// begins where.
    ///
    /// # Errors
    /// [`RecordingError::Behind`] when it has not within the patience. What that means is the policy's to say.
    pub async fn head_stored(&self) -> Result<(), RecordingError> {
        let Some(bounds) = &self.state.sync else { return Ok(()) };
        let mut stored = self.state.stored.subscribe();
        let head = stored.wait_for(|stored| *stored >= self.head);
        match tokio::time::timeout(bounds.patience, head).await {
            Ok(_) => Ok(()),
            Err(_) => Err(RecordingError::Behind(bounds.patience.as_secs())),
        }
    }

    /// Waits until a recording that had failed goes on.
    pub async fn recovered(&self) {
        let mut failed = self.state.failed.subscribe();
        let gone = failed.wait_for(Option::is_none).await.is_err();
        if gone {
            std::future::pending().await
        }
    }

    /// Waits until recording fails, and says why.
    pub async fn failed(&self) -> RecordingError {
        let mut failed = self.state.failed.subscribe();
        // The borrow of the value ends here: it may not be held while waiting below.
        let found = failed.wait_for(Option::is_some).await.map(|error| error.clone());
        match found {
            Ok(error) => error.unwrap_or(RecordingError::Stopped),
            Err(_) => std::future::pending().await,
        }
    }

    /// Bytes of output that are not in the recording, and bytes that the recording takes on disk.
    #[must_use]
    pub fn tally(&self) -> (u64, u64) {
        (self.state.lost.load(Ordering::Relaxed), self.state.written.load(Ordering::Relaxed))
    }

    /// Ends the recording; returns when it is on disk. What is recorded later is not in it.
    ///
    /// # Errors
    /// Why its end could not be written.
    pub async fn finish(&self, exit: Exit) -> Result<(), RecordingError> {
        let exit = self.body(Body::Exit(exit)).await;
        self.done.store(true, Ordering::Relaxed);
        let (answer, written) = oneshot::channel();
        let outcome = tokio::time::timeout(STRICT_PATIENCE, async {
            self.writer
                .send(Command::Finish(self.session, Some(answer)))
                .await
                .map_err(|_| RecordingError::Stopped)?;
            written.await.map_err(|_| RecordingError::Stopped)?
        })
        .await
        .unwrap_or(Err(RecordingError::Stuck(STRICT_PATIENCE.as_secs())));
        exit.and(outcome)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.done.load(Ordering::Relaxed) {
            // Without an exit it reads as what it is: cut off.
            let finish = Command::Finish(self.session, None);
            if let Err(mpsc::error::TrySendError::Full(finish)) = self.writer.try_send(finish) {
                // The writer has to hear of it, or the file would count as being written for ever.
                let writer = self.writer.clone();
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move {
                        let _ = writer.send(finish).await;
                    });
                }
            }
        }
    }
}
