//! What a session leaves behind: its recording and its events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use sallyport_access::{RecordAt, RecordInput, RecordPolicy, RecordingMode};
use sallyport_audit::recording::{self, Body, Recorders, RecordingError, SessionMetadata, SyncBounds};
use sallyport_audit::{Code, Event, Sink};
use sallyport_sal::hash::Sha256;
use time::OffsetDateTime;
use tokio::sync::RwLock;
use tokio::time::sleep;

use crate::session::{Ended, Exit, FileOperation, Happening, Stop, Tap};

/// The tap of one session: its recording, and the events that name it.
pub(super) struct Record {
    about: SessionMetadata,
    sink: Arc<dyn Sink>,
    how: How,
    /// None when it could not be made, and after its end.
    recorder: RwLock<Option<recording::Recorder>>,
    failed: AtomicBool,
    /// Where nobody types: what the client has sent.
    given: Option<Mutex<Given>>,
}

/// What a client has sent to a session without a terminal: commands on the input of a shell, or a file that is no
/// file to the node. The recording shows what comes of it, and this which bytes they were, to those who have them.
#[derive(Debug, Default)]
struct Given {
    bytes: u64,
    hash: Sha256,
}

/// How a session is recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// What its failure means.
    pub(super) policy: RecordPolicy,
    /// Who records, and whether the authority has to keep up.
    pub(super) mode: RecordingMode,
    /// What is on record of what the client sends.
    pub(super) input: RecordInput,
    /// Whether the client's address is a proxy's word.
    pub(super) told_by_proxy: bool,
}

/// After a recording that failed goes on, it may fail again for so long before that is told: a disk that is nearly full
/// comes and goes.
const QUIET: Duration = Duration::from_secs(10);

impl Record {
    /// Begins the recording of a session. What its failure means is the role's choice.
    pub(super) async fn begin(
        about: SessionMetadata,
        recorders: &Recorders,
        how: How,
        sink: Arc<dyn Sink>,
    ) -> Result<Arc<Self>, Stop> {
        let started = match (how.mode.at, how.mode.sync) {
            (RecordAt::Off, _) => None,
            (_, false) => Some(recorders.start(&about, how.policy)),
            (_, true) => Some(recorders.start_in_step(&about, how.policy, SyncBounds::default())),
        };
        let (recorder, mut failure) = match started {
            None => (None, None),
            Some(Ok(recorder)) => (Some(recorder), None),
            Some(Err(error)) => (None, Some(error)),
        };
        if let Some(recorder) = &recorder {
            failure = recorder.head_stored().await.err();
        }
        let given = (about.term.is_none() && about.kind != "sftp").then(Mutex::default);
        let recorder = RwLock::new(recorder);
        let record = Self { about, sink, how, recorder, failed: AtomicBool::new(false), given };
        if let Some(error) = failure
            && let Err(stop) = record.failure(&error)
        {
            if let Some(recorder) = record.recorder.write().await.take() {
                let _ = recorder.finish(recording::Exit::Cut(stop.0.clone())).await;
            }
            return Err(stop);
        }
        Ok(Arc::new(record))
    }

    /// How many bytes the client has sent, and their SHA-256 in hexadecimal; none where a person types, or files are told of.
    pub(super) fn given(&self) -> Option<(u64, String)> {
        let given = self.given.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some((given.bytes, HEXLOWER.encode(&given.hash.clone().finish())))
    }

    /// Whether what the client sends is recorded itself. Of files the operations are.
    pub(super) fn has_input(&self) -> bool {
        self.how.input == RecordInput::Full && self.how.mode.at != RecordAt::Off && self.about.kind != "sftp"
    }

    pub(super) fn about(&self) -> &SessionMetadata {
        &self.about
    }

    /// Where the session is recorded, in the words of a list.
    pub(super) fn place(&self) -> &'static str {
        match self.how.mode.at {
            RecordAt::Off => "off",
            RecordAt::Node => "node",
            RecordAt::Proxy => "proxy",
        }
    }

    /// An event of this session.
    pub(super) fn event(&self, code: Code) -> Event {
        let about = &self.about;
        let event = Event::new(code, OffsetDateTime::now_utc())
            .user(about.user.as_str())
            .login(about.login.as_str())
            .node(about.node.as_str())
            .session(about.session_id)
            .source(about.source.as_str());
        if self.how.told_by_proxy { event.source_by_proxy() } else { event }
    }

    pub(super) fn emit(&self, event: Event) {
        self.sink.emit(event);
    }

    /// Records something that is not output.
    pub(super) async fn note(&self, body: Body) -> Result<(), Stop> {
        match self.recorder.read().await.as_ref() {
            None => Ok(()),
            Some(recorder) => recorder.body(body).await.or_else(|error| self.failure(&error)),
        }
    }

    /// Waits until the recording fails in a way that ends the session; a failure that does not is told on the way, and
    /// that recording goes on.
    pub(super) async fn broken(&self) -> Stop {
        let recorder = self.recorder.read().await;
        let Some(recorder) = recorder.as_ref() else { return std::future::pending().await };
        loop {
            let error = recorder.failed().await;
            if let Err(stop) = self.failure(&error) {
                return stop;
            }
            recorder.recovered().await;
            self.resumed(recorder.tally().0);
            sleep(QUIET).await;
        }
    }

    fn resumed(&self, lost: u64) {
        if self.failed.swap(false, Ordering::Relaxed) {
            tracing::info!(session = %self.about.session_id, lost, "recording goes on");
            let message = match lost {
                0 => "recording goes on; nothing is missing".to_owned(),
                lost => format!("recording goes on; about {lost} bytes of output are missing"),
            };
            self.sink.emit(self.event(Code::RecordingResumed).message(message).field("lost_bytes", lost));
        }
    }

    /// Ends the recording; returns when it is on disk.
    pub(super) async fn finish(&self, ended: &Ended) {
        let Some(recorder) = self.recorder.write().await.take() else { return };
        let exit = match (&ended.exit, &ended.cut) {
            (Some(Exit::Status(status)), _) => recording::Exit::Status(*status),
            (Some(Exit::Signal { name, .. }), _) => recording::Exit::Signal(name.clone()),
            (None, Some(reason)) => recording::Exit::Cut(reason.clone()),
            (None, None) => recording::Exit::Cut("the client went away".to_owned()),
        };
        if let Err(error) = recorder.finish(exit).await {
            // The session is over: there is nothing left to stop.
            let _ = self.failure(&error);
        }
    }

    /// The recording failed: an event, once, and by the role's choice the end.
    fn failure(&self, error: &RecordingError) -> Result<(), Stop> {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, session = %self.about.session_id, "recording failed");
            let event = self.event(Code::RecordingFailed).message(error.to_string());
            self.sink.emit(event.field("policy", self.how.policy.as_str()));
        }
        match self.how.policy {
            RecordPolicy::BestEffort => Ok(()),
            RecordPolicy::Strict => {
                Err(Stop("this session has to be recorded and cannot be; tell an administrator".to_owned()))
            }
        }
    }
}

#[async_trait]
impl Tap for Record {
    async fn happened(&self, what: Happening) -> Result<(), Stop> {
        if let (Happening::Input(bytes), Some(given)) = (&what, &self.given) {
            let mut given = given.lock().unwrap_or_else(PoisonError::into_inner);
            given.bytes += bytes.len() as u64;
            given.hash.update(bytes);
        }
        match what {
            Happening::Output(bytes) => match self.recorder.read().await.as_ref() {
                None => Ok(()),
                Some(recorder) => recorder.output(bytes).await.or_else(|error| self.failure(&error)),
            },
            Happening::Input(bytes) if self.has_input() => match self.recorder.read().await.as_ref() {
                None => Ok(()),
                Some(recorder) => recorder.input(bytes).await.or_else(|error| self.failure(&error)),
            },
            // How it ended is what the recording's end says.
            Happening::Input(_) | Happening::Exit(_) => Ok(()),
            Happening::Outlived => {
                let message = "the server has not said that what the session ran has ended";
                self.sink.emit(self.event(Code::SessionOutlived).message(message));
                Ok(())
            }
            Happening::Left { processes, more } => {
                let mut message = format!("what the session ran goes on: {}", processes.join(", "));
                if more > 0 {
                    message.push_str(&format!(" and {more} more"));
                }
                let mut event = self.event(Code::SessionOutlived).message(message);
                if more > 0 {
                    event = event.field("processes_more", more);
                }
                self.sink.emit(event.field("processes", processes));
                Ok(())
            }
            Happening::Resize(size) => self.note(Body::Resize { cols: size.columns, rows: size.rows }).await,
            Happening::File(operation) => {
                self.sink.emit(file_event(self.event(Code::SessionSftp), &operation));
                let moved = || (operation.operation == "close").then(|| moved(&operation));
                let detail = operation.error.clone().or_else(|| operation.target.clone()).or_else(moved);
                let success = operation.error.is_none();
                self.note(Body::Sftp {
                    operation: operation.operation,
                    path: operation.path,
                    detail,
                    success,
                })
                .await
            }
        }
    }
}

/// What a closed file was, in words.
fn moved(operation: &FileOperation) -> String {
    let mut words = format!("{} bytes read, {} written", operation.read, operation.written);
    if let Some(size) = operation.size {
        words.push_str(&format!(", size {size}"));
    }
    match (&operation.sha256, &operation.unhashed) {
        (Some(hash), _) => words.push_str(&format!(", sha256 {hash}")),
        (None, Some(why)) => words.push_str(&format!(", sha256 unknown: {why}")),
        (None, None) => {}
    }
    words
}

fn file_event(event: Event, operation: &FileOperation) -> Event {
    let mut event = event
        .message(match &operation.error {
            None => format!("{} {}", operation.operation, operation.path),
            Some(error) => format!("{} {}: {error}", operation.operation, operation.path),
        })
        .field("operation", operation.operation.as_str())
        .field("path", operation.path.as_str())
        .field("success", operation.error.is_none());
    if let Some(target) = &operation.target {
        event = event.field("target", target.as_str());
    }
    if operation.operation == "close" {
        event = event.field("bytes_read", operation.read).field("bytes_written", operation.written);
        if let Some(size) = operation.size {
            event = event.field("size", size);
        }
        if let Some(hash) = &operation.sha256 {
            event = event.field("sha256", hash.as_str());
        }
        if let Some(why) = &operation.unhashed {
            event = event.field("sha256_unknown", why.as_str());
        }
    }
    event
}
