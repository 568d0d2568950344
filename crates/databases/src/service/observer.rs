//! What is put on record of a session's messages: frames for its recording, and events for the audit log.
//!
//! Which statement an `Execute` runs is known only when the server has answered what came before: a `Parse` that it refuses
//! leaves an earlier statement of that name in place. So what the client says waits here for its answer, in order.

mod errors;
mod names;
mod said;
mod told;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sallyport_audit::recording::database::{DatabaseFrame, Transaction};
use sallyport_audit::recording::sql::Ending;
use sallyport_audit::recording::{Body, Frame};
use sallyport_audit::{Code, Event};

use super::folding::Folding;
use super::text::{Long, MOST_VALUE_BYTES, Text};
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::Happening;
use errors::Over;
use names::{Bound, Kept, MOST_NAMED_BYTES};
use waiting::Waiting;

pub(super) use told::{about, milliseconds};
pub(super) use waiting::Outcome;

/// Stands for an error's message that may quote values which are not on record.
const WITHHELD: &str = "(withheld: it may quote values of parameters)";
/// Unanswered statements that are told of one by one when a session ends.
const MOST_UNANSWERED: usize = 100;

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
pub(crate) struct Tap {
    /// What the recording's clock was when this began; none without a recording.
    recorded: Option<Duration>,
    /// Since this began.
    now: Duration,
    /// Whether values of parameters are on record.
    parameters: bool,
    /// Longest part of a statement that is on record.
    cap: usize,
    /// What the client's text is in.
    encoding: Encoding,
    frames: Vec<Frame>,
    frame_bytes: usize,
    folding: Folding,
    events: Vec<Event>,
    event: Box<dyn Fn(Code) -> Event + Send>,
    waiting: VecDeque<(u64, Waiting)>,
    waiting_bytes: usize,
    /// How many of what waits run SQL.
    running: usize,
    statements: Kept<Arc<Text>>,
    portals: Kept<Bound>,
    /// Values were put into some statement.
    values: bool,
    long: Option<Long>,
    over: Over,
    /// The state of the transaction that was recorded last.
    transaction: Transaction,
    /// What was recorded since is there to stay, or not, by what the server says next of its state.
    pending: bool,
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

impl Tap {
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
    fn unfold(&mut self) {
        let Some(folded) = self.folding.folded.take() else { return };
        let event = (self.event)(Code::DatabaseQuery);
        self.events.push(folded.into_event(event));
    }

    /// Something has come of what the client said.
    pub(crate) fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Holds { of } => self.holds(of),
            Happening::Ended { of } => self.ended(of),
            Happening::Encoding { encoding, name } => {
                self.encoding = encoding;
                self.reads_otherwise();
                self.frame(|| DatabaseFrame::Encoding { name });
            }
            Happening::Ready { of, transaction } => self.ready(of, transaction),
            Happening::Result { of, tag, rows, bytes, took } => {
                let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.totals.rows += rows;
                self.frame(|| DatabaseFrame::Result { of, tag: tag.clone(), rows, bytes, took_us });
                let ends = matches!(tag.as_str(), "COMMIT" | "ROLLBACK" | "PREPARE TRANSACTION");
                self.pending |= Ending::is_told_by(&tag);
                if let Some(outcome) = self.answering(of) {
                    outcome.takes(tag, rows, took_us);
                } else if let Some(Waiting::Execute { portal }) = self.answered(of) {
                    self.pending = true;
                    let mut outcome = Outcome::default();
                    outcome.takes(tag, rows, took_us);
                    self.executed(&portal, outcome);
                }
                if ends {
                    // With the transaction; those from before a savepoint stay, and are known by name alone.
                    self.portals.clear();
                }
            }
            Happening::Failed { of, through, severity, code, message, took } => {
                let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.totals.errors += 1;
                self.pending = true;
                let message = if self.may_quote(of, &severity) { WITHHELD.to_owned() } else { message };
                let (sqlstate, words) = (code.clone(), message.clone());
                self.frame(|| DatabaseFrame::Error { of, severity, sqlstate, message: words, took_us });
                if let Some(of) = of {
                    self.failed(of, through, (code, message), took_us);
                }
            }
            Happening::Copied { of, into, bytes } => {
                self.frame(|| DatabaseFrame::Copy { of, into, bytes });
                let way = if into { "into the database" } else { "out of the database" };
                let event = (self.event)(Code::DatabaseCopy).message(format!("{bytes} bytes {way}"));
                let direction = if into { "in" } else { "out" };
                self.events.push(event.field("direction", direction).field("bytes", bytes).field("of", of));
            }
            Happening::Notice { severity, code, message } => {
                self.frame(|| DatabaseFrame::Notice { severity, sqlstate: code, message });
            }
            Happening::Notified { process, channel, payload } => {
                let payload = Encoding::Utf8.beginning(payload.as_bytes(), MOST_VALUE_BYTES);
                self.frame(|| DatabaseFrame::Notify { process, channel, payload });
            }
        }
    }

    /// The server has said what the session is in. That is recorded where nothing else says it.
    fn ready(&mut self, of: Option<u64>, transaction: Transaction) {
        if transaction == Transaction::None {
            self.portals.clear();
        }
        let news = std::mem::take(&mut self.pending) || transaction != self.transaction;
        if let Some(of) = of.filter(|_| news) {
            self.transaction = transaction;
            self.frame(|| DatabaseFrame::Ready { of, transaction });
        }
    }

    /// Whether the message of an error may quote values that are not to be on record. What the server says on its way out it
    /// says of no statement.
    fn may_quote(&self, of: Option<u64>, severity: &str) -> bool {
        if self.parameters {
            return false;
        }
        let Some(of) = of else { return self.values && !matches!(severity, "FATAL" | "PANIC") };
        match self.waiting.iter().find(|(number, _)| *number == of) {
            Some((_, Waiting::Bind { values, .. } | Waiting::Function { values, .. })) => *values,
            Some((_, Waiting::Execute { portal })) => {
                self.portals.get(portal).map_or(self.values, |bound| bound.values)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
