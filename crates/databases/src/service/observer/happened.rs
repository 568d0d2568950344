//! What comes of what the client said.

use sallyport_audit::Code;
use sallyport_audit::recording::database::{DatabaseFrame, Transaction};
use sallyport_audit::recording::sql::Ending;

use super::state::Observer;
use super::waiting::{Outcome, Waiting};
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::Happening;
use crate::service::text::MOST_VALUE_BYTES;

/// Stands for an error's message that may quote values which are not on record.
const WITHHELD: &str = "(withheld: it may quote values of parameters)";
impl Observer {
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
