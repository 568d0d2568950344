//! SQL as PostgreSQL's scanner takes it apart (`scan.l`), so that what was recorded can be told apart from what it quotes.
//!
//! What the scanners of the server and of psql, or of their versions, could take in two ways is an error here: a reader
//! sees it in the record all the same, and a script must not hold it.

mod names;
mod statements;
mod tags;

use std::borrow::Cow;

pub use names::{Change, changes};
pub use statements::{Blocks, statements};
pub use tags::{Answers, Ending, fits};

/// Why a text cannot be taken apart.
pub type Unclear = &'static str;

/// What a piece of SQL is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Blanks and ends of lines.
    Space,
    /// `-- ...` or `/* ... */`.
    Comment,
    /// A key word, or a name without quotes.
    Word,
    /// A number.
    Number,
    /// `'...'`.
    Plain,
    /// `E'...'`.
    Escaped,
    /// `N'...'`.
    National,
    /// `B'...'` or `X'...'`.
    Bits,
    /// `U&'...'`.
    Unicode,
    /// `"..."`.
    Name,
    /// `U&"..."`.
    UnicodeName,
    /// `$tag$...$tag$`.
    Dollar,
    /// `$1`.
    Parameter,
    /// `;`
    Semicolon,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `:` that is neither `::` nor `:=`.
    Colon,
    /// Anything else that may stand outside of quotes.
    Other,
}

/// A piece of SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// As it stands there.
    pub raw: &'a str,
    /// What is between the quotes, or the marks of a comment, with its escapes; of a text that goes on in another line
    /// (`'a'` end of line `'b'`) all of it, and then it is not borrowed.
    pub content: Cow<'a, str>,
}

/// Takes SQL apart.
#[derive(Debug)]
pub struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    /// Of a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { rest: text }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, Unclear>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let text = std::mem::take(&mut self.rest);
        let read = token(text).map(|(kind, length, content)| {
            let (raw, rest) = text.split_at(length);
            self.rest = rest;
            Token { kind, raw, content: content.unwrap_or(Cow::Borrowed(raw)) }
        });
        Some(read)
    }
}

/// The kind of the first token, its bytes, and what is in it.
type Read<'a> = Result<(Kind, usize, Option<Cow<'a, str>>), Unclear>;

fn token(text: &str) -> Read<'_> {
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let simple = |kind, length| Ok((kind, length, None));
    match (at(0), at(1), at(2)) {
        (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, ..) => simple(Kind::Space, run(text, is_space)),
        (b'-', b'-', _) => {
            let length = run(text, |c| !matches!(c, '\n' | '\r'));
            Ok((Kind::Comment, length, text.get(2..length).map(Cow::Borrowed)))
        }
        (b'/', b'*', _) => {
            let length = block_comment(bytes).ok_or("it ends inside a comment")?;
            Ok((Kind::Comment, length, text.get(2..length - 2).map(Cow::Borrowed)))
        }
        (b'\'', ..) => quoted(text, Kind::Plain, 1),
        (b'E' | b'e', b'\'', _) => quoted(text, Kind::Escaped, 2),
        (b'N' | b'n', b'\'', _) => quoted(text, Kind::National, 2),
        (b'B' | b'b' | b'X' | b'x', b'\'', _) => bits(text),
        (b'U' | b'u', b'&', b'\'') => quoted(text, Kind::Unicode, 3),
        (b'"', ..) => name(text, Kind::Name, 1),
        (b'U' | b'u', b'&', b'"') => name(text, Kind::UnicodeName, 3),
        (b'$', b'0'..=b'9', _) => {
            let length = 1 + run(text.get(1..).unwrap_or_default(), |c| c.is_ascii_digit());
            apart(text, length, "a parameter runs into what follows it")?;
            simple(Kind::Parameter, length)
        }
        (b'$', ..) => dollar(text),
        (b'0'..=b'9', ..) | (b'.', b'0'..=b'9', _) => number(text),
        (b'A'..=b'Z' | b'a'..=b'z' | b'_' | 0x80.., ..) => simple(Kind::Word, run(text, is_word)),
        (b';', ..) => simple(Kind::Semicolon, 1),
        (b'(', ..) => simple(Kind::Open, 1),
        (b')', ..) => simple(Kind::Close, 1),
        (b':', b':' | b'=', _) => simple(Kind::Other, 2),
        (b':', ..) => simple(Kind::Colon, 1),
        (b'\\', ..) => Err("it has a backslash outside of quotes"),
        (b'!'..=b'~', ..) if !matches!(at(0), b'{' | b'}') => simple(Kind::Other, 1),
        _ => Err("it has a character outside of quotes that SQL does not have"),
    }
}

fn run(text: &str, is_in: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_in(c)).unwrap_or(text.len())
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii()
}

/// Versions differ in what they make of a number with letters behind it.
fn apart(text: &str, length: usize, otherwise: Unclear) -> Result<(), Unclear> {
    let next = text.get(length..).and_then(|rest| rest.chars().next());
    match next {
        Some(c) if is_word(c) || matches!(c, '\'' | '"') => Err(otherwise),
        _ => Ok(()),
    }
}

fn number(text: &str) -> Read<'_> {
    const JUNK: Unclear = "a number runs into what follows it";
    let mut length = run(text, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    let said = text.get(..length).unwrap_or_default().to_ascii_lowercase();
    let other_base = ["0x", "0o", "0b"].iter().any(|base| said.starts_with(base));
    let letters = said.get(if other_base { 2 } else { 0 }..).unwrap_or_default();
    let letters: String = letters.chars().filter(char::is_ascii_alphabetic).collect();
    if other_base {
        if !letters.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(JUNK);
        }
    } else if !matches!(letters.as_str(), "" | "e") {
        return Err(JUNK);
    } else if said.ends_with('e') {
        let rest = text.get(length..).unwrap_or_default();
        let digits = rest.strip_prefix(['+', '-']).map_or(0, |rest| run(rest, |c| c.is_ascii_digit()));
        if digits == 0 {
            return Err(JUNK);
        }
        length += 1 + digits;
    }
    apart(text, length, JUNK)?;
    Ok((Kind::Number, length, None))
}

/// Bytes of a comment; they nest.
fn block_comment(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)) {
            (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
            (b'*', Some(b'/')) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

/// A text between single quotes; its opening takes so many bytes.
fn quoted(text: &str, kind: Kind, opening: usize) -> Read<'_> {
    const OPEN: Unclear = "it ends inside quotes";
    let bytes = text.as_bytes();
    let (mut from, mut at) = (opening, opening);
    let mut before: Option<String> = None;
    loop {
        match bytes.get(at).ok_or(OPEN)? {
            b'\\' if kind == Kind::Escaped => at += 2,
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => {
                let part = text.get(from..at).ok_or(OPEN)?;
                match (goes_on(bytes, at + 1), &mut before) {
                    (None, None) => return Ok((kind, at + 1, Some(Cow::Borrowed(part)))),
                    (None, Some(before)) => {
                        let whole = std::mem::take(before) + part;
                        return Ok((kind, at + 1, Some(Cow::Owned(whole))));
                    }
                    (Some(more), _) => {
                        before.get_or_insert_default().push_str(part);
                        (from, at) = (more, more);
                    }
                }
            }
            _ => at += 1,
        }
    }
}

/// Where the text goes on behind an end of a line (`quotecontinue`).
fn goes_on(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut newline = false;
    loop {
        match bytes.get(at)? {
            b'\n' | b'\r' => (newline, at) = (true, at + 1),
            b' ' | b'\t' | 0x0b | 0x0c => at += 1,
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at += bytes.get(at..)?.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
            }
            b'\'' if newline => return Some(at + 1),
            _ => return None,
        }
    }
}

/// In a string of bits two quotes are not one: a text begins with the second, whose end a setting decides.
fn bits(text: &str) -> Read<'_> {
    let read = quoted(text, Kind::Bits, 2)?;
    match &read {
        (_, _, Some(digits)) if digits.chars().all(|c| c.is_ascii_hexdigit()) => Ok(read),
        _ => Err("a string of bits has other characters than digits"),
    }
}

fn name(text: &str, kind: Kind, opening: usize) -> Read<'_> {
    const OPEN: Unclear = "it ends inside quotes";
    let bytes = text.as_bytes();
    let mut at = opening;
    loop {
        match (bytes.get(at).ok_or(OPEN)?, bytes.get(at + 1)) {
            (b'"', Some(b'"')) => at += 2,
            (b'"', _) => return Ok((kind, at + 1, text.get(opening..at).map(Cow::Borrowed))),
            _ => at += 1,
        }
    }
}

fn dollar(text: &str) -> Read<'_> {
    let rest = text.get(1..).unwrap_or_default();
    let tag = run(rest, |c| is_word(c) && c != '$');
    let opening = 2 + tag;
    if !rest.get(tag..).is_some_and(|rest| rest.starts_with('$')) {
        return Err("it has a dollar sign that begins nothing");
    }
    let delimiter = text.get(..opening).unwrap_or_default();
    let inside = text.get(opening..).unwrap_or_default();
    let length = inside.find(delimiter).ok_or("it ends inside quotes")?;
    let content = inside.get(..length).map(Cow::Borrowed);
    Ok((Kind::Dollar, opening + length + opening, content))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, String)> {
        let tokens = Tokens::new(text).map(|token| token.unwrap_or_else(|why| panic!("{text:?}: {why}")));
        tokens
            .filter(|token| token.kind != Kind::Space)
            .map(|token| (token.kind, token.content.into_owned()))
            .collect()
    }

    #[test]
    fn texts_are_taken_apart_as_the_server_does() {
        for (text, expected) in [
            ("'it''s'", vec![(Kind::Plain, "it''s")]),
            (r"'a\' x", vec![(Kind::Plain, r"a\"), (Kind::Word, "x")]),
            (r"E'a\'b' x", vec![(Kind::Escaped, r"a\'b"), (Kind::Word, "x")]),
            ("'a'  -- c\n 'b'", vec![(Kind::Plain, "ab")]),
            ("e'a'\r\n'b\\'c'", vec![(Kind::Escaped, r"ab\'c")]),
            ("'a' 'b'", vec![(Kind::Plain, "a"), (Kind::Plain, "b")]),
            ("$$a'$b$$", vec![(Kind::Dollar, "a'$b")]),
            ("$a$x$$y$ab$z$a$", vec![(Kind::Dollar, "x$$y$ab$z")]),
            ("a$$b", vec![(Kind::Word, "a$$b")]),
            ("$12", vec![(Kind::Parameter, "$12")]),
            ("/* a /* b */ ' */1", vec![(Kind::Comment, " a /* b */ ' "), (Kind::Number, "1")]),
            ("--a\r'b'", vec![(Kind::Comment, "a"), (Kind::Plain, "b")]),
            ("+--a", vec![(Kind::Other, "+"), (Kind::Comment, "a")]),
            (r#"u&"d\0061" U&'x'"#, vec![(Kind::UnicodeName, r"d\0061"), (Kind::Unicode, "x")]),
            ("b'01' X'f'\n'0'", vec![(Kind::Bits, "01"), (Kind::Bits, "f0")]),
            ("ne'a'", vec![(Kind::Word, "ne"), (Kind::Plain, "a")]),
            ("\"a\"\"b\"", vec![(Kind::Name, "a\"\"b")]),
            (
                "a::b:c:=1.5e-3",
                vec![
                    (Kind::Word, "a"),
                    (Kind::Other, "::"),
                    (Kind::Word, "b"),
                    (Kind::Colon, ":"),
                    (Kind::Word, "c"),
                    (Kind::Other, ":="),
                    (Kind::Number, "1.5e-3"),
                ],
            ),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(kind, text)| (kind, text.to_owned())).collect();
            assert_eq!(kinds(text), expected, "{text:?}");
        }
        for unclear in [
            "'a", "E'a\\'", "/* /* */", "\"a", "$$a$", "a \\! b", "1e'a'", "1x", "$1a", "$1'a'", "1$$a$$",
            "{", "\u{1}", "$ ", "b'1''0'", "x'g'",
        ] {
            assert!(Tokens::new(unclear).any(|token| token.is_err()), "{unclear:?}");
        }
    }

    proptest! {
        #[test]
        fn tokens_are_the_text(text in "[-a-zE$'\"/*\\\\;: \n\r(){}1.&uU\u{e9}\u{0}]{0,60}") {
            let mut all = String::new();
            let mut whole = true;
            for token in Tokens::new(&text) {
                match token {
                    Ok(token) => all.push_str(token.raw),
                    Err(_) => whole = false,
                }
            }
            prop_assert!(text.starts_with(&all));
            prop_assert_eq!(whole, all.len() == text.len());
            let _ = statements(&text);
        }
    }
}
