//! Where statements end.

use super::{Kind, Token, Tokens, Unclear};

/// The statements of a text: what stands between semicolons, without what is empty, each with its tokens but for blanks and
/// comments. The server ends a statement at a semicolon outside of parentheses, and psql does, wherever this is no error.
///
/// # Errors
/// What is unclear about it: that its scanner, or the server's, could read otherwise by a setting that is not known here, or
/// by its version.
pub fn statements(text: &str) -> Result<Vec<Vec<Token<'_>>>, Unclear> {
    let (mut all, mut one, mut blocks) = (Vec::new(), Vec::new(), Blocks::default());
    for token in Tokens::new(text) {
        let token = token?;
        blocks.take(&token);
        match token.kind {
            Kind::Space | Kind::Comment => {}
            // Without standard_conforming_strings the text goes on behind a quote.
            Kind::Plain | Kind::National if token.content.contains('\\') => {
                return Err("a setting decides where its text with a backslash ends");
            }
            // The server ends it by its grammar (`select 1 as end`), psql by counting words, or not at all before version 14.
            Kind::Word if token.raw.eq_ignore_ascii_case("atomic") && follows_begin(&one) => {
                return Err(BLOCK);
            }
            Kind::Semicolon if blocks.begun > 0 => return Err(BLOCK),
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

const BLOCK: Unclear =
    "servers and versions of psql end a block of statements (BEGIN ATOMIC) in different places";

fn follows_begin(statement: &[Token<'_>]) -> bool {
    statement.last().is_some_and(|token| token.kind == Kind::Word && token.raw.eq_ignore_ascii_case("begin"))
}

/// What psql counts to find the end of a statement: parentheses, and blocks in the body of a function
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_where_the_server_and_psql_end_it() {
        let count = |text| statements(text).map(|statements| statements.len());
        assert_eq!(count(";; select 1; /* ; */ select ';';"), Ok(2));
        assert_eq!(count("create rule r as on insert to t do (select 1; select 2); select 3"), Ok(2));
        assert_eq!(
            count("create function f() returns int language sql return case when true then 1 end; select 1"),
            Ok(2)
        );
        assert_eq!(count("select E'a\\'; b'; select 1"), Ok(2));
        for unclear in [
            "create or replace function f() returns int begin atomic select case when true then 1 end; select 2; end",
            // The server's block goes on behind the name `end`, and so does psql's count of it behind the function's name.
            "create function f() returns int begin atomic select 1 as end; drop table t; end",
            "create function begin() returns int language sql as 'select 1'; drop table t; end",
            "create function f() begin /* x */ Atomic return 1; end",
            "create function f() begin atomic select 1;",
            "select (1;",
            "select 'a\\'; select 1",
            "select n'\\'",
        ] {
            assert!(count(unclear).is_err(), "{unclear}");
        }
    }
}
