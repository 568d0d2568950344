//! Many statements in one event.
//!
//! What a person types, and most of what programs do, has an event for each statement. Of a program that runs hundreds a second
//! the audit log would be mostly the frames of events; its statements are folded, each with its text and hash.

use std::time::Duration;

use data_encoding::HEXLOWER;
use sallyport_audit::Event;
use serde_json::Value;

use super::observer::about::{about, milliseconds};
use super::observer::waiting::Outcome;
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
    /// Bytes of each text in `statements`.
    lengths: Vec<usize>,
    /// Of those that are not on record as they were said: what is told of such a statement, and which it is.
    otherwise: Vec<Value>,
    otherwise_bytes: usize,
}

impl Folded {
    pub(super) fn add(&mut self, text: &Text, outcome: &Outcome) {
        if !self.statements.is_empty() {
            self.statements.push('\n');
        }
        let mut about = about(text);
        if !about.is_empty() {
            self.otherwise_bytes += text.held_bytes();
            about.insert("index".to_owned(), self.rows.len().into());
            self.otherwise.push(Value::Object(about));
        }
        self.statements.push_str(&text.shown);
        self.lengths.push(text.shown.len());
        self.sha256s.push(HEXLOWER.encode(&text.sha256));
        self.rows.push(outcome.rows);
        self.durations_us.push(outcome.took_us);
        self.tags.push(outcome.tags.join("; "));
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= MOST_FOLDED || self.statements.len() + self.otherwise_bytes >= MOST_BYTES
    }

    pub(super) fn into_event(self, event: Event) -> Event {
        let event = event
            .message(format!("{} statements", self.rows.len()))
            .field("count", self.rows.len())
            .field("statement", self.statements)
            .field("rows", self.rows.iter().sum::<u64>())
            .field("duration_ms", milliseconds(self.durations_us.iter().sum()));
        let event = event.field("sha256s", self.sha256s).field("rows_each", self.rows);
        let event = event.field("durations_us", self.durations_us).field("lengths", self.lengths);
        let event = if self.otherwise.is_empty() { event } else { event.field("otherwise", self.otherwise) };
        if let [first, rest @ ..] = self.tags.as_slice()
            && rest.iter().all(|tag| tag == first)
        {
            return event.field("tag", first.as_str());
        }
        event.field("tags", self.tags)
    }
}
