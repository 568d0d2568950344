//! A YAML document that remembers where each value stood, and typed reading with every mistake collected.
//!
//! Roles, locks and the configuration file are read with it: a person who made four mistakes learns of all four at
//! once, each with its line, its column and what to write instead. A key that is not known is a mistake: a misspelt
//! limit must not silently be no limit.

mod near;
mod times;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

pub use near::nearest;
use times::examples;
pub use times::{duration, show};

/// One mistake in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line of the value or key, from 1; 0 when it is about the whole document.
    pub line: u64,
    /// Column of the value or key, from 1.
    pub column: u64,
    /// The key, such as `spec.allow.logins`; empty for the whole document.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub fix: String,
}

/// Everything that is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    /// The file as the person named it, or what the document is.
    pub file: String,
    /// The mistakes, in the order of the document.
    pub problems: Vec<Problem>,
}

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&self.file)?;
            if problem.line > 0 {
                write!(f, ":{}:{}", problem.line, problem.column)?;
            }
            f.write_str(": ")?;
            if !problem.key.is_empty() {
                write!(f, "{}: ", problem.key)?;
            }
            write!(f, "{}; {}", problem.message, problem.fix)?;
        }
        Ok(())
    }
}

/// One value of the document.
#[derive(Debug, Clone)]
pub enum Tree {
    /// Nothing after the key.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Spanned<Tree>>),
    /// A section of keys, in the order of the document.
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

impl Tree {
    /// What kind of value it is, for a message.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a section of keys",
        }
    }

    /// A scalar as the person typed it, near enough.
    #[must_use]
    pub fn scalar(&self) -> Option<String> {
        match self {
            Self::Bool(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Float(value) => Some(value.to_string()),
            Self::Text(value) => Some(value.clone()),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }
    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }
    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Tree, D::Error> {
        inner.deserialize_any(self)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }
    fn visit_i128<E>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Integer(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Text(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Tree::Map(map))
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

/// Parses a document whose top is a section. `file` is what messages call it. It has no anchors and aliases: with those a few
/// hundred bytes stand for any amount of work.
///
/// # Errors
/// One problem, where the text stops being YAML.
pub fn parse(file: &str, text: &str) -> Result<Spanned<Tree>, Errors> {
    // YAML 1.1 would turn the login `y` and the label `no` into booleans.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_aliases: 0, max_anchors: 0, max_documents: 1 },
    };
    parse_with(file, text, options)
}

/// Parses a file that the operator of the machine wrote, such as the configuration, as [`parse`] does. It may have anchors and
/// aliases.
///
/// # Errors
/// One problem, where the text stops being YAML.
pub fn parse_own(file: &str, text: &str) -> Result<Spanned<Tree>, Errors> {
    parse_with(file, text, serde_saphyr::options! { strict_booleans: true })
}

fn parse_with(file: &str, text: &str, options: serde_saphyr::Options) -> Result<Spanned<Tree>, Errors> {
    serde_saphyr::from_str_with_options::<Spanned<Tree>>(text, options).map_err(|error| {
        let at = error.location();
        // The plain rendering quotes no source line: the line at fault may hold a token.
        let plain = error.without_snippet();
        let (message, fix) = match plain {
            serde_saphyr::Error::DuplicateMappingKey { key, .. } => (
                key.as_ref().map_or("a key is there twice".to_owned(), |key| {
                    format!("the key {key:?} is there twice")
                }),
                "keep one of them",
            ),
            other => (
                format!("this is not valid YAML: {}", other.to_string().lines().next().unwrap_or_default()),
                "check the indentation (spaces, not tabs) and the quotes near this place",
            ),
        };
        Errors {
            file: file.to_owned(),
            problems: vec![Problem {
                line: at.map_or(0, |at| at.line()),
                column: at.map_or(0, |at| at.column()),
                key: String::new(),
                message,
                fix: fix.to_owned(),
            }],
        }
    })
}

/// Collects what is wrong.
#[derive(Debug, Default)]
pub struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes one.
    pub fn push(&mut self, at: Location, key: &str, message: impl Into<String>, fix: impl Into<String>) {
        self.list.push(Problem {
            line: at.line(),
            column: at.column(),
            key: key.to_owned(),
            message: message.into(),
            fix: fix.into(),
        });
    }

    /// Nothing wrong, or everything that is.
    ///
    /// # Errors
    /// [`Errors`], in the order of the document.
    pub fn finish(mut self, file: &str) -> Result<(), Errors> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.list.sort_by_key(|problem| (problem.line, problem.column));
        Err(Errors { file: file.to_owned(), problems: self.list })
    }
}

/// Whether a value may be repeated in a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Echo {
    Yes,
    Never,
}

/// A section of keys, its place and its path in the document.
#[derive(Debug, Clone)]
pub struct Section<'t> {
    path: String,
    at: Location,
    entries: &'t [(Spanned<String>, Spanned<Tree>)],
}

impl<'t> Section<'t> {
    /// Takes `value` as a section that may hold only `known` keys; everything else is a problem.
    pub fn read(
        value: &'t Spanned<Tree>,
        path: &str,
        known: &[&str],
        problems: &mut Problems,
    ) -> Option<Self> {
        let entries: &[_] = match &value.value {
            Tree::Map(entries) => entries,
            Tree::Null => &[],
            other => {
                problems.push(
                    value.referenced,
                    path,
                    format!("expected a section of keys, got {}", other.kind()),
                    format!("write keys below it, indented: {}", known.join(", ")),
                );
                return None;
            }
        };
        for (key, _) in entries {
            if !known.contains(&key.value.as_str()) {
                let fix = match nearest(&key.value, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("known keys here are {}", known.join(", ")),
                };
                problems.push(key.referenced, &join(path, &key.value), "no such key", fix);
            }
        }
        Some(Self { path: path.to_owned(), at: value.referenced, entries })
    }

    /// Where the section begins.
    #[must_use]
    pub fn at(&self) -> Location {
        self.at
    }

    /// The full name of one key here, `proxy.listen`.
    #[must_use]
    pub fn name(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Where the key's value stands, or the section when the key is absent.
    #[must_use]
    pub fn place(&self, key: &str) -> Location {
        self.value(key).map_or(self.at, |value| value.referenced)
    }

    /// Every entry, in the order of the document.
    #[must_use]
    pub fn entries(&self) -> &'t [(Spanned<String>, Spanned<Tree>)] {
        self.entries
    }

    fn value(&self, key: &str) -> Option<&'t Spanned<Tree>> {
        self.entries.iter().find(|(name, _)| name.value == key).map(|(_, value)| value)
    }

    /// The key's value, unless it is absent or empty.
    #[must_use]
    pub fn present(&self, key: &str) -> Option<&'t Spanned<Tree>> {
        self.value(key).filter(|value| !matches!(value.value, Tree::Null))
    }

    /// The key as a section of its own.
    #[must_use]
    pub fn section(&self, key: &str, known: &[&str], problems: &mut Problems) -> Option<Section<'t>> {
        let value = self.value(key)?;
        Section::read(value, &self.name(key), known, problems)
    }

    /// Any scalar, parsed by `parse`, whose error text is the message.
    pub fn parsed<T, E: fmt::Display>(
        &self,
        key: &str,
        fix: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.scalar(key, Echo::Yes, fix, problems, parse)
    }

    /// As [`Section::parsed`] for a value that no message may repeat: `parse` must not put it in its error.
    pub fn secret<T>(
        &self,
        key: &str,
        fix: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        self.scalar(key, Echo::Never, fix, problems, parse)
    }

    fn scalar<T, E: fmt::Display>(
        &self,
        key: &str,
        echo: Echo,
        fix: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.present(key)?;
        let name = self.name(key);
        let Some(text) = value.value.scalar() else {
            problems.push(
                value.referenced,
                &name,
                format!("expected a value, got {}", value.value.kind()),
                fix,
            );
            return None;
        };
        match parse(&text) {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                let message = match echo {
                    Echo::Yes => format!("{text:?}: {error}"),
                    Echo::Never => error.to_string(),
                };
                problems.push(value.referenced, &name, message, fix);
                None
            }
        }
    }

    /// Text that is not empty.
    pub fn text(&self, key: &str, problems: &mut Problems) -> Option<String> {
        self.parsed(key, "write one value", problems, |text| match text.trim() {
            "" => Err("is empty"),
            _ => Ok(text.to_owned()),
        })
    }

    /// `true` or `false`.
    pub fn boolean(&self, key: &str, problems: &mut Problems) -> Option<bool> {
        let value = self.present(key)?;
        if let Tree::Bool(flag) = value.value {
            return Some(flag);
        }
        problems.push(
            value.referenced,
            &self.name(key),
            format!("expected true or false, got {}", value.value.kind()),
            "write true or false, without quotes",
        );
        None
    }

    /// A whole number in a range.
    pub fn count(&self, key: &str, least: usize, most: usize, problems: &mut Problems) -> Option<usize> {
        self.parsed(key, &format!("write a whole number from {least} to {most}"), problems, |text| match text
            .parse::<usize>(
        ) {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            Ok(_) => Err("is out of range"),
            Err(_) => Err("is not a whole number"),
        })
    }

    /// A time span in a range.
    pub fn duration(
        &self,
        key: &str,
        least: Duration,
        most: Duration,
        problems: &mut Problems,
    ) -> Option<Duration> {
        let range = format!("write a time from {} to {}{}", show(least), show(most), examples(least, most));
        self.parsed(key, &range, problems, |text| match duration(text) {
            Some(found) if (least..=most).contains(&found) => Ok(found),
            Some(_) => Err("is out of range"),
            None => Err("is not a time span"),
        })
    }

    /// One of several words.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)], problems: &mut Problems) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        self.parsed(key, &format!("write one of {}", names.join(", ")), problems, |text| {
            choices
                .iter()
                .find(|(name, _)| *name == text)
                .map(|(_, value)| *value)
                .ok_or("is not one of the choices")
        })
    }

    /// One value or a list of them.
    pub fn several<T, E: fmt::Display>(
        &self,
        key: &str,
        fix: &str,
        problems: &mut Problems,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let Some(value) = self.present(key) else { return Vec::new() };
        let name = self.name(key);
        let items: Vec<&Spanned<Tree>> = match &value.value {
            Tree::List(items) => items.iter().collect(),
            _ => vec![value],
        };
        let mut found = Vec::new();
        for item in items {
            match item.value.scalar() {
                None => problems.push(
                    item.referenced,
                    &name,
                    format!("expected a value, got {}", item.value.kind()),
                    fix,
                ),
                Some(text) => match parse(&text) {
                    Ok(parsed) => found.push(parsed),
                    Err(error) => problems.push(item.referenced, &name, format!("{text:?}: {error}"), fix),
                },
            }
        }
        found
    }

    /// The sections of a list, each with these keys. `fix` says how such a list is written.
    pub fn sections(
        &self,
        key: &str,
        known: &[&str],
        fix: &str,
        problems: &mut Problems,
    ) -> Vec<Section<'t>> {
        let Some(value) = self.present(key) else { return Vec::new() };
        let name = self.name(key);
        let Tree::List(items) = &value.value else {
            let got = format!("expected a list, got {}", value.value.kind());
            problems.push(value.referenced, &name, got, fix);
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items
            .filter_map(|(index, item)| Section::read(item, &format!("{name}[{index}]"), known, problems))
            .collect()
    }

    /// A section whose keys are free, with scalar values.
    pub fn pairs(&self, key: &str, problems: &mut Problems) -> BTreeMap<String, String> {
        let Some(value) = self.present(key) else { return BTreeMap::new() };
        let name = self.name(key);
        let Tree::Map(entries) = &value.value else {
            problems.push(
                value.referenced,
                &name,
                format!("expected label: value pairs, got {}", value.value.kind()),
                "write one pair a line below it, such as env: prod",
            );
            return BTreeMap::new();
        };
        let mut pairs = BTreeMap::new();
        for (label, item) in entries {
            match item.value.scalar() {
                Some(text) if !label.value.is_empty() => {
                    pairs.insert(label.value.clone(), text);
                }
                _ => problems.push(
                    item.referenced,
                    &join(&name, &label.value),
                    format!("expected a value, got {}", item.value.kind()),
                    "write the label's value as text on the same line",
                ),
            }
        }
        pairs
    }
}

/// The path of a key below another.
#[must_use]
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::near::distance;
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("30s"), Some(Duration::from_secs(30)));
        assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        for bad in ["", "30", "s", "1x", "-1s", "1.5s", "99999999999999999999s"] {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn slips_find_the_key_that_was_meant() {
        assert_eq!(distance("listen", "listen"), 0);
        assert_eq!(distance("lisen", "listen"), 1);
        assert_eq!(nearest("lisen", &["limits", "listen"]), Some("listen"));
        assert_eq!(nearest("zzzzzz", &["limits", "listen"]), None);
    }

    #[test]
    fn the_examples_lie_in_the_range() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(examples(second, minute * 60), ", such as 30s or 5m");
        assert_eq!(examples(minute, minute * 60 * 24 * 7), ", such as 5m or 1h");
        assert_eq!(examples(second, second * 2), "");
    }
}
