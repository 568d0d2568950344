//! From words to an expression.
//!
//! ```text
//! or       = and { "||" and }
//! and      = not { "&&" not }
//! not      = "!" not | test
//! test     = "(" or ")" | "true" | "false" | "online"
//!          | text "==" text | text "!=" text
//!          | text "." METHOD "(" text ")"
//!          | text "in" ( "labels" | "logins" | "[" text { "," text } "]" )
//! text     = LITERAL | "id" | "name" | "version" | "os_user" | "kind" | "labels" "[" LITERAL "]" | "labels" "." WORD
//! ```

use super::expression::{DEEPEST_QUERY, Expression, LONGEST_QUERY_BYTES, QueryError, Test, Text};
use super::token::{Token, tokens};

const FIELDS: &str = "id, name, version, os_user, kind, online, logins, labels[\"KEY\"]";
const METHODS: &str = "startsWith, endsWith, contains or matches";

pub(super) fn parse(text: &str) -> Result<Expression, QueryError> {
    if text.len() > LONGEST_QUERY_BYTES {
        let problem = format!("it has {} bytes, at most {LONGEST_QUERY_BYTES} are allowed", text.len());
        return Err(QueryError { at: 0, problem, query: String::new() });
    }
    let mut parser = Parser { query: text, tokens: tokens(text)?, next: 0, depth: 0 };
    let expression = parser.any()?;
    match parser.take() {
        (_, Token::End) => Ok(expression),
        (at, Token::Word(word)) if word == "and" || word == "or" => {
            Err(parser.wrong(at, format!("got {word}, expected {}", if word == "and" { "&&" } else { "||" })))
        }
        (at, other) => Err(parser.wrong(at, format!("got {}, expected && or || or the end", other.shown()))),
    }
}

struct Parser<'a> {
    query: &'a str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn wrong(&self, at: usize, problem: String) -> QueryError {
        QueryError { at, problem, query: self.query.to_owned() }
    }

    fn take(&mut self) -> (usize, Token) {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token.unwrap_or((self.query.len(), Token::End))
    }

    fn take_if(&mut self, wanted: &Token) -> bool {
        let is = self.tokens.get(self.next).is_some_and(|(_, token)| token == wanted);
        self.next += usize::from(is);
        is
    }

    fn expect(&mut self, wanted: &Token, behind: &str) -> Result<(), QueryError> {
        match self.take() {
            (_, token) if token == *wanted => Ok(()),
            (at, other) => {
                Err(self.wrong(at, format!("got {}, expected {} {behind}", other.shown(), wanted.shown())))
            }
        }
    }

    fn any(&mut self) -> Result<Expression, QueryError> {
        let first = self.all()?;
        let mut several = vec![first];
        while self.take_if(&Token::Or) {
            several.push(self.all()?);
        }
        Ok(joined(several, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression, QueryError> {
        let first = self.not()?;
        let mut several = vec![first];
        while self.take_if(&Token::And) {
            several.push(self.not()?);
        }
        Ok(joined(several, Expression::All))
    }

    fn not(&mut self) -> Result<Expression, QueryError> {
        let at = self.tokens.get(self.next).map_or(self.query.len(), |(at, _)| *at);
        self.depth += 1;
        if self.depth > DEEPEST_QUERY {
            return Err(self.wrong(at, format!("it is nested deeper than {DEEPEST_QUERY}")));
        }
        let outcome = if self.take_if(&Token::Not) {
            self.not().map(|inner| Expression::Not(Box::new(inner)))
        } else {
            self.test()
        };
        self.depth -= 1;
        outcome
    }

    fn test(&mut self) -> Result<Expression, QueryError> {
        if self.take_if(&Token::Open) {
            let inner = self.any()?;
            self.expect(&Token::Close, "to close the parenthesis")?;
            return Ok(inner);
        }
        for (word, expression) in [
            ("true", Expression::Constant(true)),
            ("false", Expression::Constant(false)),
            ("online", Expression::Online),
        ] {
            if self.take_if(&Token::Word(word.to_owned())) {
                return Ok(expression);
            }
        }
        let text = self.text()?;
        match self.take() {
            (_, Token::Equal) => Ok(Expression::Equal(text, self.text()?)),
            (_, Token::Differs) => Ok(Expression::Differs(text, self.text()?)),
            (_, Token::Dot) => self.method(text),
            (_, Token::Word(word)) if word == "in" => self.one_of(text),
            (at, other) => Err(self.wrong(
                at,
                format!("got {}, expected == or != or in or .METHOD(\"TEXT\") behind a text", other.shown()),
            )),
        }
    }

    fn method(&mut self, text: Text) -> Result<Expression, QueryError> {
        let (at, token) = self.take();
        let known = |word: &str| Test::ALL.iter().find(|(name, _)| *name == word).map(|(_, test)| *test);
        let Some(test) = (if let Token::Word(word) = &token { known(word) } else { None }) else {
            return Err(self.wrong(at, format!("got {}, expected {METHODS}", token.shown())));
        };
        self.expect(&Token::Open, "behind a method")?;
        let argument = self.text()?;
        self.expect(&Token::Close, "behind the method's one text")?;
        Ok(Expression::Test(text, test, argument))
    }

    fn one_of(&mut self, text: Text) -> Result<Expression, QueryError> {
        match self.take() {
            (_, Token::Word(word)) if word == "labels" => Ok(Expression::HasLabel(text)),
            (_, Token::Word(word)) if word == "logins" => Ok(Expression::HasLogin(text)),
            (_, Token::OpenBracket) => {
                let mut several = vec![self.text()?];
                while self.take_if(&Token::Comma) {
                    several.push(self.text()?);
                }
                self.expect(&Token::CloseBracket, "or , in a list")?;
                Ok(Expression::OneOf(text, several))
            }
            (at, other) => Err(self.wrong(
                at,
                format!("got {}, expected labels, logins or [\"TEXT\", ...] behind in", other.shown()),
            )),
        }
    }

    fn text(&mut self) -> Result<Text, QueryError> {
        let (at, token) = self.take();
        let word = match token {
            Token::Literal(text) => return Ok(Text::Literal(text)),
            Token::Word(word) => word,
            other => {
                return Err(self.wrong(
                    at,
                    format!("got {}, expected a text between quotes or one of {FIELDS}", other.shown()),
                ));
            }
        };
        match word.as_str() {
            "id" => Ok(Text::Id),
            "name" => Ok(Text::Name),
            "version" => Ok(Text::Version),
            "os_user" => Ok(Text::OsUser),
            "kind" => Ok(Text::Kind),
            "labels" => self.label(),
            "online" => {
                Err(self.wrong(at, "online is true or false by itself: write online or !online".to_owned()))
            }
            "logins" => Err(self.wrong(at, "logins is a list: write \"LOGIN\" in logins".to_owned())),
            other => {
                Err(self
                    .wrong(at, format!("got {other}, expected one of {FIELDS}; texts stand between quotes")))
            }
        }
    }

    fn label(&mut self) -> Result<Text, QueryError> {
        match self.take() {
            (_, Token::OpenBracket) => {
                match self.take() {
                    (_, Token::Literal(key)) => {
                        self.expect(&Token::CloseBracket, "behind a label's key")?;
                        Ok(Text::Label(key))
                    }
                    (at, other) => Err(self
                        .wrong(at, format!("got {}, expected a label's key between quotes", other.shown()))),
                }
            }
            (_, Token::Dot) => match self.take() {
                (_, Token::Word(key)) => Ok(Text::Label(key)),
                (at, other) => Err(self.wrong(at, format!("got {}, expected a label's key", other.shown()))),
            },
            (at, other) => {
                Err(self.wrong(at, format!("got {}, expected labels[\"KEY\"] or labels.KEY", other.shown())))
            }
        }
    }
}

fn joined(mut several: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match several.pop() {
        Some(only) if several.is_empty() => only,
        Some(last) => {
            several.push(last);
            join(several)
        }
        None => Expression::Constant(true),
    }
}
