//! Labels: what a resource says of itself, and what roles and people select by.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::is_hidden;

/// Key-value pairs of one resource, in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

/// Keys that begin so tell what a node's machine is, as its agent sees it; only the agent sets them.
pub const HOST_PREFIX: &str = "host/";

/// Why a label cannot be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Nothing stands before the `=`.
    #[error("a label's key is empty")]
    Empty,
    /// A terminal would act on it.
    #[error("a label has a character that cannot be shown")]
    Control,
    /// It is among those that an agent sets.
    #[error("labels that begin with {HOST_PREFIX} are set by the agent itself")]
    Host,
}

/// Checks a label, wherever it comes from.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(key: &str, value: &str) -> Result<(), LabelError> {
    if key.is_empty() {
        return Err(LabelError::Empty);
    }
    if key.chars().chain(value.chars()).any(is_hidden) {
        return Err(LabelError::Control);
    }
    Ok(())
}

/// Checks a label that a person sets, in a configuration or with a token.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_set(key: &str, value: &str) -> Result<(), LabelError> {
    if key.starts_with(HOST_PREFIX) {
        return Err(LabelError::Host);
    }
    check(key, value)
}

impl Labels {
    /// The value of one label.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Every pair, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Sets one label.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.insert(key.into(), value.into());
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_can_be_shown_and_the_agents_are_its_own() {
        assert_eq!(check_set("env", "prod"), Ok(()));
        assert_eq!(check_set("a.b/c", "größe 1:2"), Ok(()));
        assert_eq!(check("host/os", "linux"), Ok(()));
        assert_eq!(check_set("host/os", "linux"), Err(LabelError::Host));
        assert_eq!(check_set("", "x"), Err(LabelError::Empty));
        for bad in ["a\u{1b}[31m", "a\nb", "a\u{202e}b", "\u{7f}"] {
            assert_eq!(check_set("env", bad), Err(LabelError::Control), "{bad:?}");
            assert_eq!(check_set(bad, "prod"), Err(LabelError::Control), "{bad:?}");
        }
    }
}
