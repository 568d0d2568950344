//! What is put on record of a session's messages: frames for its recording, and events for the audit log.
//!
//! Which statement an `Execute` runs is known only when the server has answered what came before: a `Parse` that it refuses
//! leaves an earlier statement of that name in place. So what the client says waits here for its answer, in order.

mod said;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use sallyport_audit::recording::database::{self, DatabaseFrame};
use sallyport_audit::recording::sql::Change;
use sallyport_audit::recording::{Body, Frame};
use sallyport_audit::{Code, Event};

use super::folding::Folding;
use super::text::{Long, MOST_NAME_BYTES, MOST_VALUE_BYTES, Text};
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::{Happening, Number};
use crate::postgres::message::Parameter;

/// Most prepared statements, and most portals, of a session whose text is remembered. Executing others is on record without
/// their text, which their `Parse` has in the recording.
const MOST_NAMES: usize = 2048;
/// Bytes of text that wait for their answers; beyond that only their beginnings do.
const MOST_WAITING_BYTES: usize = 1 << 20;
/// Bytes of text of prepared statements that are remembered.
const MOST_PREPARED_BYTES: usize = 4 << 20;
/// Most values of one message that are on record.
const MOST_VALUES: usize = 1024;
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

/// What waits for its answer.
#[derive(Debug)]
enum Waiting {
    Query { text: Text, outcome: Outcome },
    Parse { name: Box<[u8]>, text: Arc<Text> },
    Bind { portal: Box<[u8]>, statement: Box<[u8]>, values: bool },
    Execute { portal: Box<[u8]> },
    Describe { portal: bool, name: Box<[u8]> },
    Close { portal: bool, name: Box<[u8]> },
    Function { function: u32, values: bool, outcome: Outcome },
}

/// What has come of it so far.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) tags: Vec<String>,
    /// How many results there were.
    results: usize,
    pub(super) rows: u64,
    pub(super) took_us: u64,
    sqlstate: Option<(String, String)>,
}

/// What the server passes over after an error: what it would have been, had it been run.
#[derive(Default)]
struct Over {
    /// What failed; that is told of as that.
    failed: Option<Arc<Text>>,
    parsed: HashMap<Box<[u8]>, Option<Arc<Text>>>,
    bound: HashMap<Box<[u8]>, Option<Arc<Text>>>,
}

/// A portal's statement.
struct Bound {
    statement: Box<[u8]>,
    /// Where it is known.
    text: Option<Arc<Text>>,
    /// Values were put in.
    values: bool,
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
    statements: HashMap<Box<[u8]>, Arc<Text>>,
    statement_bytes: usize,
    portals: HashMap<Box<[u8]>, Bound>,
    /// Values were put into some statement.
    values: bool,
    long: Option<Long>,
    over: Over,
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
            statements: HashMap::new(),
            statement_bytes: 0,
            portals: HashMap::new(),
            values: false,
            long: None,
            over: Over::default(),
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

    /// The session ends: what has no answer yet, from the message `oldest` on, was tried all the same. What came before that the
    /// server has passed over.
    pub(crate) fn ends(&mut self, oldest: Option<u64>) {
        while self.waiting.front().is_some_and(|(number, _)| oldest.is_none_or(|oldest| *number < oldest)) {
            self.next();
        }
        self.over = Over::default();
        let mut told = 0;
        while let Some((_, waiting)) = self.next() {
            if told == MOST_UNANSWERED {
                let event = (self.event)(Code::DatabaseQuery);
                let message = "more statements were sent and had no answer when the session ended";
                self.events.push(event.message(message).field("more", self.waiting.len() + 1));
                break;
            }
            told += usize::from(self.unanswered(waiting, true));
        }
        self.waiting.clear();
    }

    fn wait(&mut self, number: Number, waiting: Waiting) {
        if !number.answered {
            self.unanswered(waiting, false);
            return;
        }
        let full = self.waiting_bytes > MOST_WAITING_BYTES;
        let waiting = match waiting {
            Waiting::Query { text, outcome } if full => Waiting::Query { text: text.beginning(), outcome },
            Waiting::Parse { name, text } if full => {
                Waiting::Parse { name, text: Arc::new(text.beginning()) }
            }
            other => other,
        };
        self.waiting_bytes += waiting.bytes();
        self.waiting.push_back((number.of, waiting));
    }

    /// It was tried and has no answer: the server passes it over, or the session has ended. Of those whose text is not known only
    /// `all` are told of; what is told of already as what failed is not told of again.
    fn unanswered(&mut self, waiting: Waiting, all: bool) -> bool {
        let room = |count: usize| count < MOST_NAMES;
        match waiting {
            Waiting::Query { text, outcome } => self.told(Some(&text), b"", &outcome, false),
            Waiting::Execute { portal } => {
                let text = match self.over.bound.get(&portal) {
                    Some(text) => text.clone(),
                    None => self.portals.get(&portal).and_then(|bound| bound.text.clone()),
                };
                let again = match (&self.over.failed, &text) {
                    (Some(failed), Some(text)) => Arc::ptr_eq(failed, text),
                    _ => false,
                };
                if again || text.is_none() && !all {
                    return false;
                }
                self.told(text.as_deref(), &portal, &Outcome::default(), false);
            }
            Waiting::Parse { name, text } if room(self.over.parsed.len()) => {
                self.over.parsed.insert(name, Some(text));
                return false;
            }
            Waiting::Bind { portal, statement, .. } if room(self.over.bound.len()) => {
                let parsed = match self.over.parsed.get(&statement) {
                    Some(parsed) => parsed.clone(),
                    None => self.statements.get(&statement).cloned(),
                };
                self.over.bound.insert(portal, parsed);
                return false;
            }
            Waiting::Close { portal: true, name } if room(self.over.bound.len()) => {
                self.over.bound.insert(name, None);
                return false;
            }
            Waiting::Close { portal: false, name } if room(self.over.parsed.len()) => {
                self.over.parsed.insert(name, None);
                return false;
            }
            _ => return false,
        }
        true
    }

    fn next(&mut self) -> Option<(u64, Waiting)> {
        let next = self.waiting.pop_front()?;
        self.waiting_bytes = self.waiting_bytes.saturating_sub(next.1.bytes());
        if self.waiting.is_empty() && self.waiting.capacity() > 64 {
            self.waiting = VecDeque::new();
        }
        Some(next)
    }

    /// What the server's answer is about. What the client said before it is passed over by the server.
    fn answered(&mut self, of: u64) -> Option<Waiting> {
        while self.waiting.front().is_some_and(|(number, _)| *number < of) {
            self.next();
        }
        self.waiting.front().is_some_and(|(number, _)| *number == of).then(|| self.next())?.map(|next| next.1)
    }

    /// The same, and it waits on.
    fn answering(&mut self, of: u64) -> Option<&mut Outcome> {
        while self.waiting.front().is_some_and(|(number, _)| *number < of) {
            self.next();
        }
        match self.waiting.front_mut() {
            Some((number, Waiting::Query { outcome, .. } | Waiting::Function { outcome, .. }))
                if *number == of =>
            {
                Some(outcome)
            }
            _ => None,
        }
    }

    /// Something has come of what the client said.
    pub(crate) fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Holds { of } => self.holds(of),
            Happening::Ended { of } => {
                // A simple query has no use for what has no name, and the server forgets it.
                self.forget_statement(b"");
                self.portals.remove(&b""[..]);
                self.ended(of);
            }
            Happening::Encoding(encoding) => self.encoding = encoding,
            Happening::Idle => self.portals.clear(),
            Happening::Result { of, tag, rows, bytes, took } => {
                let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.totals.rows += rows;
                self.frame(|| DatabaseFrame::Result { of, tag: tag.clone(), rows, bytes, took_us });
                if Change::is_told_by(&tag) {
                    let change = self.change(of, &tag);
                    self.changes(change);
                }
                let ends = matches!(tag.as_str(), "COMMIT" | "ROLLBACK" | "PREPARE TRANSACTION");
                if let Some(outcome) = self.answering(of) {
                    outcome.rows += rows;
                    outcome.took_us = took_us;
                    outcome.results += 1;
                    if outcome.tags.len() < MOST_UNANSWERED {
                        outcome.tags.push(tag);
                    }
                } else if let Some(Waiting::Execute { portal }) = self.answered(of) {
                    let outcome = Outcome { tags: vec![tag], results: 1, rows, took_us, sqlstate: None };
                    self.executed(&portal, &outcome);
                }
                if ends {
                    // With the transaction; those from before a savepoint stay, and are known by name alone.
                    self.portals.clear();
                }
            }
            Happening::Failed { of, through, severity, code, message, took } => {
                let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.totals.errors += 1;
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

    /// The server refuses a message, and passes over those up to another one.
    fn failed(&mut self, of: u64, through: u64, why: (String, String), took_us: u64) {
        if let Some(outcome) = self.answering(of) {
            (outcome.sqlstate, outcome.took_us) = (Some(why), took_us);
            return;
        }
        let outcome = Outcome { sqlstate: Some(why), took_us, ..Outcome::default() };
        let mut over = Over::default();
        match self.answered(of) {
            Some(Waiting::Execute { portal }) => {
                over.failed = self.portals.get(&portal).and_then(|bound| bound.text.clone());
                self.executed(&portal, &outcome);
            }
            // A statement that the server does not take was tried, too.
            Some(Waiting::Parse { name, text }) => {
                self.told(Some(&text), &name, &outcome, true);
                if name.is_empty() {
                    // The server has forgotten the one before by then.
                    self.forget_statement(b"");
                }
                over.failed = Some(Arc::clone(&text));
                over.parsed.insert(name, Some(text));
            }
            Some(Waiting::Bind { portal, statement, .. }) => {
                let text = self.statements.get(&statement).cloned();
                self.told(text.as_deref(), &statement, &outcome, true);
                over.failed.clone_from(&text);
                over.bound.insert(portal, text);
            }
            Some(Waiting::Describe { portal: true, name }) => {
                over.failed = self.portals.get(&name).and_then(|bound| bound.text.clone());
                self.executed(&name, &outcome);
            }
            Some(Waiting::Describe { portal: false, name }) => {
                over.failed = self.statements.get(&name).cloned();
                self.told(over.failed.clone().as_deref(), &name, &outcome, true);
            }
            Some(Waiting::Close { .. }) => {}
            // The end of a pipeline.
            Some(Waiting::Query { .. } | Waiting::Function { .. }) | None => {
                let event = finished((self.event)(Code::DatabaseQuery), &outcome, true);
                let message = "the end of a pipeline failed: what it did since the last Sync is undone";
                self.events.push(event.message(message).field("undone", true));
            }
        }
        self.over = over;
        while self.waiting.front().is_some_and(|(number, _)| *number <= through) {
            let Some((_, waiting)) = self.next() else { break };
            self.unanswered(waiting, false);
        }
    }

    /// What a result says of the names of statements and portals.
    fn change(&self, of: u64, tag: &str) -> Change {
        let waiting = self.waiting.iter().find(|(number, _)| *number == of);
        let (text, result) = match waiting {
            Some((_, Waiting::Query { text, outcome })) => (Some(text), outcome.results),
            Some((_, Waiting::Execute { portal })) => {
                (self.portals.get(portal).and_then(|bound| bound.text.as_deref()), 0)
            }
            _ => (None, 0),
        };
        let whole = text.and_then(Text::exact);
        Change::read(tag, whole, result)
    }

    fn changes(&mut self, change: Change) {
        match change {
            Change::Prepared { name, text } => {
                let text = Text::of(text.as_bytes(), self.cap, Encoding::Utf8);
                self.prepares(name.into(), Arc::new(text));
            }
            Change::Deallocated(name) => self.forget_statement(&name),
            Change::Portal(name) => drop(self.portals.remove(name.as_slice())),
            Change::PortalsAll => self.portals.clear(),
            Change::DeallocatedAll => self.forget_statements(),
            Change::Discarded | Change::Unknown => {
                self.forget_statements();
                self.portals.clear();
            }
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

    fn holds(&mut self, of: u64) {
        match self.answered(of) {
            Some(Waiting::Parse { name, text }) => {
                self.prepares(name, text);
            }
            Some(Waiting::Bind { portal, statement, values }) => {
                self.portals.remove(&portal);
                if portal.is_empty() || self.portals.len() < MOST_NAMES {
                    let text = self.statements.get(&statement).cloned();
                    self.portals.insert(portal, Bound { statement, text, values });
                }
            }
            Some(Waiting::Close { portal: true, name }) => {
                self.portals.remove(&name);
            }
            Some(Waiting::Close { portal: false, name }) => self.forget_statement(&name),
            _ => {}
        }
    }

    fn forget_statement(&mut self, name: &[u8]) {
        if let Some((name, text)) = self.statements.remove_entry(name) {
            self.statement_bytes = self.statement_bytes.saturating_sub(text.shown.len() + name.len());
        }
    }

    fn prepares(&mut self, name: Box<[u8]>, text: Arc<Text>) {
        let more = text.shown.len() + name.len();
        self.forget_statement(&name);
        if name.is_empty()
            || self.statements.len() < MOST_NAMES && self.statement_bytes + more < MOST_PREPARED_BYTES
        {
            self.statement_bytes += more;
            self.statements.insert(name, text);
        }
    }

    /// The one without a name is the protocol's alone, and SQL does not touch it.
    fn forget_statements(&mut self) {
        self.statements.retain(|name, _| name.is_empty());
        self.statement_bytes = self.statements.iter().map(|(name, text)| name.len() + text.shown.len()).sum();
    }

    fn ended(&mut self, of: u64) {
        match self.answered(of) {
            Some(Waiting::Query { text, outcome }) => self.told(Some(&text), b"", &outcome, true),
            Some(Waiting::Function { function, outcome, .. }) => {
                let event = (self.event)(Code::DatabaseFunctionCall);
                let event = finished(event, &outcome, true).field("function", function);
                self.events.push(event.message(format!("function {function} was called")));
            }
            _ => {}
        }
    }

    fn executed(&mut self, portal: &[u8], outcome: &Outcome) {
        match self.portals.get(portal) {
            Some(Bound { statement, text, .. }) => {
                let (name, text) = (statement.clone(), text.clone());
                self.told(text.as_deref(), &name, outcome, true);
            }
            // A cursor that SQL has made.
            None => self.told(None, portal, outcome, true),
        }
    }

    /// The event of a statement.
    fn told(&mut self, text: Option<&Text>, name: &[u8], outcome: &Outcome, answered: bool) {
        self.totals.statements += 1;
        if let Some(text) = text.filter(|_| answered && outcome.sqlstate.is_none())
            && self.folding.is_fast(self.now)
        {
            let folded = self.folding.folded.get_or_insert_default();
            folded.add(text, outcome);
            if folded.is_full() {
                self.unfold();
            }
            return;
        }
        self.unfold();
        let event = finished((self.event)(Code::DatabaseQuery), outcome, answered);
        let event = match text {
            Some(text) => {
                let event = event
                    .message(text.shown.as_str())
                    .field("statement", text.shown.as_str())
                    .field("sha256", HEXLOWER.encode(&text.sha256));
                described(event, text)
            }
            None => {
                let name = self.encoding.beginning(name, MOST_NAME_BYTES);
                event.message(format!("{name:?}, whose text is not known here")).field("name", name)
            }
        };
        self.events.push(event);
    }

    fn values(&self, parameters: &[Parameter<'_>]) -> Option<Vec<database::Parameter>> {
        let binary = |bytes: &[u8]| {
            let beginning = bytes.get(..MOST_VALUE_BYTES).unwrap_or(bytes);
            database::Parameter::Binary(HEXLOWER.encode(beginning))
        };
        let value = |parameter: &Parameter<'_>| match (parameter.value, parameter.binary) {
            (None, _) => database::Parameter::Null,
            // Nothing of what is no text is lost.
            (Some(bytes), false) if self.encoding.read(bytes).1 => {
                database::Parameter::Text(self.encoding.beginning(bytes, MOST_VALUE_BYTES))
            }
            (Some(bytes), _) => binary(bytes),
        };
        self.parameters.then(|| parameters.iter().take(MOST_VALUES).map(value).collect())
    }
}

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Self::Query { text, .. } => text.shown.len(),
            Self::Parse { name, text } => name.len() + text.shown.len(),
            Self::Bind { portal, statement, .. } => portal.len() + statement.len(),
            Self::Execute { portal: name } | Self::Close { name, .. } | Self::Describe { name, .. } => {
                name.len()
            }
            Self::Function { .. } => 0,
        }
    }
}

/// How the text of a statement is to be read, where it is not all there is.
fn described(mut event: Event, text: &Text) -> Event {
    let Some(otherwise) = text.otherwise() else { return event };
    if otherwise.is_cut() {
        event = event.field("bytes", text.bytes);
        if otherwise.dropped > 0 {
            event = event.field("dropped", otherwise.dropped);
        }
        if otherwise.left_out > 0 {
            event = event.field("left_out", otherwise.left_out);
        }
    }
    if let Some(encoding) = otherwise.encoding {
        event = event.field("encoding", encoding);
    }
    match otherwise.base64.as_slice() {
        [] => event,
        [one] => event.field("base64", one.as_str()),
        several => event.field("base64", several.to_vec()),
    }
}

fn finished(event: Event, outcome: &Outcome, answered: bool) -> Event {
    let mut event = event.field("rows", outcome.rows);
    match outcome.tags.as_slice() {
        [] => {}
        [tag] => event = event.field("tag", tag.as_str()),
        tags => event = event.field("tag", tags.join("; ")),
    }
    event = event.field("duration_ms", milliseconds(outcome.took_us));
    if let Some((code, message)) = &outcome.sqlstate {
        event = event.field("sqlstate", code.as_str()).field("error", message.as_str());
    }
    if !answered {
        event = event.field("unanswered", true);
    }
    event
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds of a statement, for people")]
pub(super) fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests;
