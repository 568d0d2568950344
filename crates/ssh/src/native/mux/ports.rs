//! What the channels of a connection are handed to, and how things end.

use bytes::Bytes;

use crate::native::frame::{Farewell, Frame, FrameError};

/// Takes what comes on one channel. None of these waits, or calls back into the mux.
pub(crate) trait Taker: Send + Sync {
    /// Data, within the window.
    fn data(&self, errors: bool, bytes: Bytes);
    /// No more of it comes.
    fn eof(&self);
    /// The far end is done with the channel, after all that came before.
    fn closed(&self);
    /// The far end does not let the channel in, for this reason; or (none) the connection is gone.
    fn gone(&self, refused: Option<String>);
    /// Another frame of this channel.
    fn frame(&self, frame: Frame);
}

/// What a side makes of what comes.
pub(crate) trait Role: Send {
    /// Takes a frame of the connection, or the opening of a channel, which it admits or refuses. Must not wait.
    ///
    /// # Errors
    /// When the far end may not say that.
    fn frame(&mut self, frame: Frame) -> Result<(), Breach>;
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// What the far end said that it means; none when it said nothing.
    pub(crate) told: Option<Farewell>,
    /// In words, for a person; empty when neither side said any.
    pub(crate) reason: String,
}

/// Which numbers are whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Node,
}

impl Side {
    pub(super) fn owns(self, id: u32) -> bool {
        (id % 2 == 1) == (self == Self::Client)
    }
}

/// The far end broke a rule.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Breach {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Rule(String),
}

impl Breach {
    pub(crate) fn rule(what: impl Into<String>) -> Self {
        Self::Rule(what.into())
    }
}

/// Why a channel cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpened {
    #[error("the connection is over")]
    Gone,
    #[error(transparent)]
    TooLong(FrameError),
}
