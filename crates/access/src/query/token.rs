//! The words of a query.

use super::expression::QueryError;

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Literal(String),
    And,
    Or,
    Not,
    Equal,
    Differs,
    Dot,
    Comma,
    Open,
    Close,
    OpenBracket,
    CloseBracket,
    End,
}

impl Token {
    /// As it is shown in an error.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Literal(text) => format!("the text {text:?}"),
            Self::End => "the end".to_owned(),
            other => other.written().to_owned(),
        }
    }

    fn written(&self) -> &'static str {
        match self {
            Self::And => "&&",
            Self::Or => "||",
            Self::Not => "!",
            Self::Equal => "==",
            Self::Differs => "!=",
            Self::Dot => ".",
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
            Self::OpenBracket => "[",
            Self::CloseBracket => "]",
            Self::Word(_) | Self::Literal(_) | Self::End => "",
        }
    }
}

/// Takes a query apart. Each word comes with its place; the last is [`Token::End`].
pub(super) fn tokens(query: &str) -> Result<Vec<(usize, Token)>, QueryError> {
    let mut tokens = Vec::new();
    let mut characters = query.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let wrong = |problem: String| QueryError { at, problem, query: query.to_owned() };
        let mut doubled = |token: Token, single: Option<Token>, instead: &str| {
            if characters.next_if(|(_, next)| *next == if c == '!' { '=' } else { c }).is_some() {
                return Ok(token);
            }
            single.ok_or_else(|| wrong(format!("got a single {c}, expected {instead}")))
        };
        let token = match c {
            c if c.is_whitespace() => continue,
            '.' => Token::Dot,
            ',' => Token::Comma,
            '(' => Token::Open,
            ')' => Token::Close,
            '[' => Token::OpenBracket,
            ']' => Token::CloseBracket,
            '&' => doubled(Token::And, None, "&&")?,
            '|' => doubled(Token::Or, None, "||")?,
            '=' => doubled(Token::Equal, None, "==")?,
            '!' => doubled(Token::Differs, Some(Token::Not), "")?,
            '"' | '\'' => {
                let mut text = String::new();
                loop {
                    match characters.next() {
                        Some((_, end)) if end == c => break,
                        Some((_, '\\')) => match characters.next() {
                            Some((_, escaped @ ('"' | '\'' | '\\'))) => text.push(escaped),
                            Some((at, other)) => {
                                let problem =
                                    format!("got \\{other} in a text, expected \\\" or \\' or \\\\");
                                return Err(QueryError { at, problem, query: query.to_owned() });
                            }
                            None => {
                                return Err(wrong(format!("the text that begins here has no closing {c}")));
                            }
                        },
                        Some((_, other)) => text.push(other),
                        None => return Err(wrong(format!("the text that begins here has no closing {c}"))),
                    }
                }
                Token::Literal(text)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let mut word = String::from(c);
                while let Some((_, c)) = characters.next_if(|(_, c)| c.is_ascii_alphanumeric() || *c == '_') {
                    word.push(c);
                }
                Token::Word(word)
            }
            other => {
                let hint = if other.is_ascii_digit() { "; texts stand between quotes" } else { "" };
                return Err(wrong(format!("got {other:?}, which no query has there{hint}")));
            }
        };
        tokens.push((at, token));
    }
    tokens.push((query.len(), Token::End));
    Ok(tokens)
}
