//! What roles select by: accounts, values of labels, names in a database server, and templates that stand for values of traits.

use regex::Regex;

use crate::database::{NameError, check_name};
use crate::{IdError, Login, Traits};

/// Why a role cannot select by a text.
#[derive(Debug, thiserror::Error)]
pub(super) enum MatcherError {
    #[error("is not a trait that a template can name")]
    NoTrait,
    #[error("is not a whole template")]
    PartOfTemplate,
    #[error("is not a regular expression: {}", regex_problem(.0))]
    Expression(regex::Error),
    #[error("looks like half a regular expression")]
    HalfExpression,
    #[error(transparent)]
    Login(#[from] IdError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("no user can be given every role")]
    EveryRole,
}

impl MatcherError {
    /// What to write instead, where the value of a label was expected.
    pub(super) fn value_fix(&self) -> &'static str {
        match self {
            Self::Expression(_) => "mend it, or write a glob such as 'web-*'",
            Self::HalfExpression => "begin it with ^ and end it with $",
            Self::PartOfTemplate => "write '{{external.NAME}}' alone",
            Self::NoTrait | Self::Login(_) | Self::Name(_) | Self::EveryRole => {
                "write '{{external.NAME}}' or '{{internal.NAME}}'"
            }
        }
    }
}

/// A trait that a template names: `{{internal.logins}}` or `{{external.team}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraitRef(String);

impl TraitRef {
    /// The full name, such as `external.team`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The full name under which a user's trait is known to templates: `team` is `external.team`.
    #[must_use]
    pub fn full_name(key: &str) -> String {
        if key.starts_with("internal.") || key.starts_with("external.") {
            key.to_owned()
        } else {
            format!("external.{key}")
        }
    }

    pub(super) fn parse(text: &str) -> Option<Result<Self, MatcherError>> {
        let inner = text.strip_prefix("{{")?.strip_suffix("}}")?.trim();
        let word = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        Some(match inner.split_once('.') {
            Some(("internal" | "external", name)) if word(name) => Ok(Self(inner.to_owned())),
            _ => Err(MatcherError::NoTrait),
        })
    }
}

/// An OS login, or a template for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginMatcher {
    /// Exactly this account.
    Literal(Login),
    /// Every account.
    Any,
    /// Every value of a trait.
    Trait(TraitRef),
}

impl LoginMatcher {
    pub(super) fn parse(text: &str) -> Result<Self, MatcherError> {
        match TraitRef::parse(text) {
            Some(template) => template.map(Self::Trait),
            None if text == "*" => Ok(Self::Any),
            None if text.contains(['{', '}']) => Err(MatcherError::PartOfTemplate),
            None => Ok(Self::Literal(Login::new(text)?)),
        }
    }
}

/// What a label's value must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueMatcher {
    /// Exactly this.
    Literal(String),
    /// With `*` for any run of characters.
    Glob(String),
    /// A regular expression over the whole value; the text includes `^` and `$`.
    Regex(String),
    /// One of the values of a trait.
    Trait(TraitRef),
}

impl ValueMatcher {
    pub(super) fn parse(text: &str) -> Result<Self, MatcherError> {
        if let Some(template) = TraitRef::parse(text) {
            return template.map(Self::Trait);
        }
        if text.starts_with('^') && text.ends_with('$') {
            return whole_value(text).map(|_| Self::Regex(text.to_owned())).map_err(MatcherError::Expression);
        }
        if text.starts_with('^') || (text.ends_with('$') && text.len() > 1) {
            return Err(MatcherError::HalfExpression);
        }
        if text.contains("{{") || text.contains("}}") {
            return Err(MatcherError::PartOfTemplate);
        }
        Ok(if text.contains('*') { Self::Glob(text.to_owned()) } else { Self::Literal(text.to_owned()) })
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Literal(text) | Self::Glob(text) | Self::Regex(text) => text.clone(),
            Self::Trait(reference) => format!("{{{{{}}}}}", reference.name()),
        }
    }
}

/// A name in a database server, or a template for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameMatcher {
    /// Exactly this name.
    Literal(String),
    /// Every name.
    Any,
    /// Every value of a trait.
    Trait(TraitRef),
}

impl NameMatcher {
    pub(super) fn parse(text: &str) -> Result<Self, MatcherError> {
        match TraitRef::parse(text) {
            Some(template) => template.map(Self::Trait),
            None if text == "*" => Ok(Self::Any),
            None if text.contains(['{', '}']) => Err(MatcherError::PartOfTemplate),
            None => check_name(text).map(|()| Self::Literal(text.to_owned())).map_err(MatcherError::Name),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Literal(name) => name.clone(),
            Self::Any => "*".to_owned(),
            Self::Trait(reference) => format!("{{{{{}}}}}", reference.name()),
        }
    }

    /// The names that it stands for, for a user with these traits; none for every name.
    pub(crate) fn names<'a>(&'a self, traits: &'a Traits) -> Vec<&'a str> {
        match self {
            Self::Literal(name) => vec![name],
            Self::Any => Vec::new(),
            Self::Trait(reference) => traits
                .iter()
                .filter(|(key, _)| TraitRef::full_name(key) == reference.name())
                .flat_map(|(_, values)| values.iter().map(String::as_str))
                .collect(),
        }
    }
}

/// The expression of a label, over the whole value: `^prod|dev$` is `prod` or `dev`, and not what begins or ends so.
/// The text alone has to be an expression, or a parenthesis of it could close the group around it.
pub(crate) fn whole_value(text: &str) -> Result<Regex, regex::Error> {
    Regex::new(text)?;
    // With `(?x)` it may end in a comment, which the line break ends.
    Regex::new(&format!(r"\A(?:{text})\z")).or_else(|_| Regex::new(&format!("\\A(?:{text}\n)\\z")))
}

/// The last line of the library's drawing says what is wrong.
fn regex_problem(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or("invalid").trim().trim_start_matches("error: ").to_owned()
}
