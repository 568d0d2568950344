//! SQL as PostgreSQL's scanner takes it apart (`scan.l`), so that what was recorded can be told apart from what it quotes.
//!
//! What the scanners of the server and of psql, or of their versions, could take in two ways is an error here: a reader
//! sees it in the record all the same, and a script must not hold it.

use std::borrow::Cow;

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
        (b'B' | b'b' | b'X' | b'x', b'\'', _) => quoted(text, Kind::Bits, 2),
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

/// The statements of a text: what stands between semicolons, without what is empty, each with its tokens but for blanks and
/// comments.
///
/// # Errors
/// What is unclear about it.
pub fn statements(text: &str) -> Result<Vec<Vec<Token<'_>>>, Unclear> {
    let (mut all, mut one, mut blocks) = (Vec::new(), Vec::new(), Blocks::default());
    for token in Tokens::new(text) {
        let token = token?;
        blocks.take(&token);
        match token.kind {
            Kind::Space | Kind::Comment => {}
            Kind::Semicolon if blocks.is_outside() => {
                if !one.is_empty() {
                    all.push(std::mem::take(&mut one));
                }
                blocks = Blocks::default();
            }
            _ => one.push(token),
        }
    }
    if !one.is_empty() {
        all.push(one);
    }
    if blocks.is_outside() { Ok(all) } else { Err("it ends inside parentheses or a block") }
}

/// Where a semicolon ends a statement, as psql finds it: not between parentheses, nor in the body of a function
/// (`CREATE FUNCTION ... BEGIN ATOMIC ... END`).
#[derive(Debug, Default)]
pub struct Blocks {
    parentheses: u32,
    begun: u32,
    words: usize,
    /// The first letters of the first words, as far as they are those of `CREATE OR REPLACE FUNCTION` or `PROCEDURE`.
    first: [u8; 4],
}

impl Blocks {
    /// The next token of a statement.
    pub fn take(&mut self, token: &Token<'_>) {
        match token.kind {
            Kind::Open => self.parentheses += 1,
            Kind::Close => self.parentheses = self.parentheses.saturating_sub(1),
            Kind::Word if token.raw.is_ascii() => self.word(&token.raw.to_ascii_lowercase()),
            _ => {}
        }
    }

    fn word(&mut self, word: &str) {
        if matches!(word, "create" | "function" | "procedure" | "or" | "replace")
            && let (Some(place), Some(letter)) = (self.first.get_mut(self.words), word.bytes().next())
        {
            *place = letter;
        }
        self.words += 1;
        let has_body = matches!(self.first, [b'c', b'f' | b'p', ..] | [b'c', b'o', b'r', b'f' | b'p']);
        if has_body && self.parentheses == 0 {
            match word {
                "begin" => self.begun += 1,
                "case" if self.begun > 0 => self.begun += 1,
                "end" => self.begun = self.begun.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Whether a semicolon here ends the statement.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        self.parentheses == 0 && self.begun == 0
    }
}

/// What a statement has changed about the statements and portals that messages of the protocol name, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `PREPARE`: this name has this statement.
    Prepared {
        /// Without quotes, as the server has it.
        name: Vec<u8>,
        /// From behind `AS`.
        text: String,
    },
    /// `DEALLOCATE` of one.
    Deallocated(Vec<u8>),
    /// `DEALLOCATE ALL`.
    DeallocatedAll,
    /// `DISCARD ALL`: portals, too.
    Discarded,
    /// `DECLARE` or `CLOSE` of a cursor: a portal of this name is another one now, or gone.
    Portal(Vec<u8>),
    /// `CLOSE ALL`.
    PortalsAll,
    /// One of these, of which the text that says what it was about is not known.
    Unknown,
}

/// Longest name of a statement or portal that the server tells apart (`NAMEDATALEN` less one).
const NAME_BYTES: usize = 63;

impl Change {
    /// Whether the server's tag of a result is that of such a statement.
    #[must_use]
    pub fn is_told_by(tag: &str) -> bool {
        matches!(
            tag,
            "PREPARE"
                | "DEALLOCATE"
                | "DEALLOCATE ALL"
                | "DISCARD ALL"
                | "DECLARE CURSOR"
                | "CLOSE CURSOR"
                | "CLOSE CURSOR ALL"
        )
    }

    /// By the server's tag, and the text of the message with the statement as its result of this number, counted from 0. Without
    /// a whole text only what the tag says is known.
    #[must_use]
    pub fn read(tag: &str, text: Option<&str>, result: usize) -> Self {
        match tag {
            "DEALLOCATE ALL" => return Self::DeallocatedAll,
            "DISCARD ALL" => return Self::Discarded,
            "CLOSE CURSOR ALL" => return Self::PortalsAll,
            _ => {}
        }
        let statements = text.and_then(|text| statements(text).ok());
        let tokens = statements.as_ref().and_then(|statements| statements.get(result));
        tokens.and_then(|tokens| Self::of(tag, tokens, text.unwrap_or_default())).unwrap_or(Self::Unknown)
    }

    fn of(tag: &str, tokens: &[Token<'_>], text: &str) -> Option<Self> {
        let word = |index: usize, word: &str| {
            tokens
                .get(index)
                .is_some_and(|token| token.kind == Kind::Word && token.raw.eq_ignore_ascii_case(word))
        };
        match tag {
            "DECLARE CURSOR" if word(0, "declare") => Some(Self::Portal(named(tokens.get(1)?)?)),
            "CLOSE CURSOR" if word(0, "close") => Some(Self::Portal(named(tokens.get(1)?)?)),
            "DEALLOCATE" if word(0, "deallocate") => {
                // A statement may be called `prepare`.
                let with = word(1, "prepare") && tokens.len() > 2;
                Some(Self::Deallocated(named(tokens.get(if with { 2 } else { 1 })?)?))
            }
            "PREPARE" if word(0, "prepare") => {
                let name = named(tokens.get(1)?)?;
                let mut depth = 0_usize;
                let begin = tokens.iter().skip(2).position(|token| {
                    match token.kind {
                        Kind::Open => depth += 1,
                        Kind::Close => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    depth == 0 && token.kind == Kind::Word && token.raw.eq_ignore_ascii_case("as")
                })?;
                let first = offset(text, tokens.get(begin + 3)?.raw)?;
                let last = tokens.last()?.raw;
                let end = offset(text, last)? + last.len();
                Some(Self::Prepared { name, text: text.get(first..end)?.to_owned() })
            }
            _ => None,
        }
    }
}

/// Where a part of a text is in it.
fn offset(text: &str, part: &str) -> Option<usize> {
    (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)
}

/// What the server calls what is named so.
fn named(token: &Token<'_>) -> Option<Vec<u8>> {
    let mut name = match token.kind {
        Kind::Word => token.raw.to_ascii_lowercase(),
        Kind::Name => token.content.replace("\"\"", "\""),
        _ => return None,
    };
    if name.len() > NAME_BYTES {
        let end = (0..=NAME_BYTES).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
        name.truncate(end);
    }
    Some(name.into_bytes())
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
            "{", "\u{1}", "$ ",
        ] {
            assert!(Tokens::new(unclear).any(|token| token.is_err()), "{unclear:?}");
        }
    }

    #[test]
    fn a_statement_ends_where_psql_ends_it() {
        let count = |text| statements(text).map(|statements| statements.len());
        assert_eq!(count(";; select 1; /* ; */ select ';';"), Ok(2));
        assert_eq!(count("create rule r as on insert to t do (select 1; select 2); select 3"), Ok(2));
        let body = "create or replace function f() returns int begin atomic select case when true then 1 end; select 2; end";
        assert_eq!(count(body), Ok(1));
        assert!(count("create function f() begin atomic select 1;").is_err());
        assert!(count("select (1;").is_err());
    }

    #[test]
    fn what_changes_names_is_read() {
        let name = |name: &str| name.as_bytes().to_vec();
        for (tag, text, result, change) in [
            ("DEALLOCATE", "deallocate S1", 0, Change::Deallocated(name("s1"))),
            ("DEALLOCATE", "select 1; deallocate prepare \"S\"\"1\"", 1, Change::Deallocated(name("S\"1"))),
            ("DEALLOCATE", "deallocate prepare", 0, Change::Deallocated(name("prepare"))),
            ("DEALLOCATE", "select 1; deallocate x", 0, Change::Unknown),
            ("DEALLOCATE ALL", "whatever", 7, Change::DeallocatedAll),
            (
                "PREPARE",
                "prepare p(int, text) as /* x */ select $1, 'as' ; ",
                0,
                Change::Prepared { name: name("p"), text: "select $1, 'as'".to_owned() },
            ),
            ("PREPARE", "prepare u&\"d\" as select 1", 0, Change::Unknown),
            ("DECLARE CURSOR", "declare c cursor for select 1", 0, Change::Portal(name("c"))),
            ("CLOSE CURSOR", "close c", 0, Change::Portal(name("c"))),
        ] {
            assert!(Change::is_told_by(tag));
            assert_eq!(Change::read(tag, Some(text), result), change, "{text}");
        }
        assert_eq!(Change::read("PREPARE", None, 0), Change::Unknown);
        assert!(!Change::is_told_by("SELECT 1"));
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
