//! What roles select by: accounts, values of labels, names in a database server, and templates that stand for values of traits.

use regex::Regex;

use crate::database::check_name;
use crate::{Login, Traits};

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

    pub(super) fn parse(text: &str) -> Option<Result<Self, &'static str>> {
        let inner = text.strip_prefix("{{")?.strip_suffix("}}")?.trim();
        let word = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        Some(match inner.split_once('.') {
            Some(("internal" | "external", name)) if word(name) => Ok(Self(inner.to_owned())),
            _ => Err("is not a trait that a template can name"),
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
    pub(super) fn parse(text: &str) -> Result<Self, (String, String)> {
        if let Some(template) = TraitRef::parse(text) {
            return template.map(Self::Trait).map_err(|message| {
                (message.to_owned(), "write '{{external.NAME}}' or '{{internal.NAME}}'".to_owned())
            });
        }
        if text.starts_with('^') && text.ends_with('$') {
            return match whole_value(text) {
                Ok(_) => Ok(Self::Regex(text.to_owned())),
                Err(error) => Err((
                    format!("is not a regular expression: {}", regex_problem(&error)),
                    "mend it, or write a glob such as 'web-*'".to_owned(),
                )),
            };
        }
        if text.starts_with('^') || (text.ends_with('$') && text.len() > 1) {
            return Err((
                "looks like half a regular expression".to_owned(),
                "begin it with ^ and end it with $".to_owned(),
            ));
        }
        if text.contains("{{") || text.contains("}}") {
            return Err(("is not a whole template".to_owned(), "write '{{external.NAME}}' alone".to_owned()));
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
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match TraitRef::parse(text) {
            Some(template) => template.map(Self::Trait).map_err(str::to_owned),
            None if text == "*" => Ok(Self::Any),
            None if text.contains(['{', '}']) => Err("is not a whole template".to_owned()),
            None => check_name(text).map(|()| Self::Literal(text.to_owned())).map_err(|bad| bad.to_string()),
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
