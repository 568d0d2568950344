//! The grammar of filters and of PATCH paths (RFC 7644 figures 1 and 7).
//!
//! `or` binds least, then `and`, then `not`. Words do not tell case. Nothing recurses deeper than [`MAX_FILTER_DEPTH`].

use serde_json::Number;

use super::syntax::{Filter, Literal, MAX_FILTER_BYTES, MAX_FILTER_DEPTH, Operator};
use crate::error::ScimError;
use crate::path::AttributePath;

impl Filter {
    /// Reads a filter and nothing after it.
    ///
    /// # Errors
    /// [`ScimError::InvalidFilter`] with what is wrong and where.
    pub fn parse(text: &str) -> Result<Self, ScimError> {
        let mut parser = Parser::new(text).map_err(|reason| ScimError::filter(reason.to_string()))?;
        parser.whole().map_err(|reason| ScimError::filter(parser.told(&reason)))
    }
}

/// A path of a PATCH: an attribute, which of its values, and what of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ValuePath {
    pub(crate) path: AttributePath,
    pub(crate) filter: Option<Filter>,
    pub(crate) sub: Option<AttributePath>,
}

/// Reads a path of a PATCH: `attribute`, `attribute.sub`, `attribute[filter]` or `attribute[filter].sub`.
pub(crate) fn value_path(text: &str) -> Result<ValuePath, ScimError> {
    let mut parser = Parser::new(text).map_err(|reason| ScimError::path(text, reason.to_string()))?;
    parser.value_path().map_err(|reason| ScimError::path(text, parser.told(&reason)))
}

/// What a text is not, or has not, at the place where reading ended.
#[derive(Debug, thiserror::Error)]
enum GrammarError {
    #[error("it has {0} bytes, at most {MAX_FILTER_BYTES} are read")]
    TooLong(usize),
    #[error("it is nested more than {MAX_FILTER_DEPTH} deep")]
    TooDeep,
    #[error("there is something after its end")]
    NotItsEnd,
    #[error("there are brackets inside of brackets")]
    NestedBrackets,
    #[error("expected and, or, or a closing {0}")]
    NotClosed(&'static str),
    #[error("expected a space")]
    NoSpace,
    #[error("expected the name of an attribute")]
    NoAttribute,
    #[error("expected pr, eq, ne, co, sw, ew, gt, ge, lt or le")]
    NoOperator,
    #[error("expected a text in quotes, a number, true, false or null")]
    NoValue,
    #[error("a text has no closing quote")]
    NoClosingQuote,
    #[error("a text is not one of JSON")]
    NoText,
}

/// Marks around an expression.
#[derive(Clone, Copy)]
struct Marks {
    closing: char,
    name: &'static str,
}

const PARENTHESES: Marks = Marks { closing: ')', name: "parenthesis" };
const BRACKETS: Marks = Marks { closing: ']', name: "bracket" };

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, GrammarError> {
        if text.len() > MAX_FILTER_BYTES {
            return Err(GrammarError::TooLong(text.len()));
        }
        Ok(Self { text, at: 0, depth: 0 })
    }

    /// A reason with the place where it was found.
    fn told(&self, reason: &GrammarError) -> String {
        format!("{reason}, at byte {}", self.at)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(' ').len();
    }

    /// Takes a character, if it is the next one.
    fn takes(&mut self, character: char) -> bool {
        let found = self.rest().starts_with(character);
        if found {
            self.at += character.len_utf8();
        }
        found
    }

    /// The word that comes next, of the characters of attributes and URNs. It may be empty.
    fn peek_word(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.:$".contains(c)));
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    }

    fn take_word(&mut self) -> &'a str {
        let word = self.peek_word();
        self.at += word.len();
        word
    }

    /// Takes one of the words that join expressions, if it is the next one.
    fn takes_joint(&mut self, joint: &str) -> bool {
        let before = self.at;
        let after_a_bracket = self.text.get(..before).is_some_and(|read| read.ends_with([')', ']']));
        self.skip_spaces();
        let word = self.peek_word();
        if (self.at > before || after_a_bracket) && word.eq_ignore_ascii_case(joint) {
            self.at += word.len();
            return true;
        }
        self.at = before;
        false
    }

    fn whole(&mut self) -> Result<Filter, GrammarError> {
        let filter = self.any(false)?;
        self.skip_spaces();
        if self.rest().is_empty() { Ok(filter) } else { Err(GrammarError::NotItsEnd) }
    }

    /// Expressions joined by `or`.
    fn any(&mut self, inside: bool) -> Result<Filter, GrammarError> {
        let first = self.all(inside)?;
        if !self.takes_joint("or") {
            return Ok(first);
        }
        let mut parts = vec![first, self.all(inside)?];
        while self.takes_joint("or") {
            parts.push(self.all(inside)?);
        }
        Ok(Filter::Or(parts))
    }

    /// Expressions joined by `and`.
    fn all(&mut self, inside: bool) -> Result<Filter, GrammarError> {
        let first = self.single(inside)?;
        if !self.takes_joint("and") {
            return Ok(first);
        }
        let mut parts = vec![first, self.single(inside)?];
        while self.takes_joint("and") {
            parts.push(self.single(inside)?);
        }
        Ok(Filter::And(parts))
    }

    /// One expression: in parentheses, negated, or about an attribute. `inside` of brackets there are no further ones.
    fn single(&mut self, inside: bool) -> Result<Filter, GrammarError> {
        self.skip_spaces();
        if self.takes('(') {
            return self.enclosed(PARENTHESES, inside);
        }
        let start = self.at;
        if self.take_word().eq_ignore_ascii_case("not") {
            self.skip_spaces();
            if self.takes('(') {
                return Ok(Filter::Not(Box::new(self.enclosed(PARENTHESES, inside)?)));
            }
        }
        self.at = start;
        let path = self.path()?;
        if self.takes('[') {
            if inside {
                return Err(GrammarError::NestedBrackets);
            }
            return Ok(Filter::Has(path, Box::new(self.enclosed(BRACKETS, true)?)));
        }
        self.space()?;
        let word = self.take_word();
        if word.eq_ignore_ascii_case("pr") {
            return Ok(Filter::Present(path));
        }
        let operator = Operator::read(word).ok_or(GrammarError::NoOperator)?;
        self.space()?;
        Ok(Filter::Compare(path, operator, self.literal()?))
    }

    fn space(&mut self) -> Result<(), GrammarError> {
        let before = self.at;
        self.skip_spaces();
        if self.at > before { Ok(()) } else { Err(GrammarError::NoSpace) }
    }

    /// What is between two marks, of which the first is taken. `inside` of brackets there are no further ones.
    fn enclosed(&mut self, marks: Marks, inside: bool) -> Result<Filter, GrammarError> {
        if self.depth == MAX_FILTER_DEPTH {
            return Err(GrammarError::TooDeep);
        }
        self.depth += 1;
        let filter = self.any(inside)?;
        self.skip_spaces();
        if !self.takes(marks.closing) {
            return Err(GrammarError::NotClosed(marks.name));
        }
        self.depth -= 1;
        Ok(filter)
    }

    fn path(&mut self) -> Result<AttributePath, GrammarError> {
        let word = self.peek_word();
        let path = AttributePath::parse(word).ok_or(GrammarError::NoAttribute)?;
        self.at += word.len();
        Ok(path)
    }

    /// A value: null, a boolean, a number or a text of JSON (RFC 7159).
    fn literal(&mut self) -> Result<Literal, GrammarError> {
        let rest = self.rest();
        if rest.starts_with('"') {
            let end = closing_quote(rest).ok_or(GrammarError::NoClosingQuote)?;
            let quoted = rest.get(..=end).unwrap_or_default();
            let text = serde_json::from_str(quoted).map_err(|_| GrammarError::NoText)?;
            self.at += quoted.len();
            return Ok(Literal::Text(text));
        }
        let end = rest.find([' ', ')', ']']).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        let value = if word.eq_ignore_ascii_case("true") {
            Literal::Boolean(true)
        } else if word.eq_ignore_ascii_case("false") {
            Literal::Boolean(false)
        } else if word.eq_ignore_ascii_case("null") {
            Literal::Null
        } else if serde_json::from_str::<Number>(word).is_ok() {
            Literal::Number(word.to_owned())
        } else {
            return Err(GrammarError::NoValue);
        };
        self.at += word.len();
        Ok(value)
    }

    fn value_path(&mut self) -> Result<ValuePath, GrammarError> {
        self.skip_spaces();
        let path = self.path()?;
        let filter = if self.takes('[') { Some(self.enclosed(BRACKETS, true)?) } else { None };
        let sub = if filter.is_some() && self.takes('.') { Some(self.path()?) } else { None };
        self.skip_spaces();
        if self.rest().is_empty() {
            return Ok(ValuePath { path, filter, sub });
        }
        Err(GrammarError::NotItsEnd)
    }
}

/// Where the text ends that begins with the first byte.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}
