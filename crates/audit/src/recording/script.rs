//! Statements as part of a script that psql may be fed with, whatever they were.
//!
//! psql has a scanner of its own: it runs commands behind a backslash, puts variables in behind a colon, and takes a text apart by
//! settings of the server and of the person (`standard_conforming_strings`, `client_encoding`), which statements change. So what
//! is live in a script is written anew, in ASCII, in such a way that no setting makes a difference: texts between quotes that hold
//! a backslash or anything but plain characters are written as `E'...'`.

use super::database::Parameter;
use super::sql::{Blocks, Kind, Token, Tokens, Unclear, statements};
use std::borrow::Cow;

/// A longer value of a parameter may have been cut.
const WHOLE_VALUE_BYTES: usize = 1020;

/// What is live.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Statements with their semicolons, and an end of the line.
    pub(super) sql: String,
    /// How many there are.
    pub(super) statements: usize,
    /// Something is written otherwise than it was.
    pub(super) anew: bool,
}

/// Writes what a client said, with its parameters put in, where there are any.
///
/// # Errors
/// Why it cannot be live.
pub(super) fn live(text: &str, count: u16, values: Option<&[Parameter]>) -> Result<Script, Unclear> {
    let values = match (count, values) {
        (0, _) => None,
        (_, None) => return Err("its parameters are not on record"),
        (count, Some(values)) if values.len() == usize::from(count) => Some(values),
        _ => return Err("not all of its parameters are on record"),
    };
    // What is unclear about its statements is so for each of them.
    statements(text)?;
    let mut writer = Writer { values, ..Writer::default() };
    for token in Tokens::new(text) {
        writer.token(&token?)?;
    }
    writer.end()
}

#[derive(Default)]
struct Writer<'a> {
    out: String,
    values: Option<&'a [Parameter]>,
    blocks: Blocks,
    statements: usize,
    /// The statement has begun.
    begun: bool,
    anew: bool,
    /// The last word was `FROM`, and nothing but blanks and comments has followed.
    from: bool,
    /// A comment was the last but for blanks.
    commented: bool,
    colon: bool,
}

impl Writer<'_> {
    fn token(&mut self, token: &Token<'_>) -> Result<(), Unclear> {
        let colon = std::mem::take(&mut self.colon);
        match token.kind {
            Kind::Space => {
                self.colon = false;
                self.space(token.raw);
                return Ok(());
            }
            Kind::Comment => {
                self.comment(&token.content);
                return Ok(());
            }
            _ => {}
        }
        if colon && !matches!(token.kind, Kind::Semicolon | Kind::Close) {
            // `:name`, `:'name'`, `:"name"` and `:{?name}` would be variables of psql's.
            self.out.push(' ');
        }
        self.commented = false;
        let from = std::mem::take(&mut self.from);
        match token.kind {
            Kind::Word => {
                if from && ["stdin", "stdout"].iter().any(|word| token.raw.eq_ignore_ascii_case(word)) {
                    return Err("what it copies in is not on record");
                }
                self.from = token.raw.eq_ignore_ascii_case("from");
                if token.raw.is_ascii() {
                    self.blocks.take(token);
                    self.out.push_str(token.raw);
                } else {
                    self.unicode_name(&token.raw.to_ascii_lowercase())?;
                }
            }
            Kind::Plain => self.plain(token, '\'')?,
            Kind::Name => {
                if is_plain(&token.content) {
                    self.out.push_str(token.raw);
                } else {
                    self.unicode_name(&token.content)?;
                }
            }
            Kind::Escaped => self.escaped(token)?,
            Kind::Dollar => {
                if is_plain(token.raw) {
                    self.out.push_str(token.raw);
                } else {
                    self.text(token.content.chars(), true)?;
                }
            }
            Kind::National | Kind::Bits | Kind::Unicode | Kind::UnicodeName => self.as_it_is(token)?,
            Kind::Parameter => self.parameter(token.raw)?,
            Kind::Semicolon if self.blocks.is_outside() => {
                if std::mem::take(&mut self.begun) {
                    self.statements += 1;
                    self.out.push(';');
                }
                self.blocks = Blocks::default();
                return Ok(());
            }
            Kind::Open | Kind::Close => {
                self.blocks.take(token);
                self.out.push_str(token.raw);
            }
            Kind::Colon => {
                self.colon = true;
                self.out.push(':');
            }
            Kind::Number | Kind::Semicolon | Kind::Other => self.out.push_str(token.raw),
            Kind::Space | Kind::Comment => {}
        }
        self.begun = true;
        Ok(())
    }

    fn space(&mut self, raw: &str) {
        let mut characters = raw.chars().peekable();
        while let Some(c) = characters.next() {
            match c {
                '\r' if characters.peek() == Some(&'\n') => {}
                // It ends a comment, too.
                '\r' | '\n' => self.out.push('\n'),
                '\t' => self.out.push('\t'),
                _ => self.out.push(' '),
            }
        }
    }

    /// On lines of its own, which nothing leads out of.
    fn comment(&mut self, content: &str) {
        self.commented = true;
        for line in super::transcript::words::lines(content).lines() {
            self.out.push_str(" --");
            self.out.push_str(line);
            self.out.push('\n');
        }
    }

    fn plain(&mut self, token: &Token<'_>, quote: char) -> Result<(), Unclear> {
        let content = &token.content;
        if is_plain(content) {
            if matches!(content, Cow::Owned(_)) {
                self.anew = true;
            }
            self.out.push(quote);
            self.out.push_str(content);
            self.out.push(quote);
            return Ok(());
        }
        // Quotes in it are doubled already.
        self.text(content.chars(), false)
    }

    /// A text as `E'...'`.
    fn text(&mut self, text: impl Iterator<Item = char>, double: bool) -> Result<(), Unclear> {
        self.anew = true;
        self.apart();
        self.out.push_str("E'");
        for c in text {
            match c {
                '\'' if double => self.out.push_str("''"),
                '\'' => self.out.push('\''),
                c => escape(&mut self.out, c)?,
            }
        }
        self.out.push('\'');
        Ok(())
    }

    /// An `E'...'`.
    fn escaped(&mut self, token: &Token<'_>) -> Result<(), Unclear> {
        let mut written = String::from("E'");
        let mut characters = token.content.chars();
        while let Some(c) = characters.next() {
            match c {
                '\\' => match characters.next().ok_or("it ends inside quotes")? {
                    '\'' => written.push_str("''"),
                    c @ ' '..='~' => written.extend(['\\', c]),
                    c => escape(&mut written, c)?,
                },
                '\'' => written.push('\''),
                c => escape(&mut written, c)?,
            }
        }
        written.push('\'');
        self.anew |= written.get(1..) != token.raw.get(1..);
        self.apart();
        self.out.push_str(&written);
        Ok(())
    }

    fn unicode_name(&mut self, content: &str) -> Result<(), Unclear> {
        self.anew = true;
        self.apart();
        self.out.push_str("U&\"");
        for c in content.chars() {
            match c {
                '\0' => return Err(NUL),
                '\\' => self.out.push_str("\\\\"),
                ' '..='~' => self.out.push(c),
                c if u32::from(c) <= 0xffff => self.out.push_str(&format!("\\{:04x}", u32::from(c))),
                c => self.out.push_str(&format!("\\+{:06x}", u32::from(c))),
            }
        }
        self.out.push('"');
        Ok(())
    }

    /// Texts of other kinds, which have no form for other characters.
    fn as_it_is(&mut self, token: &Token<'_>) -> Result<(), Unclear> {
        if !is_plain(token.raw) || matches!(token.content, Cow::Owned(_)) {
            return Err("it has a text whose form holds plain characters alone");
        }
        self.out.push_str(token.raw);
        Ok(())
    }

    fn parameter(&mut self, raw: &str) -> Result<(), Unclear> {
        let Some(values) = self.values else {
            self.out.push_str(raw);
            return Ok(());
        };
        let number = raw.get(1..).and_then(|digits| digits.parse::<usize>().ok());
        let value = number.and_then(|number| values.get(number.checked_sub(1)?));
        self.anew = true;
        match value {
            Some(Parameter::Null) => self.out.push_str(" NULL "),
            Some(Parameter::Text(text)) if text.len() < WHOLE_VALUE_BYTES => {
                self.out.push(' ');
                self.text(text.chars(), true)?;
                self.out.push(' ');
            }
            Some(Parameter::Text(_)) => return Err("a parameter may be longer than what is on record"),
            Some(Parameter::Binary(_)) => return Err("a parameter is binary"),
            None => return Err("not all of its parameters are on record"),
        }
        Ok(())
    }

    /// What comes now begins with a letter.
    fn apart(&mut self) {
        let last = self.out.chars().next_back();
        if last.is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '&')) {
            self.out.push(' ');
        }
    }

    fn end(mut self) -> Result<Script, Unclear> {
        if !self.blocks.is_outside() {
            return Err("it ends inside parentheses or a block");
        }
        if self.begun {
            self.statements += 1;
            if !self.commented {
                self.out.truncate(self.out.trim_end().len());
            }
            self.out.push(';');
        }
        self.out.truncate(self.out.trim_end().len());
        self.out.push('\n');
        Ok(Script { sql: self.out, statements: self.statements, anew: self.anew })
    }
}

const NUL: Unclear = "it has a character that no statement has";

/// Whether it can stand as it is.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| matches!(c, ' '..='~' | '\n' | '\t'))
}

/// A character in an `E'...'`.
fn escape(out: &mut String, c: char) -> Result<(), Unclear> {
    match c {
        '\0' => return Err(NUL),
        '\\' => out.push_str("\\\\"),
        ' '..='~' | '\n' | '\t' => out.push(c),
        '\r' => out.push_str("\\r"),
        c if u32::from(c) <= 0xffff => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        live(text, 0, None).unwrap_or_else(|why| panic!("{text:?}: {why}")).sql
    }

    #[test]
    fn what_is_live_is_the_same_for_every_scanner() {
        for (text, expected) in [
            ("select 1", "select 1;\n"),
            ("select 1; ;select 2 ;", "select 1; select 2 ;\n"),
            ("select *\nfrom t -- all\u{1b}[2J", "select *\nfrom t  -- all\u{fffd}[2J\n;\n"),
            ("select 1 -- x\rfrom t", "select 1  -- x\n\nfrom t;\n"),
            ("select /* a\n\\! b */ 1", "select  -- a\n --\\! b \n 1;\n"),
            ("select 'caf\u{e9}\r\n''x'", "select E'caf\\u00e9\\r\n''x';\n"),
            ("select'\u{1f600}'", "select E'\\U0001f600';\n"),
            (r"select E'a\'b\\\é'", "select E'a''b\\\\\\u00e9';\n"),
            ("select E'a'\n'b\\'c'", "select E'ab''c';\n"),
            ("select 'a'\n'b'", "select 'ab';\n"),
            ("select $$a'b\\\u{e9}$$", "select E'a''b\\\\\\u00e9';\n"),
            ("select $$ \\! x $$", "select $$ \\! x $$;\n"),
            (
                "select \"\u{c9}\\\", \u{c9}T",
                "select U&\"\\00c9\\\\\", U&\"\u{c9}t\";\n".replace('\u{c9}', "\\00c9").as_str(),
            ),
            ("select a[1:n], a[:n], b::int, f(x := 1)", "select a[1: n], a[: n], b::int, f(x := 1);\n"),
            ("select :'HOME', :\"x\", : y", "select : 'HOME', : \"x\", : y;\n"),
        ] {
            assert_eq!(written(text).trim_end(), expected.trim_end(), "{text:?}");
        }
        for text in [
            "select 1 \\! touch x",
            "\\! touch x",
            "select 1\n\\copy t from program 'x'",
            "select 'a",
            r"select 'a\', 'b'",
            "select 1 /* a",
            "select (1",
            "create function f() begin atomic select 1;",
            "copy t from stdin",
            "COPY t (a) FROM /* x */ StdOut with csv",
            "select n'a\\'",
            "select u&'\u{e9}'",
            "select 'a\u{0}'",
        ] {
            assert!(live(text, 0, None).is_err(), "{text:?}");
        }
        assert_eq!(live("-- nothing", 0, None).unwrap().statements, 0);
        assert_eq!(live("copy t to stdout; select 'from', stdin", 0, None).unwrap().statements, 2);
    }

    #[test]
    fn parameters_are_put_in_where_all_of_them_are_known() {
        let text = |text: &str| Parameter::Text(text.to_owned());
        let values = [text("it's \\! \u{e9}"), Parameter::Null];
        assert_eq!(
            live("select $1,$2::int", 2, Some(&values)).unwrap().sql,
            "select  E'it''s \\\\! \\u00e9' , NULL ::int;\n"
        );
        assert_eq!(live("prepare x as select $1", 0, None).unwrap().sql, "prepare x as select $1;\n");
        assert!(live("select $1", 1, None).is_err());
        assert!(live("select $3", 2, Some(&values)).is_err());
        assert!(live("select $1", 2, Some(&values[..1])).is_err());
        assert!(live("select $1", 1, Some(&[Parameter::Binary("00".to_owned())])).is_err());
        assert!(live("select $1", 1, Some(&[text(&"x".repeat(2000))])).is_err());
    }

    proptest::proptest! {
        #[test]
        fn what_is_live_is_written_the_same_again(text in "[-a-zE$'\"/*\\\\;: \n\r(){}1.&uU\u{e9}\u{0}]{0,60}") {
            if let Ok(first) = live(&text, 0, None) {
                let code: Vec<_> = Tokens::new(&first.sql).map(Result::unwrap).collect();
                let code: String = code.iter().filter(|t| t.kind != Kind::Comment).map(|t| t.raw).collect();
                proptest::prop_assert!(code.is_ascii(), "{:?}", first.sql);
                let again = live(&first.sql, 0, None).unwrap();
                proptest::prop_assert_eq!(again.statements, first.statements);
                proptest::prop_assert!(!again.anew, "{:?} {:?}", first.sql, again.sql);
            }
        }
    }
}
