//! What the server refuses, and what it passes over because of that.

use std::sync::Arc;

use sallyport_audit::Code;

use super::about::finished;
use super::over::Over;
use super::state::Observer;
use super::waiting::MOST_UNANSWERED;
use super::waiting::{Outcome, Waiting};

impl Observer {
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

    /// It was tried and has no answer: the server passes it over, or the session has ended. Of those whose text is not known only
    /// `all` are told of; what is told of already as what failed is not told of again.
    pub(super) fn unanswered(&mut self, waiting: Waiting, all: bool) -> bool {
        match waiting {
            Waiting::Query { text, outcome } => self.told(Some(&text), b"", &outcome, false),
            Waiting::Execute { portal } => {
                let text = match self.over.bound.get(&portal) {
                    Some(text) => text.clone(),
                    None if self.over.bound.lost => None,
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
            Waiting::Parse { name, text } => {
                self.over.parsed.insert(name, Some(text));
                return false;
            }
            Waiting::Bind { portal, statement, .. } => {
                let parsed = match self.over.parsed.get(&statement) {
                    Some(parsed) => parsed.clone(),
                    None if self.over.parsed.lost => None,
                    None => self.statements.get(&statement).cloned(),
                };
                self.over.bound.insert(portal, parsed);
                return false;
            }
            Waiting::Close { portal: true, name } => {
                self.over.bound.insert(name, None);
                return false;
            }
            Waiting::Close { portal: false, name } => {
                self.over.parsed.insert(name, None);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// The server refuses a message, and passes over those up to another one.
    pub(super) fn failed(&mut self, of: u64, through: u64, why: (String, String), took_us: u64) {
        if let Some(outcome) = self.answering(of) {
            (outcome.sqlstate, outcome.took_us) = (Some(why), took_us);
            return;
        }
        let outcome = Outcome { sqlstate: Some(why), took_us, ..Outcome::default() };
        let mut over = Over::default();
        match self.answered(of) {
            Some(Waiting::Execute { portal }) => {
                over.failed = self.portals.get(&portal).and_then(|bound| bound.text.clone());
                self.executed(&portal, outcome);
            }
            // A statement that the server does not take was tried, too.
            Some(Waiting::Parse { name, text }) => {
                self.told(Some(&text), &name, &outcome, true);
                if name.is_empty() {
                    // The server has forgotten the one before by then.
                    self.statements.remove(b"");
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
                self.executed(&name, outcome);
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
}
