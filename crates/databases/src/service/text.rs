//! Statements as they are put on record: whole, or without their comments, or their beginning and end; and the hash of the whole.

use data_encoding::{BASE64, HEXLOWER};
use sallyport_audit::recording::database;
use sallyport_sal::hash::{Sha256, sha256};

use super::squeeze::Squeeze;
use crate::postgres::encoding::Encoding;

/// Such a beginning, where memory is short.
const BEGINNING_BYTES: usize = 128;
/// Longest name or reason that is on record.
pub(super) const MOST_NAME_BYTES: usize = 256;
/// Longest value of a parameter that is on record.
pub(super) const MOST_VALUE_BYTES: usize = 1024;
/// Of what does not fit, so much is the end of the statement (one in so many), and the rest its beginning.
const END_SHARE: usize = 3;

/// A statement that was said. Many wait at once, and most are as short as they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    /// What is on record of it.
    pub(super) shown: String,
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
    /// How `shown` differs from what was said.
    otherwise: Option<Box<Otherwise>>,
}

/// How what is on record differs from what was said.
#[derive(Debug, Clone, Default)]
pub(super) struct Otherwise {
    /// It is not all there, character for character.
    inexact: bool,
    /// The server may have read it in another encoding.
    pub(super) doubtful: bool,
    /// Bytes of comments and blanks that were dropped.
    pub(super) dropped: u64,
    /// Bytes that were left out in the middle.
    pub(super) left_out: u64,
    /// What it was in, where it was read from another encoding than UTF-8 without a loss.
    pub(super) encoding: Option<&'static str>,
    /// The bytes that are shown, where they are not those of `shown`: one piece, or two where the middle is left out.
    pub(super) base64: Vec<String>,
}

impl Otherwise {
    pub(super) fn is_cut(&self) -> bool {
        self.dropped > 0 || self.left_out > 0
    }
}

impl Text {
    pub(super) fn of(text: &[u8], cap: usize, encoding: Encoding) -> Self {
        if text.len() <= cap {
            return Self::whole(text, sha256(text), encoding);
        }
        let mut collected = Collected::default();
        collected.take(text, cap);
        collected.text(cap, encoding)
    }

    fn whole(text: &[u8], sha256: [u8; 32], encoding: Encoding) -> Self {
        let (shown, exact) = encoding.read(text);
        let otherwise = (!exact || shown.as_bytes() != text).then(|| {
            Box::new(Otherwise {
                inexact: !exact,
                encoding: encoding.name().filter(|_| exact),
                base64: vec![BASE64.encode(text)],
                ..Otherwise::default()
            })
        });
        Self { bytes: text.len() as u64, sha256, otherwise, shown: shown.into_owned() }
    }

    /// The server may read it in another encoding by then.
    pub(super) fn doubted(&mut self) {
        let foreign = !self.shown.is_ascii() || self.otherwise().is_some_and(|how| !how.base64.is_empty());
        if foreign {
            self.otherwise.get_or_insert_default().doubtful = true;
        }
    }

    /// All of it, where that is on record.
    pub(super) fn exact(&self) -> Option<&str> {
        let is_exact = |how: &Otherwise| !how.inexact && !how.doubtful && !how.is_cut();
        let exact = self.otherwise.as_deref().is_none_or(is_exact);
        exact.then_some(self.shown.as_str())
    }

    /// About how much memory it takes.
    pub(super) fn held_bytes(&self) -> usize {
        let bytes = self.otherwise().map_or(0, |how| how.base64.iter().map(String::len).sum::<usize>() + 128);
        size_of::<Self>() + self.shown.len() + bytes
    }

    pub(super) fn otherwise(&self) -> Option<&Otherwise> {
        self.otherwise.as_deref()
    }

    pub(super) fn recorded(&self) -> database::Statement {
        let plain = database::Statement { text: self.shown.clone(), ..database::Statement::default() };
        let Some(otherwise) = &self.otherwise else { return plain };
        let cut = otherwise.is_cut();
        database::Statement {
            bytes: cut.then_some(self.bytes),
            sha256: cut.then(|| HEXLOWER.encode(&self.sha256)),
            dropped: Some(otherwise.dropped).filter(|dropped| *dropped > 0),
            left_out: Some(otherwise.left_out).filter(|left_out| *left_out > 0),
            encoding: otherwise.encoding.map(str::to_owned),
            base64: otherwise.base64.clone(),
            doubtful: otherwise.doubtful,
            ..plain
        }
    }

    /// The same with less of it.
    pub(super) fn beginning(&self) -> Self {
        let shown = Encoding::Utf8.beginning(self.shown.as_bytes(), BEGINNING_BYTES);
        let less = (self.shown.len() - shown.len()) as u64;
        if less == 0 {
            return self.clone();
        }
        let mut otherwise = self.otherwise.clone().unwrap_or_default();
        (otherwise.left_out, otherwise.base64) = (otherwise.left_out + less, Vec::new());
        Self { shown, otherwise: Some(otherwise), ..*self }
    }
}

/// What is kept of a long statement while it comes.
#[derive(Debug)]
struct Collected {
    squeeze: Squeeze,
    /// The beginning as it came, in which a short one is whole.
    raw: Vec<u8>,
    /// The beginning without comments.
    head: Vec<u8>,
    /// What comes behind that: the last of it, from its oldest byte at `oldest` on.
    tail: Vec<u8>,
    oldest: usize,
    /// Bytes without comments.
    left: u64,
    bytes: u64,
    hash: Sha256,
}

impl Default for Collected {
    fn default() -> Self {
        let (raw, head, tail) = (Vec::new(), Vec::new(), Vec::new());
        let (squeeze, hash) = (Squeeze::default(), Sha256::new());
        Self { squeeze, raw, head, tail, oldest: 0, left: 0, bytes: 0, hash }
    }
}

impl Collected {
    fn take(&mut self, text: &[u8], cap: usize) {
        self.hash.update(text);
        self.bytes += text.len() as u64;
        let room = (cap + 1).saturating_sub(self.raw.len()).min(text.len());
        self.raw.extend_from_slice(text.get(..room).unwrap_or_default());
        let Self { squeeze, head, tail, oldest, left, .. } = self;
        squeeze.take(text, |byte| keep(byte, cap, head, tail, oldest, left));
    }

    fn text(self, cap: usize, encoding: Encoding) -> Text {
        let Self { mut squeeze, raw, mut head, mut tail, mut oldest, mut left, bytes, hash } = self;
        let sha256 = hash.finish();
        if bytes <= cap as u64 {
            return Text::whole(&raw, sha256, encoding);
        }
        squeeze.end(|byte| keep(byte, cap, &mut head, &mut tail, &mut oldest, &mut left));
        tail.rotate_left(oldest);
        let dropped = bytes - left;
        if left <= cap as u64 {
            head.extend_from_slice(&tail);
            let text = Text::whole(&head, sha256, encoding);
            let otherwise =
                Otherwise { dropped, ..text.otherwise.map(|otherwise| *otherwise).unwrap_or_default() };
            return Text { bytes, otherwise: Some(Box::new(otherwise)), ..text };
        }
        let most = cap / END_SHARE;
        let end = tail.get(tail.len().saturating_sub(most)..).unwrap_or_default();
        let (head, end) = (encoding.up_to_cut(&head), encoding.from_cut(end));
        let ((begin, one), (ends, other)) = (encoding.read(head), encoding.read(end));
        let left_out = left - (head.len() + end.len()) as u64;
        let mut otherwise = Otherwise { dropped, left_out, ..Otherwise::default() };
        if !(one && other) || begin.as_bytes() != head || ends.as_bytes() != end {
            otherwise.base64 = vec![BASE64.encode(head), BASE64.encode(end)];
            otherwise.encoding = encoding.name().filter(|_| one && other);
        }
        let shown = format!("{begin} [... {left_out} bytes left out ...] {ends}");
        Text { shown, bytes, sha256, otherwise: Some(Box::new(otherwise)) }
    }
}

/// A byte that is no comment's: of the beginning, or of the end so far.
fn keep(byte: u8, cap: usize, head: &mut Vec<u8>, tail: &mut Vec<u8>, oldest: &mut usize, left: &mut u64) {
    *left += 1;
    let most = cap / END_SHARE;
    if head.len() < cap - most {
        head.push(byte);
    } else if tail.len() < most {
        tail.push(byte);
    } else if let Some(place) = tail.get_mut(*oldest) {
        *place = byte;
        *oldest = (*oldest + 1) % most;
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
    /// The beginning of what is no statement.
    pub(super) text: Vec<u8>,
    statement: Collected,
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
            statement: Collected::default(),
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
        if matches!(self.kind, b'Q' | b'P') {
            self.statement.take(text, cap);
        } else {
            let room = MOST_VALUE_BYTES.saturating_sub(self.text.len()).min(text.len());
            self.text.extend_from_slice(text.get(..room).unwrap_or_default());
        }
    }

    pub(super) fn text(self, cap: usize, encoding: Encoding) -> Text {
        self.statement.text(cap, encoding)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn how(text: &Text) -> Otherwise {
        text.otherwise().cloned().unwrap_or_default()
    }

    fn of(text: &str) -> Text {
        Text::of(text.as_bytes(), 120, Encoding::Utf8)
    }

    #[test]
    fn a_long_comment_hides_nothing() {
        let long = "x".repeat(5000);
        let text = of(&format!("/* {long} */ drop table a; -- {long}\ndrop table b /* {long}"));
        assert_eq!(text.shown, " drop table a; \ndrop table b ");
        assert!(how(&text).dropped > 15_000 && how(&text).left_out == 0);
        let text = of(&format!("select '{long}'; drop table a"));
        assert!(
            text.shown.starts_with("select 'xxx") && text.shown.ends_with("xx'; drop table a"),
            "{}",
            text.shown
        );
        assert_eq!(how(&text).left_out, 5000 + 23 - 120);
        assert!(text.shown.contains(&format!(" [... {} bytes left out ...] ", how(&text).left_out)));
        assert_eq!(text.sha256, sha256(format!("select '{long}'; drop table a").as_bytes()));
        // What fits stays as it is.
        let text = of("select 1 -- it");
        assert_eq!((text.exact(), text.otherwise().is_none()), (Some("select 1 -- it"), true));
        // By a setting that is not known here this is no comment.
        let text = of(&format!("select 'a\\' /* '; drop table a; -- {}", "*/ ".repeat(40)));
        assert!(text.shown.contains("drop table a"), "{}", text.shown);
    }

    #[test]
    fn text_that_is_not_utf_8_is_there_as_bytes_too() {
        let text = Text::of(b"select 'caf\xe9'", 100, Encoding::of("LATIN1"));
        assert_eq!((text.exact(), how(&text).encoding), (Some("select 'caf\u{e9}'"), Some("LATIN1")));
        assert_eq!(how(&text).base64, [BASE64.encode(b"select 'caf\xe9'")]);
        let text = Text::of(b"select 'caf\xe9'", 100, Encoding::Utf8);
        assert_eq!((text.shown.as_str(), text.exact()), ("select 'caf\u{fffd}'", None));
        assert_eq!((how(&text).base64.len(), how(&text).encoding), (1, None));
        let long = [&b"select '"[..], &[0xe9; 500], b"'"].concat();
        let text = Text::of(&long, 100, Encoding::of("LATIN1"));
        assert!(text.shown.ends_with("\u{e9}'") && how(&text).base64.len() == 2, "{text:?}");
        let long = format!("select '{}'", "\u{e9}".repeat(500));
        for cap in 90..110 {
            let text = Text::of(long.as_bytes(), cap, Encoding::Utf8);
            assert!(how(&text).base64.is_empty() && !text.shown.contains('\u{fffd}'), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_long_statement_is_the_same_in_parts(text in "[^\0]{0,300}", size in 1_usize..50, cap in 64_usize..100) {
            let content = [b"name\0", text.as_bytes(), b"\0\0\x01\0\0\0\x17"].concat();
            let mut long = Long::new(b'P');
            for part in content.chunks(size) {
                long.take(part, cap);
            }
            prop_assert_eq!(&long.name, b"name");
            let encoding = Encoding::Utf8;
            let (parts, whole) = (long.text(cap, encoding), Text::of(text.as_bytes(), cap, encoding));
            prop_assert_eq!((parts.bytes, parts.sha256), (whole.bytes, whole.sha256));
            let (how_parts, how_whole) = (how(&parts), how(&whole));
            prop_assert_eq!(how_parts.left_out, how_whole.left_out);
            prop_assert_eq!(how_parts.dropped, how_whole.dropped);
            prop_assert_eq!(parts.shown, whole.shown);
        }
    }
}
