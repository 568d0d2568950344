//! Events of statements.

use data_encoding::HEXLOWER;
use sallyport_audit::Code;
use sallyport_audit::recording::database;
use sallyport_audit::recording::sql::changes;

use super::about::{about, finished};
use super::state::Observer;
use super::waiting::{Outcome, Waiting};
use crate::postgres::message::Parameter;
use crate::service::text::{MOST_NAME_BYTES, MOST_VALUE_BYTES, Text};

/// Most values of one message that are on record.
const MOST_VALUES: usize = 1024;

impl Observer {
    /// The server is done with a query or a call.
    pub(super) fn ended(&mut self, of: u64) {
        // A simple query has no use for what has no name, and the server forgets it.
        self.statements.remove(b"");
        self.portals.remove(b"");
        match self.answered(of) {
            Some(Waiting::Query { text, outcome }) => {
                self.changes(changes(text.exact(), &outcome.answers, outcome.sqlstate.is_none()));
                self.told(Some(&text), b"", &outcome, true);
            }
            Some(Waiting::Function { function, outcome, .. }) => {
                let event = (self.event)(Code::DatabaseFunctionCall);
                let event = finished(event, &outcome, true).field("function", function);
                self.events.push(event.message(format!("function {function} was called")));
            }
            _ => {}
        }
    }

    /// A portal was run, or not.
    pub(super) fn executed(&mut self, portal: &[u8], mut outcome: Outcome) {
        let Some(bound) = self.portals.get_mut(portal) else {
            // A cursor that SQL has made.
            return self.told(None, portal, &outcome, true);
        };
        let (name, text) = (bound.statement.clone(), bound.text.clone());
        outcome.again = bound.finished;
        bound.finished |= outcome.tags.iter().any(|tag| !tag.is_empty());
        let exact = text.as_deref().and_then(Text::exact);
        let changes = changes(exact, &outcome.answers, outcome.sqlstate.is_none());
        self.changes(changes);
        self.told(text.as_deref(), &name, &outcome, true);
    }

    /// The event of a statement.
    pub(super) fn told(&mut self, text: Option<&Text>, name: &[u8], outcome: &Outcome, answered: bool) {
        self.totals.statements += 1;
        if let Some(text) = text.filter(|_| answered && !outcome.again && outcome.sqlstate.is_none())
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
                about(text).into_iter().fold(event, |event, (name, value)| event.field(&name, value))
            }
            None => {
                let name = self.encoding.beginning(name, MOST_NAME_BYTES);
                event.message(format!("{name:?}, whose text is not known here")).field("name", name)
            }
        };
        self.events.push(event);
    }

    /// The values that are on record, where the roles have them so.
    pub(super) fn values(&self, parameters: &[Parameter<'_>]) -> Option<Vec<database::Parameter>> {
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
