//! What a session leaves behind: its recording and its events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sallyport_access::{Limits, RecordAt, RecordPolicy};
use sallyport_audit::recording::database::DatabaseFrame;
use sallyport_audit::recording::{
    Body, Exit, Frame, Recorder, Recorders, RecordingError, SessionMetadata, SyncBounds,
};
use sallyport_audit::{Code, Event, Sink};
use time::OffsetDateTime;
use tokio::time::sleep;

/// After a recording that failed goes on, it may fail again for so long before that is told.
const QUIET: Duration = Duration::from_secs(10);

/// The record of one session.
pub(crate) struct Record {
    pub(crate) about: SessionMetadata,
    sink: Arc<dyn Sink>,
    policy: RecordPolicy,
    recorder: Option<Recorder>,
    failed: AtomicBool,
}

impl Record {
    /// Begins the recording. What its failure means is the role's choice; the error is what the client reads.
    pub(crate) async fn begin(
        about: SessionMetadata,
        recorders: &Recorders,
        limits: &Limits,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, String> {
        let policy = limits.record_session;
        let started = match (limits.recording.at, limits.recording.sync) {
            (RecordAt::Off, _) => None,
            (_, false) => Some(recorders.start(&about, policy)),
            (_, true) => Some(recorders.start_in_step(&about, policy, SyncBounds::default())),
        };
        let (recorder, mut failure) = match started {
            None => (None, None),
            Some(Ok(recorder)) => (Some(recorder), None),
            Some(Err(error)) => (None, Some(error)),
        };
        if let Some(recorder) = &recorder {
            failure = recorder.head_stored().await.err();
        }
        let mut record = Self { about, sink, policy, recorder, failed: AtomicBool::new(false) };
        if let Some(error) = failure
            && let Err(why) = record.failure(&error)
        {
            if let Some(recorder) = record.recorder.take() {
                let _ = recorder.finish(Exit::Cut(why.clone())).await;
            }
            return Err(why);
        }
        Ok(record)
    }

    /// An event of this session.
    pub(crate) fn event(&self, code: Code) -> Event {
        event(&self.about, code)
    }

    pub(crate) fn emit(&self, event: Event) {
        self.sink.emit(event);
    }

    /// Whether there is a recording.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Since the recording began; zero without one.
    pub(crate) fn elapsed(&self) -> Duration {
        self.recorder.as_ref().map_or(Duration::ZERO, Recorder::elapsed)
    }

    /// Takes frames into the recording.
    ///
    /// # Errors
    /// Why the session has to end.
    pub(crate) async fn note(&self, frames: Vec<Frame>, size: usize) -> Result<(), String> {
        match &self.recorder {
            Some(recorder) if !frames.is_empty() => {
                recorder.frames(frames, size).await.or_else(|error| self.failure(&error))
            }
            _ => Ok(()),
        }
    }

    /// The same with one that happens now.
    pub(crate) async fn note_one(&self, frame: DatabaseFrame) -> Result<(), String> {
        let size = frame.size();
        self.note(vec![Frame { at: self.elapsed(), body: Body::Database(Box::new(frame)) }], size).await
    }

    /// Waits until the recording fails in a way that ends the session; a failure that does not is told on the way.
    pub(crate) async fn broken(&self) -> String {
        let Some(recorder) = &self.recorder else { return std::future::pending().await };
        loop {
            let error = recorder.failed().await;
            if let Err(why) = self.failure(&error) {
                return why;
            }
            recorder.recovered().await;
            let lost = recorder.tally().0;
            if self.failed.swap(false, Ordering::Relaxed) {
                let message = match lost {
                    0 => "recording goes on; nothing is missing".to_owned(),
                    lost => format!("recording goes on; about {lost} bytes are missing"),
                };
                self.emit(self.event(Code::RecordingResumed).message(message).field("lost_bytes", lost));
            }
            sleep(QUIET).await;
        }
    }

    /// Ends the recording; returns when it is on disk.
    pub(crate) async fn finish(mut self, exit: Exit) {
        let Some(recorder) = self.recorder.take() else { return };
        if let Err(error) = recorder.finish(exit).await {
            // The session is over: there is nothing left to stop.
            let _ = self.failure(&error);
        }
    }

    /// The recording failed: an event, once, and by the role's choice the end.
    fn failure(&self, error: &RecordingError) -> Result<(), String> {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, session = %self.about.session_id, "recording failed");
            let event = self.event(Code::RecordingFailed).message(error.to_string());
            self.sink.emit(event.field("policy", self.policy.as_str()));
        }
        match self.policy {
            RecordPolicy::BestEffort => Ok(()),
            RecordPolicy::Strict => {
                Err("this session has to be recorded and cannot be; tell an administrator".to_owned())
            }
        }
    }
}

/// An event of the session that this is about.
pub(crate) fn event(about: &SessionMetadata, code: Code) -> Event {
    let event = Event::new(code, OffsetDateTime::now_utc())
        .user(about.user.as_str())
        .login(about.login.as_str())
        .node(about.node.as_str())
        .session(about.session_id)
        .source(about.source.as_str())
        .source_by_proxy();
    match &about.command {
        Some(name) => event.field("db_name", name.as_str()),
        None => event,
    }
}
