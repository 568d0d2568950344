//! What the client says, as frames and as what waits for its answer.

use std::sync::Arc;

use sallyport_audit::recording::database::{DatabaseFrame, Parameter};

use super::super::text::{Long, MOST_NAME_BYTES, Text};
use super::state::Observer;
use super::waiting::Waiting;
use crate::postgres::exchange::{Number, Said};
use crate::postgres::message::{Frontend, Named};

/// What the server tells names of statements and portals apart by: its own tables have no longer ones (`NAMEDATALEN` less
/// one), so that two names that begin alike are one.
const KEY_BYTES: usize = 63;
impl Said for Observer {
    fn said(&mut self, number: Number, message: &Frontend<'_>) {
        let (cap, encoding) = (self.cap, self.encoding);
        let shown = |text: &[u8], most| encoding.beginning(text, most);
        match message {
            Frontend::Query { text } => {
                let text = self.read(Text::of(text, cap, encoding));
                self.frame(|| DatabaseFrame::Query { number: number.of, statement: text.recorded() });
                self.wait(number, Waiting::Query { text, outcome: Box::default() });
            }
            Frontend::Parse { name, text } => {
                let text = Arc::new(self.read(Text::of(text, cap, encoding)));
                self.frame(|| DatabaseFrame::Parse {
                    number: number.of,
                    name: shown(name, MOST_NAME_BYTES),
                    statement: text.recorded(),
                });
                self.wait(number, Waiting::Parse { name: key(name), text });
            }
            Frontend::Bind { portal, statement, parameters } => {
                let values = self.values(parameters);
                let doubtful = self.may_be_read_otherwise() && values.iter().flatten().any(is_foreign);
                self.frame(|| DatabaseFrame::Bind {
                    number: number.of,
                    portal: shown(portal, MOST_NAME_BYTES),
                    statement: shown(statement, MOST_NAME_BYTES),
                    count: u16::try_from(parameters.len()).unwrap_or(u16::MAX),
                    parameters: values,
                    doubtful,
                });
                let (portal, statement) = (key(portal), key(statement));
                self.values |= !parameters.is_empty();
                self.wait(number, Waiting::Bind { portal, statement, values: !parameters.is_empty() });
            }
            Frontend::Execute { portal, rows } => {
                let name = shown(portal, MOST_NAME_BYTES);
                self.frame(|| DatabaseFrame::Execute {
                    number: number.of,
                    portal: name,
                    rows: u64::from(*rows),
                });
                self.wait(number, Waiting::Execute { portal: key(portal) });
            }
            Frontend::Describe(named) => {
                let (portal, name) = which(*named);
                self.frame(|| DatabaseFrame::Describe {
                    number: number.of,
                    portal,
                    name: shown(name, MOST_NAME_BYTES),
                });
                self.wait(number, Waiting::Describe { portal, name: key(name) });
            }
            Frontend::Close(named) => {
                let (portal, name) = which(*named);
                self.frame(|| DatabaseFrame::Close {
                    number: number.of,
                    portal,
                    name: shown(name, MOST_NAME_BYTES),
                });
                self.wait(number, Waiting::Close { portal, name: key(name) });
            }
            Frontend::FunctionCall { function, parameters } => {
                let values = self.values(parameters);
                self.frame(|| DatabaseFrame::FunctionCall {
                    number: number.of,
                    function: *function,
                    count: u16::try_from(parameters.len()).unwrap_or(u16::MAX),
                    parameters: values,
                });
                let (values, outcome) = (!parameters.is_empty(), Box::default());
                self.wait(number, Waiting::Function { function: *function, values, outcome });
            }
            Frontend::CopyFail { reason } => {
                self.frame(|| DatabaseFrame::CopyFail { reason: shown(reason, MOST_NAME_BYTES) });
            }
            Frontend::Sync | Frontend::Flush | Frontend::CopyDone | Frontend::Terminate => {}
        }
    }

    fn long(&mut self, number: Number, kind: u8, length: u32, at: u32, part: &[u8]) {
        if at == 0 {
            self.long = Some(Long::new(kind));
        }
        let (cap, encoding) = (self.cap, self.encoding);
        let shown = |text: &[u8], most| encoding.beginning(text, most);
        let Some(long) = &mut self.long else { return };
        long.take(part, cap);
        if u64::from(at) + (part.len() as u64) < u64::from(length) {
            return;
        }
        let Some(long) = self.long.take() else { return };
        let number_of = number.of;
        match kind {
            b'Q' => {
                let text = self.read(long.text(cap, encoding));
                self.frame(|| DatabaseFrame::Query { number: number_of, statement: text.recorded() });
                self.wait(number, Waiting::Query { text, outcome: Box::default() });
            }
            b'P' => {
                let (name, text) = (long.name.clone(), Arc::new(self.read(long.text(cap, encoding))));
                self.frame(|| DatabaseFrame::Parse {
                    number: number_of,
                    name: shown(&name, MOST_NAME_BYTES),
                    statement: text.recorded(),
                });
                self.wait(number, Waiting::Parse { name: key(&name), text });
            }
            b'B' => {
                // The portal's name ends where the statement's begins; values of this length are not on record.
                let (portal, statement) = (long.name, long.text);
                self.frame(|| DatabaseFrame::Bind {
                    number: number_of,
                    portal: shown(&portal, MOST_NAME_BYTES),
                    statement: shown(&statement, MOST_NAME_BYTES),
                    count: 0,
                    parameters: None,
                    doubtful: false,
                });
                let (portal, statement) = (key(&portal), key(&statement));
                self.values = true;
                self.wait(number, Waiting::Bind { portal, statement, values: true });
            }
            _ => {
                let function = long.text.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.frame(|| DatabaseFrame::FunctionCall {
                    number: number_of,
                    function,
                    count: 0,
                    parameters: None,
                });
                self.wait(number, Waiting::Function { function, values: true, outcome: Box::default() });
            }
        }
    }
}

impl Observer {
    /// What runs before a text may change the encoding that the server reads it in, and change it back.
    fn read(&self, mut text: Text) -> Text {
        if self.may_be_read_otherwise() {
            text.doubted();
        }
        text
    }

    /// What has run since the server was ready last it has not told of (`ParameterStatus` comes with `ReadyForQuery`).
    fn may_be_read_otherwise(&self) -> bool {
        self.running > 0 || self.pending
    }
}

fn is_foreign(value: &Parameter) -> bool {
    matches!(value, Parameter::Text(text) if !text.is_ascii())
}

/// What the server looks a name up by.
fn key(name: &[u8]) -> Box<[u8]> {
    name.get(..KEY_BYTES).unwrap_or(name).into()
}

fn which(named: Named<'_>) -> (bool, &[u8]) {
    match named {
        Named::Portal(name) => (true, name),
        Named::Statement(name) => (false, name),
    }
}
