//! Many statements in one event.
//!
//! What a person types, and most of what programs do, has an event for each statement. Of a program that runs hundreds a second
//! the audit log would be mostly the frames of events; its statements are folded, each with its text and hash.

use std::time::Duration;

use data_encoding::HEXLOWER;
use sallyport_audit::Event;

use super::tap::{Outcome, milliseconds};
use super::text::Text;

/// Statements within [`WINDOW`] that have an event each.
const EACH: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);
/// Most statements of an event, and most bytes of their text but for the last one.
const MOST_FOLDED: usize = 250;
const MOST_BYTES: usize = 32 * 1024;

/// Whether statements come fast, and those that are folded so far.
#[derive(Debug, Default)]
pub(super) struct Folding {
    since: Duration,
    count: u32,
    pub(super) folded: Option<Folded>,
}

impl Folding {
    /// Counts a statement.
    pub(super) fn is_fast(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.since) >= WINDOW {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count > EACH
    }
}

/// Statements that went well.
#[derive(Debug, Default)]
pub(super) struct Folded {
    statements: String,
    sha256s: Vec<String>,
    rows: Vec<u64>,
    durations_us: Vec<u64>,
    tags: Vec<String>,
}

impl Folded {
    pub(super) fn add(&mut self, text: &Text, outcome: &Outcome) {
        if !self.statements.is_empty() {
            self.statements.push('\n');
        }
        self.statements.push_str(&text.shown);
        self.sha256s.push(HEXLOWER.encode(&text.sha256));
        self.rows.push(outcome.rows);
        self.durations_us.push(outcome.took_us);
        self.tags.push(outcome.tags.join("; "));
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= MOST_FOLDED || self.statements.len() >= MOST_BYTES
    }

    pub(super) fn into_event(self, event: Event) -> Event {
        let event = event
            .message(format!("{} statements", self.rows.len()))
            .field("count", self.rows.len())
            .field("statement", self.statements)
            .field("rows", self.rows.iter().sum::<u64>())
            .field("duration_ms", milliseconds(self.durations_us.iter().sum()));
        let event = event.field("sha256s", self.sha256s).field("rows_each", self.rows);
        let event = event.field("durations_us", self.durations_us);
        if let [first, rest @ ..] = self.tags.as_slice()
            && rest.iter().all(|tag| tag == first)
        {
            return event.field("tag", first.as_str());
        }
        event.field("tags", self.tags)
    }
}
