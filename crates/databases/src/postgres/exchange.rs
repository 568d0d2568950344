//! What is going on in a session: which answer of the server belongs to which message of the client.
//!
//! A client may send as many messages as it likes before it reads (pipelining); the server answers them one after the other
//! (§53.2.3, §53.2.4). Each message that is answered waits in a queue, so that a result is told of with its statement and how
//! long it took. After an error the server passes over what waits up to the next `Sync`, and so does the queue.

mod readers;
mod told;

use std::collections::VecDeque;
use std::time::Duration;

use sallyport_audit::recording::database::Transaction;

use super::encoding::Encoding;
use super::frame::Malformed;
pub use readers::{FromClient, FromServer, Said};
pub(crate) use told::Told;
use told::shown;

/// Messages of a client that may wait for their answers. A server that answers at all has answered long before: it sends what
/// it has when 8 KiB are together, and its shortest answer has 5 bytes.
const MOST_WAITING: usize = 64 * 1024;
/// Of an error, a notice or the like that is too long to be held, so much is read: what is long in them comes late.
const MOST_READ_BYTES: usize = 16 * 1024;

/// What happened, for the record. Numbers say which message of the client it is about, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A result of a statement: complete, or all that was asked for now (`PortalSuspended`).
    Result {
        /// The `Query`, `Execute` or `FunctionCall`.
        of: u64,
        /// What the server calls it, such as `SELECT 3`; empty where it says nothing.
        tag: String,
        /// Rows sent to the client.
        rows: u64,
        /// Bytes of those rows.
        bytes: u64,
        /// From the message to this.
        took: Duration,
    },
    /// A statement was prepared, bound or given up: what the client said with that message holds from now on.
    Holds {
        /// The `Parse`, `Bind` or `Close`.
        of: u64,
    },
    /// The server is done with a `Query` or a `FunctionCall`, whatever came of it.
    Ended {
        /// The message.
        of: u64,
    },
    /// The server remarked something.
    Notice {
        /// Such as `WARNING`.
        severity: String,
        /// `SQLSTATE`.
        code: String,
        /// In the server's words.
        message: String,
    },
    /// Another session has notified a channel.
    Notified {
        /// The server's process of that session.
        process: u32,
        /// The channel.
        channel: String,
        /// What it was told.
        payload: String,
    },
    /// The client's text is in another encoding from here on.
    Encoding {
        /// As far as it can be read.
        encoding: Encoding,
        /// As the server calls it.
        name: String,
    },
    /// The server is ready for the next query. Outside of a transaction portals are gone.
    Ready {
        /// The `Query`, `FunctionCall` or `Sync` that is answered by this, where it is known.
        of: Option<u64>,
        /// The state of the transaction.
        transaction: Transaction,
    },
    /// The server refused or gave up.
    Failed {
        /// The message; none when the server said so by itself.
        of: Option<u64>,
        /// The last message that it passes over because of it, which is `of` itself where that is the only one; zero without.
        through: u64,
        /// `ERROR`, `FATAL` or `PANIC`.
        severity: String,
        /// `SQLSTATE`.
        code: String,
        /// In the server's words.
        message: String,
        /// From the message to this.
        took: Duration,
    },
    /// A copy has ended.
    Copied {
        /// The statement.
        of: u64,
        /// From the client into the database, or out of it.
        into: bool,
        /// Bytes of data.
        bytes: u64,
    },
}

/// Kinds of messages that are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Query,
    Parse,
    Bind,
    Describe,
    Execute,
    Close,
    FunctionCall,
    Sync,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: u64,
    asked: Asked,
    since: Duration,
    /// A `Sync` that stands among data: the server answers it only when it has given the copy up before it reads it.
    doubtful: bool,
}

/// A copy that runs.
#[derive(Debug, Clone, Copy)]
struct Copy {
    of: u64,
    into: bool,
    bytes: u64,
    /// The client has said that this was all, or that it gives up.
    done: bool,
}

/// The exchange of one session, from the first `ReadyForQuery` on.
#[derive(Debug, Default)]
pub struct Exchange {
    now: Duration,
    /// Messages of the client so far.
    number: u64,
    waiting: VecDeque<Waiting>,
    /// An error has been sent, and the server passes over what comes up to `Sync`.
    failed: bool,
    rows: u64,
    row_bytes: u64,
    copy: Option<Copy>,
    /// Number of the last message before data that the client has sent last.
    data: u64,
    /// Number of the last message before the last end of data that came before its copy had begun.
    data_ended: Option<u64>,
    /// There may be a doubtful `Sync`.
    doubts: bool,
    /// A copy has failed, and where the server goes on is known only at `ReadyForQuery`: at a doubtful `Sync` or at a later one.
    unclear: bool,
    /// The client has said goodbye.
    over: bool,
    /// The client's encoding.
    encoding: Encoding,
    /// The beginning of a message of the server's that comes in parts.
    long: Vec<u8>,
    /// What the server ended the session with.
    last_words: Option<String>,
    happened: Vec<Happening>,
}

impl Exchange {
    /// With a client whose text is in this encoding.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, ..Self::default() }
    }

    /// Tells the time, since any moment that stays the same.
    pub fn at(&mut self, now: Duration) {
        self.now = now;
    }

    /// What has happened since this was last asked.
    pub fn happened(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happened)
    }

    /// Whether the client may be read: as long as not too many of its messages wait for their answers.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting.len() < MOST_WAITING
    }

    /// Number of the message that the server has to answer next.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.number)
    }

    /// What the server has said to end the session (an error of severity FATAL or PANIC).
    #[must_use]
    pub fn last_words(&self) -> Option<&str> {
        self.last_words.as_deref()
    }

    /// Whether the server owes an answer.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the client has said goodbye.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn numbered(&self) -> Number {
        Number { of: self.number, answered: !self.failed }
    }

    /// Number of the last message of the client that was read.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The client has sent a message.
    fn asks(&mut self, asked: Asked) {
        self.number += 1;
        // The server does not answer what it passes over, nor a Sync among data that is copied in (§53.2.6).
        let mut doubtful = false;
        if asked == Asked::Sync {
            self.failed = false;
            match self.copy.filter(|copy| copy.into) {
                Some(Copy { of, done: false, .. }) if self.data < of => return,
                Some(Copy { done, .. }) => doubtful = !done,
                None => doubtful = self.waiting.back().is_some_and(|last| last.doubtful),
            }
        } else if self.failed {
            return;
        }
        self.doubts |= doubtful;
        self.waiting.push_back(Waiting { number: self.number, asked, since: self.now, doubtful });
    }

    /// The client has sent all of its data, or gives up.
    fn data_ends(&mut self) {
        self.data = self.number;
        match &mut self.copy {
            Some(copy) => copy.done = true,
            None => self.data_ended = Some(self.number),
        }
    }

    /// An answer that is none to a `Sync`: those before it the server did not answer, and those behind it it will.
    fn moves_on(&mut self) {
        while self.answered(&[Asked::Sync]).is_some() {}
        if self.copy.is_none() && std::mem::take(&mut self.doubts) {
            self.waiting.iter_mut().for_each(|waiting| waiting.doubtful = false);
        }
    }

    /// The message that the server's next answer is about, when it is of one of these kinds.
    fn answers(&self, kinds: &[Asked]) -> Option<Waiting> {
        self.waiting.front().copied().filter(|waiting| kinds.contains(&waiting.asked))
    }

    /// The first message has its answer.
    fn answered(&mut self, kinds: &[Asked]) -> Option<Waiting> {
        let waiting = self.answers(kinds)?;
        self.waiting.pop_front();
        Some(waiting)
    }

    fn holds(&mut self, asked: Asked) {
        if let Some(waiting) = self.answered(&[asked]) {
            self.happened.push(Happening::Holds { of: waiting.number });
        }
    }

    fn result(&mut self, waiting: Waiting, tag: &[u8]) {
        self.copied();
        self.end_copy();
        let (of, rows) = (waiting.number, std::mem::take(&mut self.rows));
        let bytes = std::mem::take(&mut self.row_bytes);
        let took = self.now.saturating_sub(waiting.since);
        let tag = shown(tag, self.encoding);
        self.happened.push(Happening::Result { of, tag, rows, bytes, took });
    }

    /// A copy in has come to its good end: what stood among its data had no answer.
    fn copied(&mut self) {
        if self.copy.is_some_and(|copy| copy.into) {
            self.waiting.retain(|waiting| !waiting.doubtful);
            self.data_ended = None;
        }
    }

    fn end_copy(&mut self) {
        if let Some(Copy { of, into, bytes, .. }) = self.copy.take() {
            self.happened.push(Happening::Copied { of, into, bytes });
        }
    }

    fn fails(&mut self, content: &[u8]) {
        let was_copying = self.copy.is_some_and(|copy| copy.into);
        if self.answers(&[Asked::Sync]).is_some_and(|sync| sync.doubtful) {
            self.moves_on();
        }
        self.end_copy();
        (self.rows, self.row_bytes) = (0, 0);
        let Told { severity, code, message } = Told::read(content, self.encoding);
        let is_last = matches!(severity.as_str(), "FATAL" | "PANIC");
        if is_last {
            self.last_words = Some(format!("{message} ({code})"));
        }
        // What a Sync fails with is the end of the pipeline before it, as a constraint that is looked at then.
        let of = self.waiting.front().copied().filter(|waiting| waiting.asked != Asked::Sync || !is_last);
        let mut through = of.map_or(0, |of| of.number);
        match of.map(|of| of.asked) {
            // They are followed by ReadyForQuery in any case.
            Some(Asked::Query | Asked::FunctionCall | Asked::Sync) | None => {}
            Some(_) => {
                through = self.pass_over().unwrap_or(through);
                self.failed = self.waiting.is_empty();
                self.unclear = was_copying && self.waiting.front().is_some_and(|sync| sync.doubtful);
            }
        }
        let took = of.map_or(Duration::ZERO, |of| self.now.saturating_sub(of.since));
        let of = of.map(|of| of.number);
        self.happened.push(Happening::Failed { of, through, severity, code, message, took });
    }

    /// What the server passes over after an error.
    fn pass_over(&mut self) -> Option<u64> {
        let mut last = None;
        while self.waiting.front().is_some_and(|waiting| waiting.asked != Asked::Sync) {
            last = self.waiting.pop_front().map(|waiting| waiting.number);
        }
        last
    }

    /// The server is ready for the next query, and says in which state.
    fn ready(&mut self, state: &[u8]) {
        self.end_copy();
        (self.rows, self.row_bytes) = (0, 0);
        (self.failed, self.unclear) = (false, false);
        // Of a query it is the last answer, and the only one of Sync. After an error before its Sync came, that comes yet.
        let waiting = self.answered(&[Asked::Query, Asked::FunctionCall, Asked::Sync]);
        if let Some(waiting) = waiting {
            if waiting.asked == Asked::Sync {
                // It may have been the answer to the next one.
                let next = self.waiting.front_mut().filter(|next| next.asked == Asked::Sync);
                next.into_iter().for_each(|next| next.doubtful |= waiting.doubtful);
            } else {
                self.happened.push(Happening::Ended { of: waiting.number });
            }
        }
        let transaction = match state {
            b"I" => Transaction::None,
            b"T" => Transaction::Open,
            b"E" => Transaction::Failed,
            _ => return,
        };
        self.happened.push(Happening::Ready { of: waiting.map(|waiting| waiting.number), transaction });
    }

    fn copies(&mut self, into: bool) {
        if let Some(waiting) = self.answers(&[Asked::Query, Asked::Execute]) {
            let of = waiting.number;
            let ended = self.data_ended.filter(|ended| into && *ended >= of);
            self.copy = Some(Copy { of, into, bytes: 0, done: ended.is_some() });
            if into && self.data < of {
                // Sent in the hope of a result; the server takes it for nothing.
                self.waiting.retain(|other| other.asked != Asked::Sync);
            } else if into {
                self.doubts = true;
                let among = |sync: &&mut Waiting| ended.is_none_or(|ended| sync.number <= ended);
                let syncs = self.waiting.iter_mut().filter(|other| other.asked == Asked::Sync);
                syncs.filter(among).for_each(|sync| sync.doubtful = true);
            }
        }
    }

    /// # Errors
    /// When it cannot be told whether the server will answer the client's message.
    fn is_clear(&self, kind: u8) -> Result<(), Malformed> {
        let lost = self.unclear && self.waiting.iter().any(|waiting| waiting.asked != Asked::Sync);
        let place = "after a Sync among data whose copy has failed";
        if lost { Err(Malformed::Place { kind, place }) } else { Ok(()) }
    }
}

/// A message of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Counted from 1; messages that are never answered have that of the one before.
    pub of: u64,
    /// Whether the server will answer it, as far as is known: after an error it passes over what comes up to `Sync`.
    pub answered: bool,
}

#[cfg(test)]
mod tests;
