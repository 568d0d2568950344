//! What the thread that writes is asked.

use tokio::sync::oneshot;

use crate::Event;
use crate::log::error::LogError;

pub(super) type Answer = oneshot::Sender<Result<(), LogError>>;

pub(super) enum Command {
    Append { events: Vec<Event>, urgent: bool, answer: Answer },
    Checkpoint(Answer),
    Close(Answer),
}

/// What was mended when the log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Bytes of an unfinished record that were cut off.
    pub bytes: u64,
}
