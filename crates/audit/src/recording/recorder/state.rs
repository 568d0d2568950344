//! What the side of a session and the side of the writer share of one recording.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use sallyport_access::{RecordPolicy, SessionId};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::recording::format::Encoder;
use crate::recording::frame::Frame;

/// Commands that may wait for one writer.
pub(super) const QUEUE: usize = 4096;

/// How far behind the authority may be with a recording that is kept in step with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncBounds {
    /// How long nothing may be acknowledged while something waits to be: then recording has failed. The beginning of a
    /// session waits for its recording's head no longer, either. Default 10 s.
    pub patience: Duration,
    /// What may wait on the disk here: a session that writes more goes at the authority's pace. Default 4 MiB.
    pub bytes: u64,
}

impl Default for SyncBounds {
    fn default() -> Self {
        Self { patience: Duration::from_secs(10), bytes: 4 << 20 }
    }
}

/// Why a session cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be made or written.
    #[error("the session cannot be recorded: {path}: {problem}")]
    Storage {
        /// The file.
        path: String,
        /// What the system says.
        problem: String,
    },
    /// What waits for the authority fills its share of the disk.
    #[error(
        "the session cannot be recorded: recordings that the authority has not taken yet fill their share of the disk"
    )]
    Full,
    /// The authority does not keep up with a recording that has to be in step with it.
    #[error("the session cannot be recorded: the authority has taken nothing for {0} s")]
    Behind(u64),
    /// The disk does not answer.
    #[error("the session cannot be recorded: the disk has not answered for {0} s")]
    Stuck(u64),
    /// Sealing failed.
    #[error("the session cannot be recorded: {0}")]
    Seal(String),
    /// The writers have stopped.
    #[error("the session cannot be recorded: the writer has stopped")]
    Stopped,
}

pub(super) fn storage(path: &Path, error: &io::Error) -> RecordingError {
    RecordingError::Storage { path: path.display().to_string(), problem: error.to_string() }
}

/// The recordings that are being written, until the writer is done with their files.
pub(super) type Live = Arc<Mutex<HashMap<SessionId, Arc<SessionState>>>>;

pub(super) enum Command {
    Begin(Box<Begun>),
    Frame(SessionId, Frame, usize),
    Frames(SessionId, Vec<Frame>, usize),
    Finish(SessionId, Option<oneshot::Sender<Result<(), RecordingError>>>),
}

pub(super) struct Begun {
    pub(super) session: SessionId,
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) encoder: Encoder,
    pub(super) head: BytesMut,
    pub(super) policy: RecordPolicy,
    pub(super) state: Arc<SessionState>,
}

/// What the session's side and the writer's side of one recording share.
pub(super) struct SessionState {
    pub(super) budget: Semaphore,
    pub(super) failed: watch::Sender<Option<RecordingError>>,
    /// Bytes of output that are not in the recording.
    pub(super) lost: AtomicU64,
    pub(super) written: AtomicU64,
    /// What the authority has of it.
    pub(super) stored: watch::Sender<u64>,
    /// When the authority last took something, or began to be behind.
    pub(super) moved: Mutex<Instant>,
    pub(super) sync: Option<SyncBounds>,
    /// A best-effort recording has a gap that its next frame must tell of.
    pub(super) gap: AtomicBool,
}

impl SessionState {
    /// Notes that so much is on the disk.
    pub(super) fn wrote(&self, bytes: u64) {
        if self.waiting() == 0 {
            *self.moved.lock() = Instant::now();
        }
        self.written.store(bytes, Ordering::Relaxed);
    }

    /// What the authority does not have yet.
    pub(super) fn waiting(&self) -> u64 {
        self.written.load(Ordering::Relaxed).saturating_sub(*self.stored.borrow())
    }

    /// Whether the authority is too far behind, of a recording that has to be in step with it.
    pub(super) fn behind(&self) -> Option<RecordingError> {
        let bounds = self.sync.as_ref()?;
        let moved = *self.moved.lock();
        (self.waiting() > 0 && moved.elapsed() > bounds.patience)
            .then_some(RecordingError::Behind(bounds.patience.as_secs()))
    }

    /// Notes what [`SessionState::behind`] says. Other failures are not touched.
    pub(super) fn look(&self) {
        if self.sync.is_none() {
            return;
        }
        let known = matches!(*self.failed.borrow(), Some(RecordingError::Behind(_)));
        match self.behind() {
            Some(error) if self.failed.borrow().is_none() => {
                self.failed.send_replace(Some(error));
            }
            None if known => {
                self.failed.send_replace(None);
            }
            _ => {}
        }
    }
}
