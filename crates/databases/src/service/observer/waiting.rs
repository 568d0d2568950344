//! What waits for its answer, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use sallyport_audit::recording::sql::Answers;

use super::super::text::Text;
use super::{MOST_UNANSWERED, Tap};
use crate::postgres::exchange::Number;

/// Bytes of text that wait for their answers; beyond that only their beginnings do.
const MOST_WAITING_BYTES: usize = 1 << 20;

/// What waits for its answer. Tens of thousands may: outcomes, of which most have none, are elsewhere.
#[derive(Debug)]
pub(super) enum Waiting {
    Query { text: Text, outcome: Box<Outcome> },
    Parse { name: Box<[u8]>, text: Arc<Text> },
    Bind { portal: Box<[u8]>, statement: Box<[u8]>, values: bool },
    Execute { portal: Box<[u8]> },
    Describe { portal: bool, name: Box<[u8]> },
    Close { portal: bool, name: Box<[u8]> },
    Function { function: u32, values: bool, outcome: Box<Outcome> },
}

/// What has come of it so far.
#[derive(Debug, Default)]
pub(in crate::service) struct Outcome {
    /// The results' tags, as far as they are told of.
    pub(in crate::service) tags: Vec<String>,
    /// All of them, to be held against the statements.
    pub(super) answers: Answers,
    pub(in crate::service) rows: u64,
    pub(in crate::service) took_us: u64,
    pub(super) sqlstate: Option<(String, String)>,
    /// Its portal had been run to its end before.
    pub(super) again: bool,
}

impl Outcome {
    /// One more result.
    pub(super) fn takes(&mut self, tag: String, rows: u64, took_us: u64) {
        self.rows += rows;
        self.took_us = took_us;
        self.answers.push(&tag);
        if self.tags.len() < MOST_UNANSWERED {
            self.tags.push(tag);
        }
    }
}

impl Waiting {
    /// Of its text and its names.
    pub(super) fn bytes(&self) -> usize {
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

    /// Whether SQL is run by it, which may change how what follows is read.
    pub(super) fn runs(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Execute { .. } | Self::Function { .. })
    }
}

impl Tap {
    pub(super) fn wait(&mut self, number: Number, waiting: Waiting) {
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
        self.running += usize::from(waiting.runs());
        self.waiting.push_back((number.of, waiting));
    }

    pub(super) fn next(&mut self) -> Option<(u64, Waiting)> {
        let next = self.waiting.pop_front()?;
        self.waiting_bytes = self.waiting_bytes.saturating_sub(next.1.bytes());
        self.running = self.running.saturating_sub(usize::from(next.1.runs()));
        if self.waiting.is_empty() && self.waiting.capacity() > 64 {
            self.waiting = VecDeque::new();
        }
        Some(next)
    }

    /// What the server's answer is about. What the client said before it is passed over by the server.
    pub(super) fn answered(&mut self, of: u64) -> Option<Waiting> {
        while self.waiting.front().is_some_and(|(number, _)| *number < of) {
            self.next();
        }
        self.waiting.front().is_some_and(|(number, _)| *number == of).then(|| self.next())?.map(|next| next.1)
    }

    /// The same, and it waits on.
    pub(super) fn answering(&mut self, of: u64) -> Option<&mut Outcome> {
        while self.waiting.front().is_some_and(|(number, _)| *number < of) {
            self.next();
        }
        match self.waiting.front_mut() {
            Some((number, Waiting::Query { outcome, .. } | Waiting::Function { outcome, .. }))
                if *number == of =>
            {
                Some(&mut **outcome)
            }
            _ => None,
        }
    }

    /// The server reads what waits in another encoding, from one message on that is not known.
    pub(super) fn reads_otherwise(&mut self) {
        for (_, waiting) in &mut self.waiting {
            match waiting {
                Waiting::Query { text, .. } => text.doubted(),
                Waiting::Parse { text, .. } => Arc::make_mut(text).doubted(),
                _ => {}
            }
        }
    }
}
