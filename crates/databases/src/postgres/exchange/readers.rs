//! What both directions of a session say about its exchange.

use super::told::{Told, shown};
use super::{Asked, Exchange, Happening, MOST_READ_BYTES, Number};
use crate::postgres::encoding::Encoding;
use crate::postgres::frame::{Interest, Malformed, Reader};
use crate::postgres::message::{Fields, Frontend};

/// Takes what a client has said of one message, for the record.
pub trait Said {
    /// A message of the client's; `number` is what [`Happening`] names it by.
    fn said(&mut self, number: Number, message: &Frontend<'_>);
    /// Part of a message that is too long to be held, from `at` in its content of `length`.
    fn long(&mut self, number: Number, kind: u8, length: u32, at: u32, part: &[u8]);
}

/// The client's direction.
pub struct FromClient<'a, S> {
    /// What goes on.
    pub exchange: &'a mut Exchange,
    /// Who is told.
    pub said: &'a mut S,
}

impl<S: Said> Reader for FromClient<'_, S> {
    fn interest(&self, kind: u8, length: u32) -> Result<Interest, Malformed> {
        match kind {
            b'd' => Ok(Interest::None),
            b'Q' | b'P' | b'B' | b'F' => Ok(Interest::Content),
            // Names, numbers and reasons. Longer ones no client has, and they would go on in parts.
            b'E' | b'D' | b'C' | b'f' if length <= 16 * 1024 => Ok(Interest::Content),
            b'S' | b'H' | b'c' | b'X' if length == 0 => Ok(Interest::Content),
            b'E' | b'D' | b'C' | b'f' | b'S' | b'H' | b'c' | b'X' => {
                Err(Malformed::Content { kind, what: "it is too long" })
            }
            b'p' => Err(Malformed::Place { kind, place: "after the authentication" }),
            other => Err(Malformed::Kind(other)),
        }
    }

    fn passes(&mut self, _: u8, length: u32) {
        self.exchange.data = self.exchange.number;
        if let Some(copy) = self.exchange.copy.as_mut().filter(|copy| copy.into) {
            copy.bytes += u64::from(length);
        }
    }

    fn whole(&mut self, kind: u8, content: &[u8]) -> Result<(), Malformed> {
        let message = Frontend::read(kind, content).map_err(|what| Malformed::Content { kind, what })?;
        match message {
            Frontend::Query { .. } => self.exchange.asks(Asked::Query),
            Frontend::Parse { .. } => self.exchange.asks(Asked::Parse),
            Frontend::Bind { .. } => self.exchange.asks(Asked::Bind),
            Frontend::Execute { .. } => self.exchange.asks(Asked::Execute),
            Frontend::Describe(_) => self.exchange.asks(Asked::Describe),
            Frontend::Close(_) => self.exchange.asks(Asked::Close),
            Frontend::FunctionCall { .. } => self.exchange.asks(Asked::FunctionCall),
            Frontend::Sync => self.exchange.asks(Asked::Sync),
            Frontend::Terminate => self.exchange.over = true,
            Frontend::CopyDone | Frontend::CopyFail { .. } => self.exchange.data_ends(),
            Frontend::Flush => {}
        }
        self.exchange.is_clear(kind)?;
        self.said.said(self.exchange.numbered(), &message);
        Ok(())
    }

    fn part(&mut self, kind: u8, length: u32, at: u32, content: &[u8]) -> Result<(), Malformed> {
        if at == 0 {
            self.exchange.asks(match kind {
                b'Q' => Asked::Query,
                b'P' => Asked::Parse,
                b'B' => Asked::Bind,
                _ => Asked::FunctionCall,
            });
            self.exchange.is_clear(kind)?;
        }
        let is_last = u64::from(at) + content.len() as u64 == u64::from(length);
        if kind == b'Q' {
            // One text, which ends where the message does.
            let zero = content.iter().position(|byte| *byte == 0);
            let fits = if is_last { zero == Some(content.len() - 1) } else { zero.is_none() };
            if !fits {
                return Err(Malformed::Content { kind, what: "its text does not end where it does" });
            }
        }
        self.said.long(self.exchange.numbered(), kind, length, at, content);
        Ok(())
    }
}

/// The server's direction. What it sends is taken as it is, but for what is no message, and for what has its place before the
/// session is ready: a client must not be asked for a password, or told another key to cancel with, in the middle of it.
pub struct FromServer<'a> {
    /// What goes on.
    pub exchange: &'a mut Exchange,
}

impl Reader for FromServer<'_> {
    fn interest(&self, kind: u8, length: u32) -> Result<Interest, Malformed> {
        match kind {
            b'C' | b'E' | b'N' | b'A' | b'S' => Ok(Interest::Content),
            b'Z' if length == 1 => Ok(Interest::Content),
            b'1' | b'2' | b'3' | b'D' | b'G' | b'H' | b'I' | b'T' | b'V' | b'W' | b'Z' | b'c' | b'd'
            | b'n' | b's' | b't' => Ok(Interest::None),
            b'R' | b'K' | b'v' => Err(Malformed::Place { kind, place: "after the authentication" }),
            other => Err(Malformed::Kind(other)),
        }
    }

    fn passes(&mut self, kind: u8, length: u32) {
        let exchange = &mut *self.exchange;
        if !matches!(kind, b'D' | b'd' | b'c' | b'Z' | b'E' | b'N' | b'A' | b'S') {
            exchange.moves_on();
        }
        match kind {
            b'D' => {
                exchange.rows += 1;
                exchange.row_bytes += u64::from(length);
            }
            b'd' => {
                if let Some(copy) = exchange.copy.as_mut().filter(|copy| !copy.into) {
                    copy.bytes += u64::from(length);
                }
            }
            b'1' => exchange.holds(Asked::Parse),
            b'2' => exchange.holds(Asked::Bind),
            b'3' => exchange.holds(Asked::Close),
            // Of a statement that is described, ParameterDescription comes before one of these; of a query, rows after it.
            b'T' | b'n' => drop(exchange.answered(&[Asked::Describe])),
            b'I' | b's' => match exchange.answers(&[Asked::Query]) {
                Some(query) => exchange.result(query, b""),
                None => {
                    if let Some(execute) = exchange.answered(&[Asked::Execute]) {
                        exchange.result(execute, b"");
                    }
                }
            },
            b'V' => {
                if let Some(call) = exchange.answers(&[Asked::FunctionCall]) {
                    // The value, without its length.
                    exchange.row_bytes = u64::from(length).saturating_sub(4);
                    exchange.result(call, b"");
                }
            }
            b'G' | b'W' => exchange.copies(true),
            b'H' => exchange.copies(false),
            b'Z' => exchange.ready(b""),
            _ => {}
        }
    }

    fn whole(&mut self, kind: u8, content: &[u8]) -> Result<(), Malformed> {
        let exchange = &mut *self.exchange;
        match kind {
            b'E' => {
                exchange.fails(content);
                return exchange.is_clear(kind);
            }
            b'N' => {
                let Told { severity, code, message } = Told::read(content, exchange.encoding);
                exchange.happened.push(Happening::Notice { severity, code, message });
                return Ok(());
            }
            b'A' => {
                let mut fields = Fields::new(content);
                let process = fields.u32().unwrap_or_default();
                let mut text = || {
                    let rest = fields.rest();
                    shown(fields.text().unwrap_or(rest), exchange.encoding)
                };
                let (channel, payload) = (text(), text());
                exchange.happened.push(Happening::Notified { process, channel, payload });
                return Ok(());
            }
            b'S' => {
                if let Some(name) = Encoding::reported(content) {
                    exchange.encoding = Encoding::of(&name);
                    exchange.happened.push(Happening::Encoding { encoding: exchange.encoding, name });
                }
                return Ok(());
            }
            b'Z' => {
                exchange.ready(content);
                return Ok(());
            }
            _ => {}
        }
        exchange.moves_on();
        let tag = Fields::new(content).text().unwrap_or(content);
        if let Some(query) = exchange.answers(&[Asked::Query]) {
            // One query may have several statements, and a result for each.
            exchange.result(query, tag);
        } else if let Some(execute) = exchange.answered(&[Asked::Execute]) {
            exchange.result(execute, tag);
        }
        Ok(())
    }

    fn part(&mut self, kind: u8, length: u32, at: u32, content: &[u8]) -> Result<(), Malformed> {
        let long = &mut self.exchange.long;
        if at == 0 {
            long.clear();
        }
        let room = MOST_READ_BYTES.saturating_sub(long.len()).min(content.len());
        long.extend_from_slice(content.get(..room).unwrap_or_default());
        if u64::from(at) + (content.len() as u64) < u64::from(length) {
            return Ok(());
        }
        let long = std::mem::take(long);
        self.whole(kind, &long)
    }
}
