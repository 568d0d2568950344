//! A regular expression that a value has to match whole. Matching takes time that is linear in the value, whatever the expression is.

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::error::OidcError;
use crate::text::written_as_text;

/// Longest expression, in bytes.
const MAX_BYTES: usize = 512;
/// Most memory that one takes once it is compiled, in bytes: `(\w{100}){100}` is short, and is no rule.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A regular expression over a whole value.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expression {
    text: String,
    regex: Regex,
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`OidcError::BadTemplate`]: it is none, too long, or too large.
    pub fn parse(text: &str) -> Result<Self, OidcError> {
        let bad = |reason| OidcError::BadTemplate { text: text.chars().take(128).collect(), reason };
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(bad("it is empty or longer than 512 bytes"));
        }
        let compiled = |text: &str| RegexBuilder::new(text).size_limit(MAX_COMPILED_BYTES).build();
        // The text alone has to be an expression, or a parenthesis of it could close the group around it. With `(?x)` it may end in a
        // comment, which the line break ends.
        let whole = compiled(text)
            .and_then(|_| compiled(&format!(r"\A(?:{text})\z")))
            .or_else(|error| compiled(text).and(compiled(&format!("\\A(?:{text}\n)\\z"))).map_err(|_| error));
        let regex = whole.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => bad("it is an expression that takes too much memory"),
            _ => bad("it is no regular expression"),
        })?;
        Ok(Self { text: text.to_owned(), regex })
    }

    /// Whether the whole value is as it says.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

written_as_text!(Expression);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_about_the_whole_value() {
        for (text, value, expected) in [
            ("prod|dev", "prod", true),
            ("prod|dev", "production", false),
            ("^ops-(eu|us)$", "ops-eu", true),
            ("ops-.*", "devops-eu", false),
            ("(?i)ops", "OPS", true),
            ("(?x) ops # a comment", "ops", true),
            ("a", "a\n", false),
        ] {
            assert_eq!(Expression::parse(text).unwrap().matches(value), expected, "{text} {value}");
        }
        for text in ["", "(", "a)|(b", "*", r"(?:\w{100}){200}", &"a".repeat(513)] {
            assert_eq!(Expression::parse(text).unwrap_err().word(), "bad_template", "{text}");
        }
    }
}
