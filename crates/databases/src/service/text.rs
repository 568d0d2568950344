//! Statements as they are put on record: their beginning, and the hash of the whole.

use data_encoding::HEXLOWER;
use sallyport_audit::recording::database;
use sallyport_sal::hash::{Sha256, sha256};

/// Such a beginning, where memory is short.
const BEGINNING_BYTES: usize = 128;
/// Longest name or reason that is on record.
pub(super) const MOST_NAME_BYTES: usize = 256;
/// Longest value of a parameter that is on record.
pub(super) const MOST_VALUE_BYTES: usize = 1024;

/// A statement that was said.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) shown: String,
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
}

impl Text {
    pub(super) fn of(text: &[u8], cap: usize) -> Self {
        Self { shown: shown(text, cap), bytes: text.len() as u64, sha256: sha256(text) }
    }

    pub(super) fn is_cut(&self, cap: usize) -> bool {
        self.bytes > cap as u64
    }

    pub(super) fn recorded(&self, cap: usize) -> database::Statement {
        let cut = self.is_cut(cap);
        database::Statement {
            text: self.shown.clone(),
            bytes: cut.then_some(self.bytes),
            sha256: cut.then(|| HEXLOWER.encode(&self.sha256)),
        }
    }

    /// The same with less of it.
    pub(super) fn beginning(&self) -> Self {
        Self { shown: shown(self.shown.as_bytes(), BEGINNING_BYTES), ..*self }
    }
}

/// A message that comes in parts.
#[derive(Debug)]
pub(super) struct Long {
    kind: u8,
    /// Up to where the text begins, or ends.
    pub(super) name: Vec<u8>,
    /// The name has ended.
    named: bool,
    ended: bool,
    pub(super) text: Vec<u8>,
    bytes: u64,
    hash: Sha256,
}

impl Long {
    pub(super) fn new(kind: u8) -> Self {
        Self {
            kind,
            name: Vec::new(),
            // Only Parse and Bind have a name before.
            named: !matches!(kind, b'P' | b'B'),
            ended: false,
            text: Vec::new(),
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    pub(super) fn take(&mut self, mut part: &[u8], cap: usize) {
        if !self.named {
            let end = part.iter().position(|byte| *byte == 0);
            let (name, rest) = part.split_at(end.unwrap_or(part.len()));
            // The server tells names apart by their beginnings, of which this is more.
            let room = MOST_NAME_BYTES.saturating_sub(self.name.len()).min(name.len());
            self.name.extend_from_slice(name.get(..room).unwrap_or_default());
            if end.is_none() {
                return;
            }
            self.named = true;
            part = rest.get(1..).unwrap_or_default();
        }
        if self.ended {
            return;
        }
        let text = match self.kind {
            b'F' => part,
            _ => {
                let end = part.iter().position(|byte| *byte == 0);
                self.ended = end.is_some();
                part.get(..end.unwrap_or(part.len())).unwrap_or_default()
            }
        };
        let most = if matches!(self.kind, b'Q' | b'P') { cap + 4 } else { MOST_VALUE_BYTES };
        let room = most.saturating_sub(self.text.len()).min(text.len());
        self.text.extend_from_slice(text.get(..room).unwrap_or_default());
        self.bytes += text.len() as u64;
        if matches!(self.kind, b'Q' | b'P') {
            self.hash.update(text);
        }
    }

    pub(super) fn text(self, cap: usize) -> Text {
        Text { shown: shown(&self.text, cap), bytes: self.bytes, sha256: self.hash.finish() }
    }
}

/// At most so many bytes as text; a character that the cut goes through is left out.
pub(super) fn shown(text: &[u8], most: usize) -> String {
    let Some(cut) = text.get(..most).filter(|_| text.len() > most) else {
        return String::from_utf8_lossy(text).into_owned();
    };
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => {
            let whole = cut.get(..error.valid_up_to()).unwrap_or_default();
            String::from_utf8_lossy(whole).into_owned()
        }
        _ => String::from_utf8_lossy(cut).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_long_statement_is_the_same_in_parts(text in "[^\0]{0,300}", size in 1_usize..50, cap in 64_usize..100) {
            let content = [b"name\0", text.as_bytes(), b"\0\0\x01\0\0\0\x17"].concat();
            let mut long = Long::new(b'P');
            for part in content.chunks(size) {
                long.take(part, cap);
            }
            prop_assert_eq!(&long.name, b"name");
            let (parts, whole) = (long.text(cap), Text::of(text.as_bytes(), cap));
            prop_assert_eq!((parts.bytes, parts.sha256), (whole.bytes, whole.sha256));
            prop_assert_eq!(parts.shown, whole.shown);
        }
    }
}
