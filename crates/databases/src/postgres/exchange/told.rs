//! What a server says in words.

use super::super::encoding::Encoding;
use super::super::message::Fields;

/// Longest error message, and longest tag of a command, that is kept.
pub(super) const MOST_TEXT_BYTES: usize = 4096;

/// What an `ErrorResponse` or a `NoticeResponse` says.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Such as `ERROR`.
    pub(crate) severity: String,
    /// `SQLSTATE`.
    pub(crate) code: String,
    /// In the server's words.
    pub(crate) message: String,
}

impl Told {
    /// As far as it can be read; it may have been cut.
    pub(crate) fn read(content: &[u8], encoding: Encoding) -> Self {
        let mut fields = Fields::new(content);
        let mut told = Self::default();
        while let Some(kind) = fields.u8().filter(|kind| *kind != 0) {
            let rest = fields.rest();
            let text = shown(fields.text().unwrap_or(rest), encoding);
            match kind {
                // The first is in the server's language; since PostgreSQL 9.6 the other one is not.
                b'S' if told.severity.is_empty() => told.severity = text,
                b'V' => told.severity = text,
                b'C' => told.code = text,
                b'M' => told.message = text,
                _ => {}
            }
        }
        told
    }
}

pub(super) fn shown(text: &[u8], encoding: Encoding) -> String {
    let mut shown = encoding.beginning(text, MOST_TEXT_BYTES);
    if text.len() > MOST_TEXT_BYTES {
        shown.push_str(" ... (cut)");
    }
    shown
}
