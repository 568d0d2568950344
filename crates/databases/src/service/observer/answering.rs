//! What the answers of the server are to, and what names stand for by then.

use std::collections::VecDeque;
use std::sync::Arc;

use sallyport_audit::recording::sql::Change;

use super::names::Bound;
use super::state::Observer;
use super::waiting::{Outcome, Waiting};
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::Number;
use crate::service::text::Text;

/// Bytes of text that wait for their answers; beyond that only their beginnings do.
const MOST_WAITING_BYTES: usize = 1 << 20;

impl Observer {
    /// A statement or a portal is there, or gone, from now on.
    pub(super) fn holds(&mut self, of: u64) {
        use super::waiting::Waiting;
        match self.answered(of) {
            Some(Waiting::Parse { name, text }) => self.statements.insert(name, text),
            Some(Waiting::Bind { portal, statement, values }) => {
                let text = self.statements.get(&statement).cloned();
                // That its portal ends with the transaction is on record by that.
                self.pending = true;
                self.portals.insert(portal, Bound { statement, text, values, finished: false });
            }
            Some(Waiting::Close { portal: true, name }) => self.portals.remove(&name),
            Some(Waiting::Close { portal: false, name }) => self.statements.remove(&name),
            _ => {}
        }
    }

    /// SQL has changed what names stand for.
    pub(super) fn changes(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Prepared { name, text } => {
                    let text = Text::of(text.as_bytes(), self.cap, Encoding::Utf8);
                    self.statements.insert(name.into(), Arc::new(text));
                }
                Change::Deallocated(name) => self.statements.remove(&name),
                Change::Portal(name) => self.portals.remove(&name),
                Change::PortalsAll => self.portals.clear(),
                // The one without a name is the protocol's alone, and SQL does not touch it.
                Change::DeallocatedAll => self.statements.clear_named(),
                Change::Discarded | Change::Unknown => {
                    self.statements.clear_named();
                    self.portals.clear();
                }
            }
        }
    }
}

impl Observer {
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
