//! Filters as they are written (RFC 7644 §3.4.2.2).

use std::fmt;

use serde_json::Value;

use crate::path::AttributePath;

/// Longest filter, in bytes.
pub const MAX_FILTER_BYTES: usize = 2 * 1024;

/// Deepest nesting of parentheses and brackets in a filter.
pub const MAX_FILTER_DEPTH: usize = 16;

/// A filter, as it was written.
///
/// ```
/// use sallyport_scim::Filter;
///
/// let filter = Filter::parse(r#"userName sw "a" and (emails[type eq "work"] or not (active eq true))"#)?;
/// assert_eq!(filter.to_string(), r#"userName sw "a" and (emails[type eq "work"] or not (active eq true))"#);
/// # Ok::<(), sallyport_scim::ScimError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// One of these holds. There are two or more.
    Or(Vec<Filter>),
    /// All of these hold. There are two or more.
    And(Vec<Filter>),
    /// This does not hold.
    Not(Box<Filter>),
    /// The attribute has a value.
    Present(AttributePath),
    /// A value of the attribute compares so with this one.
    Compare(AttributePath, Operator, Literal),
    /// One value of the attribute meets all of this.
    Has(AttributePath, Box<Filter>),
}

/// How two values are compared (RFC 7644 table 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words of the specification")]
pub enum Operator {
    Equal,
    NotEqual,
    Contains,
    StartsWith,
    EndsWith,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Operator {
    const ALL: [(&'static str, Self); 9] = [
        ("eq", Self::Equal),
        ("ne", Self::NotEqual),
        ("co", Self::Contains),
        ("sw", Self::StartsWith),
        ("ew", Self::EndsWith),
        ("gt", Self::Greater),
        ("ge", Self::GreaterOrEqual),
        ("lt", Self::Less),
        ("le", Self::LessOrEqual),
    ];

    /// Its word in a filter.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, operator)| *operator == self).map_or("", |(word, _)| word)
    }

    pub(super) fn read(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, operator)| *operator)
    }
}

/// A value in a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// No value.
    Null,
    /// True or false.
    Boolean(bool),
    /// A number of JSON, as it was written: no attribute of users and groups has one.
    Number(String),
    /// A text.
    Text(String),
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Number(text) => f.write_str(text),
            Self::Text(text) => write!(f, "{}", Value::from(text.as_str())),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Or(parts) => joined(f, parts, " or ", |part| matches!(part, Self::Or(_))),
            Self::And(parts) => joined(f, parts, " and ", |part| matches!(part, Self::Or(_) | Self::And(_))),
            Self::Not(inner) => write!(f, "not ({inner})"),
            Self::Present(path) => write!(f, "{path} pr"),
            Self::Compare(path, operator, literal) => write!(f, "{path} {} {literal}", operator.word()),
            Self::Has(path, inner) => write!(f, "{path}[{inner}]"),
        }
    }
}

/// Writes parts with a word between them, those in parentheses that would read as something else without.
fn joined(
    f: &mut fmt::Formatter<'_>,
    parts: &[Filter],
    word: &str,
    apart: impl Fn(&Filter) -> bool,
) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            f.write_str(word)?;
        }
        if apart(part) {
            write!(f, "({part})")?;
        } else {
            write!(f, "{part}")?;
        }
    }
    Ok(())
}
