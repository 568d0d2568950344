//! What waits for its answer, in order.

use std::sync::Arc;

use sallyport_audit::recording::sql::Answers;

use crate::service::text::Text;

/// Unanswered statements that are told of one by one when a session ends.
pub(super) const MOST_UNANSWERED: usize = 100;

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
