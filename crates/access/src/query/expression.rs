//! What a query is made of, and whether it holds for a node.

use std::fmt;

use crate::{Labels, Login};

/// The longest query in bytes.
pub const LONGEST_QUERY_BYTES: usize = 4096;
/// The deepest nesting of parentheses and negations.
pub const DEEPEST_QUERY: usize = 32;

/// What a query may ask of a node.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The node's id, as text.
    pub id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// What roles select it by.
    pub labels: &'a Labels,
    /// The release that its agent runs.
    pub version: &'a str,
    /// The account that its agent runs as.
    pub os_user: &'a str,
    /// `sallyport`, or `openssh` for a registered server.
    pub kind: &'a str,
    /// Logins that the caller may use there.
    pub logins: &'a [Login],
    /// Whether its agent was heard of lately.
    pub online: bool,
}

/// Something that holds for a node or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Constant(bool),
    Online,
    Equal(Text, Text),
    Differs(Text, Text),
    Test(Text, Test, Text),
    /// A text is one of several.
    OneOf(Text, Vec<Text>),
    /// A label has this key.
    HasLabel(Text),
    /// The caller may use this login.
    HasLogin(Text),
}

/// A text of the node, or one that was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    Literal(String),
    Id,
    Name,
    Version,
    OsUser,
    Kind,
    Label(String),
}

/// A question about two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    StartsWith,
    EndsWith,
    Contains,
    /// The second has `*` for any run of characters.
    Matches,
}

impl Test {
    pub(super) const ALL: [(&'static str, Self); 4] = [
        ("startsWith", Self::StartsWith),
        ("endsWith", Self::EndsWith),
        ("contains", Self::Contains),
        ("matches", Self::Matches),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, test)| *test == self).map_or("", |(name, _)| name)
    }

    pub(super) fn holds(self, text: &str, other: &str) -> bool {
        match self {
            Self::StartsWith => text.starts_with(other),
            Self::EndsWith => text.ends_with(other),
            Self::Contains => text.contains(other),
            Self::Matches => glob(other, text),
        }
    }
}

/// Why a text is no query, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    /// The place, in bytes from the beginning.
    pub(super) at: usize,
    pub(super) problem: String,
    pub(super) query: String,
}

impl QueryError {
    /// The place, in characters from the beginning, counted from 1 as people do.
    #[must_use]
    pub fn column(&self) -> usize {
        self.query.get(..self.at).unwrap_or(&self.query).chars().count() + 1
    }

    /// What is wrong there: what was got and what was expected.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for QueryError {
    /// The problem with its column, and the query with a mark under the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the query is wrong at column {}: {}", self.column(), self.problem)?;
        // A tab or line break would put the mark elsewhere.
        let shown: String = self.query.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if shown.chars().count() <= 200 {
            write!(f, "\n  {shown}\n  {:>width$}", "^", width = self.column())?;
        }
        Ok(())
    }
}

impl std::error::Error for QueryError {}

impl Expression {
    pub(super) fn holds(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::Any(several) => several.iter().any(|one| one.holds(subject)),
            Self::All(several) => several.iter().all(|one| one.holds(subject)),
            Self::Not(one) => !one.holds(subject),
            Self::Constant(constant) => *constant,
            Self::Online => subject.online,
            Self::Equal(left, right) => equal(left, right, subject),
            Self::Differs(left, right) => !equal(left, right, subject),
            Self::Test(left, test, right) => match (left.of(subject), right.of(subject)) {
                (Some(left), Some(right)) => test.holds(left, right),
                _ => false,
            },
            Self::OneOf(text, several) => several.iter().any(|one| equal(text, one, subject)),
            Self::HasLabel(key) => key.of(subject).is_some_and(|key| subject.labels.value(key).is_some()),
            Self::HasLogin(login) => login
                .of(subject)
                .is_some_and(|login| subject.logins.iter().any(|known| known.as_str() == login)),
        }
    }
}

pub(super) fn equal(left: &Text, right: &Text, subject: &Subject<'_>) -> bool {
    left.of(subject).zip(right.of(subject)).is_some_and(|(left, right)| left == right)
}

impl Text {
    /// `None` for a label that is not there.
    pub(super) fn of<'a>(&'a self, subject: &Subject<'a>) -> Option<&'a str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Id => Some(subject.id),
            Self::Name => Some(subject.name),
            Self::Version => Some(subject.version),
            Self::OsUser => Some(subject.os_user),
            Self::Kind => Some(subject.kind),
            Self::Label(key) => subject.labels.value(key),
        }
    }
}

/// Whether `text` is what `pattern` says, with `*` for any run of characters.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part).and_then(|at| rest.get(at + part.len()..)) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    true
}
