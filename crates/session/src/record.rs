//! What a session leaves behind: its recording and its events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sallyport_access::{Limits, RecordAt, RecordPolicy, RecordingMode};
use sallyport_audit::recording::{
    Body, Exit, Frame, Recorder, Recorders, RecordingError, SessionMetadata, SyncBounds,
};
use sallyport_audit::{Code, Event, Sink};
use tokio::sync::RwLock;
use tokio::time::sleep;

use crate::about::About;

/// After a recording that failed goes on, it may fail again for so long before that is told: a disk that is nearly full
/// comes and goes.
const QUIET: Duration = Duration::from_secs(10);

/// A session that has to be recorded cannot be. Its text is what the client reads; an event has told why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this session has to be recorded and cannot be; tell an administrator")]
pub struct Unrecordable;

/// How a session is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// What it means when that fails.
    pub policy: RecordPolicy,
    /// Who records, and whether the authority has to keep up. [`RecordAt::Off`]: there is no recording, and events are all.
    pub mode: RecordingMode,
    /// What the bytes are of which some may be missing, such as `bytes of output`.
    pub counted: &'static str,
}

impl How {
    /// As the limits of a permit say.
    #[must_use]
    pub fn of(limits: &Limits, counted: &'static str) -> Self {
        Self { policy: limits.record_session, mode: limits.recording, counted }
    }

    /// By its events alone, for a kind whose content is not recorded.
    #[must_use]
    pub fn events_alone() -> Self {
        let mode = RecordingMode { at: RecordAt::Off, sync: false };
        Self { policy: RecordPolicy::BestEffort, mode, counted: "bytes" }
    }
}

/// The record of one session: its recording, and the events that name it.
pub struct Record {
    about: About,
    sink: Arc<dyn Sink>,
    how: How,
    /// None when it could not be made.
    recorder: Option<Recorder>,
    /// Whether the recording has ended. Its end is the last thing in it: who records holds this for reading, who sets
    /// it for writing. Tokio's own, which is made to be held while something is waited for.
    over: RwLock<bool>,
    failed: AtomicBool,
}

impl Record {
    /// Begins the record of a session.
    ///
    /// # Errors
    /// [`Unrecordable`], where a recording that cannot be made keeps the session from beginning.
    pub async fn begin(
        about: About,
        recorders: &Recorders,
        how: How,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, Unrecordable> {
        let metadata = about.metadata();
        let started = match (how.mode.at, how.mode.sync) {
            (RecordAt::Off, _) => None,
            (_, false) => Some(recorders.start(metadata, how.policy)),
            (_, true) => Some(recorders.start_in_step(metadata, how.policy, SyncBounds::default())),
        };
        let (recorder, mut failure) = match started {
            None => (None, None),
            Some(Ok(recorder)) => (Some(recorder), None),
            Some(Err(error)) => (None, Some(error)),
        };
        if let Some(recorder) = &recorder {
            failure = recorder.head_stored().await.err();
        }
        let over = RwLock::new(false);
        let record = Self { about, sink, how, recorder, over, failed: AtomicBool::new(false) };
        if let Some(error) = failure
            && let Err(unrecordable) = record.failure(&error)
        {
            if let Some(recorder) = &record.recorder {
                let _ = recorder.finish(Exit::Cut(unrecordable.to_string())).await;
            }
            return Err(unrecordable);
        }
        Ok(record)
    }

    /// Whose session it is.
    #[must_use]
    pub fn about(&self) -> &SessionMetadata {
        self.about.metadata()
    }

    /// An event of this session, now.
    #[must_use]
    pub fn event(&self, code: Code) -> Event {
        self.about.event(code)
    }

    /// Puts an event on record.
    pub fn emit(&self, event: Event) {
        self.sink.emit(event);
    }

    /// Who is to record it, in the words of lists: `node`, `proxy` or `off`.
    #[must_use]
    pub fn place(&self) -> &'static str {
        match self.how.mode.at {
            RecordAt::Off => "off",
            RecordAt::Node => "node",
            RecordAt::Proxy => "proxy",
        }
    }

    /// Whether there is a recording.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Since the recording began, by the clock of [`Frame::at`]; zero without one.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.recorder.as_ref().map_or(Duration::ZERO, Recorder::elapsed)
    }

    /// Records output; waits while too much is on its way to the disk.
    ///
    /// # Errors
    /// [`Unrecordable`]: the session has to end.
    pub async fn output(&self, bytes: Bytes) -> Result<(), Unrecordable> {
        self.recorded(async |recorder| recorder.output(bytes).await).await
    }

    /// Records input.
    ///
    /// # Errors
    /// As [`Record::output`].
    pub async fn input(&self, bytes: Bytes) -> Result<(), Unrecordable> {
        self.recorded(async |recorder| recorder.input(bytes).await).await
    }

    /// Records anything else that happens now.
    ///
    /// # Errors
    /// As [`Record::output`].
    pub async fn note(&self, body: Body) -> Result<(), Unrecordable> {
        self.recorded(async |recorder| recorder.body(body).await).await
    }

    /// Records several things at once that happened when they say, of about `size` bytes together. None is of a time before what is
    /// recorded already.
    ///
    /// # Errors
    /// As [`Record::output`].
    pub async fn frames(&self, frames: Vec<Frame>, size: usize) -> Result<(), Unrecordable> {
        if frames.is_empty() {
            return Ok(());
        }
        self.recorded(async |recorder| recorder.frames(frames, size).await).await
    }

    async fn recorded(
        &self,
        put: impl AsyncFnOnce(&Recorder) -> Result<(), RecordingError>,
    ) -> Result<(), Unrecordable> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        let over = self.over.read().await;
        if *over {
            return Ok(());
        }
        put(recorder).await.or_else(|error| self.failure(&error))
    }

    /// Waits until the recording fails in a way that ends the session; a failure that does not is told on the way, and
    /// that recording goes on.
    pub async fn broken(&self) -> Unrecordable {
        let Some(recorder) = &self.recorder else { return std::future::pending().await };
        loop {
            let error = recorder.failed().await;
            if let Err(unrecordable) = self.failure(&error) {
                return unrecordable;
            }
            recorder.recovered().await;
            self.resumed(recorder.tally().0);
            sleep(QUIET).await;
        }
    }

    /// Ends the recording; returns when it is on disk. What is recorded later is not in it.
    pub async fn finish(&self, exit: Exit) {
        let Some(recorder) = &self.recorder else { return };
        // The lock is given back before the disk is waited for: those who come later are told at once that it is over.
        if std::mem::replace(&mut *self.over.write().await, true) {
            return;
        }
        if let Err(error) = recorder.finish(exit).await {
            // The session is over: there is nothing left to stop.
            let _ = self.failure(&error);
        }
    }

    fn resumed(&self, lost: u64) {
        if self.failed.swap(false, Ordering::Relaxed) {
            tracing::info!(session = %self.about().session_id, lost, "recording goes on");
            let message = match lost {
                0 => "recording goes on; nothing is missing".to_owned(),
                lost => format!("recording goes on; about {lost} {} are missing", self.how.counted),
            };
            self.emit(self.event(Code::RecordingResumed).message(message).field("lost_bytes", lost));
        }
    }

    /// The recording failed: an event, once, and by the role's choice the end.
    fn failure(&self, error: &RecordingError) -> Result<(), Unrecordable> {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, session = %self.about().session_id, "recording failed");
            let event = self.event(Code::RecordingFailed).message(error.to_string());
            self.emit(event.field("policy", self.how.policy.as_str()));
        }
        match self.how.policy {
            RecordPolicy::BestEffort => Ok(()),
            RecordPolicy::Strict => Err(Unrecordable),
        }
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("session", &self.about().session_id)
            .field("how", &self.how)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
