//! A query as text that reads back to itself.

use std::fmt::{self, Display, Formatter};

use super::Query;
use super::expression::{Expression, Text};

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(several) => separated(f, several.iter().map(Inner), " || "),
            Self::All(several) => separated(f, several.iter().map(Inner), " && "),
            Self::Not(one) => write!(f, "!{}", Inner(one)),
            Self::Constant(constant) => constant.fmt(f),
            Self::Online => f.write_str("online"),
            Self::Equal(left, right) => write!(f, "{left} == {right}"),
            Self::Differs(left, right) => write!(f, "{left} != {right}"),
            Self::Test(left, test, right) => write!(f, "{left}.{}({right})", test.name()),
            Self::OneOf(text, several) => {
                write!(f, "{text} in [")?;
                separated(f, several.iter(), ", ")?;
                f.write_str("]")
            }
            Self::HasLabel(key) => write!(f, "{key} in labels"),
            Self::HasLogin(login) => write!(f, "{login} in logins"),
        }
    }
}

/// A part of an expression, in parentheses where it needs them.
struct Inner<'a>(&'a Expression);

impl Display for Inner<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expression::Any(_) | Expression::All(_) => write!(f, "({})", self.0),
            other => other.fmt(f),
        }
    }
}

fn separated(
    f: &mut Formatter<'_>,
    several: impl Iterator<Item = impl Display>,
    separator: &str,
) -> fmt::Result {
    for (number, one) in several.enumerate() {
        if number > 0 {
            f.write_str(separator)?;
        }
        one.fmt(f)?;
    }
    Ok(())
}

impl Display for Text {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => literal(f, text),
            Self::Id => f.write_str("id"),
            Self::Name => f.write_str("name"),
            Self::Version => f.write_str("version"),
            Self::OsUser => f.write_str("os_user"),
            Self::Kind => f.write_str("kind"),
            Self::Label(key) => {
                f.write_str("labels[")?;
                literal(f, key)?;
                f.write_str("]")
            }
        }
    }
}

fn literal(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
