//! What is known of a session while it is followed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sallyport_audit::recording::database::{DatabaseFrame, Transaction};
use sallyport_audit::recording::{Body, Frame};
use sallyport_audit::{Code, Event};

use super::names::{Bound, Kept, MOST_NAMED_BYTES};
use super::over::Over;
use super::waiting::Waiting;
use crate::postgres::encoding::Encoding;
use crate::service::folding::Folding;
use crate::service::text::{Long, Text};

/// Frames, and bytes of them, that are recorded together. Fewer wait a moment for more.
const ENOUGH_FRAMES: usize = 64;
const ENOUGH_BYTES: usize = 32 * 1024;

/// What there is to put on record.
pub(crate) struct Taken {
    pub(crate) frames: Vec<Frame>,
    pub(crate) size: usize,
    pub(crate) events: Vec<Event>,
    /// There is more that waits a moment.
    pub(crate) waits: bool,
}

/// Follows one session.
pub(crate) struct Observer {
    /// What the recording's clock was when this began; none without a recording.
    pub(super) recorded: Option<Duration>,
    /// Since this began.
    pub(super) now: Duration,
    /// Whether values of parameters are on record.
    pub(super) parameters: bool,
    /// Longest part of a statement that is on record.
    pub(super) cap: usize,
    /// What the client's text is in.
    pub(super) encoding: Encoding,
    pub(super) frames: Vec<Frame>,
    pub(super) frame_bytes: usize,
    pub(super) folding: Folding,
    pub(super) events: Vec<Event>,
    pub(super) event: Box<dyn Fn(Code) -> Event + Send>,
    pub(super) waiting: VecDeque<(u64, Waiting)>,
    pub(super) waiting_bytes: usize,
    /// How many of what waits run SQL.
    pub(super) running: usize,
    pub(super) statements: Kept<Arc<Text>>,
    pub(super) portals: Kept<Bound>,
    /// Values were put into some statement.
    pub(super) values: bool,
    pub(super) long: Option<Long>,
    pub(super) over: Over,
    /// The state of the transaction that was recorded last.
    pub(super) transaction: Transaction,
    /// What was recorded since is there to stay, or not, by what the server says next of its state.
    pub(super) pending: bool,
    /// Of the whole session.
    pub(crate) totals: Totals,
}

/// Counts of a session.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) statements: u64,
    pub(crate) errors: u64,
    pub(crate) rows: u64,
}

impl Observer {
    pub(crate) fn new(
        recorded: Option<Duration>,
        parameters: bool,
        cap: usize,
        encoding: Encoding,
        event: impl Fn(Code) -> Event + Send + 'static,
    ) -> Self {
        Self {
            recorded,
            now: Duration::ZERO,
            parameters,
            cap,
            encoding,
            frames: Vec::new(),
            frame_bytes: 0,
            folding: Folding::default(),
            events: Vec::new(),
            event: Box::new(event),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            running: 0,
            statements: Kept::new(MOST_NAMED_BYTES),
            portals: Kept::new(MOST_NAMED_BYTES),
            values: false,
            long: None,
            over: Over::default(),
            transaction: Transaction::None,
            pending: false,
            totals: Totals::default(),
        }
    }

    /// Tells the time, since this began.
    pub(crate) fn at(&mut self, now: Duration) {
        self.now = now;
    }

    /// What is to be recorded, with its size, and told: what is enough together, or `all`.
    pub(crate) fn take(&mut self, all: bool) -> Taken {
        if all {
            self.unfold();
        }
        let events = std::mem::take(&mut self.events);
        if !all && self.frames.len() < ENOUGH_FRAMES && self.frame_bytes < ENOUGH_BYTES {
            let waits = !self.frames.is_empty() || self.folding.folded.is_some();
            return Taken { frames: Vec::new(), size: 0, events, waits };
        }
        let frames = std::mem::take(&mut self.frames);
        let size = std::mem::take(&mut self.frame_bytes);
        Taken { frames, size, events, waits: self.folding.folded.is_some() }
    }

    pub(crate) fn frame(&mut self, frame: impl FnOnce() -> DatabaseFrame) {
        if let Some(offset) = self.recorded {
            let frame = frame();
            self.frame_bytes += frame.size();
            self.frames.push(Frame { at: offset + self.now, body: Body::Database(Box::new(frame)) });
        }
    }

    /// Tells of the statements that were folded into one event.
    pub(super) fn unfold(&mut self) {
        let Some(folded) = self.folding.folded.take() else { return };
        let event = (self.event)(Code::DatabaseQuery);
        self.events.push(folded.into_event(event));
    }
}
