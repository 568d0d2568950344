//! What an identity provider has said of a person in a login by it, as the conditions of login rules see it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most bytes of paths and values that are kept of one login.
const MOST_BYTES: usize = 16 * 1024;
/// What each path and each value costs besides its text, so that many short ones are bounded, too.
const COST_BYTES: usize = 16;
/// Most paths that are known to be cut.
const MOST_UNKNOWN: usize = 64;

/// What a provider has said, by the paths of claims. What is not known in full says so: no condition takes it for what was not said.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginClaims {
    values: BTreeMap<String, BTreeSet<String>>,
    /// Of these, and of what is below them, there is more than the values.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unknown: BTreeSet<String>,
    /// There may be more than what is in the values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

impl fmt::Debug for LoginClaims {
    /// Logs have no claims of a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginClaims").field("paths", &self.values.len()).finish_non_exhaustive()
    }
}

impl LoginClaims {
    /// A login by a provider of which it is not known what it said.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { values: BTreeMap::new(), unknown: BTreeSet::new(), partial: true }
    }

    /// What a provider has said: values by path, the paths of which there is more, and whether there are more paths. What is
    /// more than 16 KiB is left out, and counts as not known.
    #[must_use]
    pub fn new(
        said: impl IntoIterator<Item = (String, Vec<String>)>,
        unknown: impl IntoIterator<Item = String>,
        partial: bool,
    ) -> Self {
        let mut claims = Self { values: BTreeMap::new(), unknown: BTreeSet::new(), partial };
        for path in unknown {
            claims.cut(path);
        }
        let mut left = MOST_BYTES;
        for (path, values) in said {
            let cost = std::iter::once(&path).chain(&values).map(|text| text.len() + COST_BYTES).sum();
            match left.checked_sub(cost) {
                Some(rest) => {
                    left = rest;
                    claims.values.insert(path, values.into_iter().collect());
                }
                None => claims.cut(path),
            }
        }
        claims
    }

    fn cut(&mut self, path: String) {
        if self.unknown.len() < MOST_UNKNOWN && path.len() <= MOST_BYTES / MOST_UNKNOWN {
            self.unknown.insert(path);
        } else {
            self.partial = true;
        }
    }

    /// No more of it than what conditions look at.
    #[must_use]
    pub fn only(&self, read: &ClaimsRead) -> Self {
        match read {
            ClaimsRead::All => self.clone(),
            ClaimsRead::These(paths) => {
                // Of what was not said it is known that it was not: it has no values.
                let known = paths.iter().filter(|path| self.lacks_one(path).is_none());
                let values =
                    known.map(|path| (path.clone(), self.values.get(path).cloned().unwrap_or_default()));
                Self { values: values.collect(), unknown: BTreeSet::new(), partial: true }
            }
        }
    }

    /// The values by their paths; of what was not said, none.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        let said = self.values.iter().filter(|(_, values)| !values.is_empty());
        said.map(|(path, values)| (path.as_str(), values))
    }

    /// What is looked at and not known in full.
    pub(crate) fn lacks(&self, read: &ClaimsRead) -> Option<String> {
        match read {
            ClaimsRead::These(paths) => paths.iter().find_map(|path| self.lacks_one(path)),
            ClaimsRead::All if self.partial => Some("*".to_owned()),
            ClaimsRead::All => self.unknown.first().cloned(),
        }
    }

    fn lacks_one(&self, path: &str) -> Option<String> {
        let below = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        let is_unknown = |unknown: &String| path.strip_prefix(unknown.as_str()).is_some_and(below);
        let is_missing = self.partial && !self.values.contains_key(path);
        (is_missing || self.unknown.iter().any(is_unknown)).then(|| path.to_owned())
    }
}

/// Which claims conditions look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimsRead {
    /// Those at these paths; none, where there is no path.
    These(BTreeSet<String>),
    /// Those that a condition computes: it may be any.
    All,
}

impl Default for ClaimsRead {
    /// None.
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl ClaimsRead {
    /// Whether any is looked at.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !matches!(self, Self::These(paths) if paths.is_empty())
    }

    /// What both look at.
    #[must_use]
    pub(crate) fn and(self, other: &Self) -> Self {
        match (self, other) {
            (Self::These(mut paths), Self::These(others)) => {
                paths.extend(others.iter().cloned());
                Self::These(paths)
            }
            _ => Self::All,
        }
    }

    /// What a policy looks at, by its tree in Cedar's JSON. What is not plainly one path of the claims is all of them.
    pub(crate) fn of(tree: &Value) -> Self {
        let none = Self::default();
        match tree {
            Value::Array(items) => items.iter().fold(none, |all, item| all.and(&Self::of(item))),
            Value::Object(members) => {
                members.iter().fold(none, |all, (name, inner)| all.and(&Self::of_member(name, inner)))
            }
            _ => none,
        }
    }

    fn of_member(name: &str, inner: &Value) -> Self {
        let (left, right) = (inner.get("left"), inner.get("right"));
        let is_context = |tree: Option<&Value>| {
            tree.and_then(|tree| tree.get("Var")).and_then(Value::as_str) == Some("context")
        };
        let is_claims = |tree: Option<&Value>| {
            let access = tree.and_then(|tree| tree.get("."));
            access.is_some_and(|access| {
                is_context(access.get("left")) && access.get("attr").and_then(Value::as_str) == Some("claims")
            })
        };
        match name {
            "hasTag" | "getTag" if is_claims(left) => {
                let path = right.and_then(|right| right.get("Value")).and_then(Value::as_str);
                path.map_or(Self::All, |path| Self::These(BTreeSet::from([path.to_owned()])))
            }
            // Whether there are claims is always known.
            "has" if is_context(left) => Self::default(),
            "." if is_context(left) => match inner.get("attr").and_then(Value::as_str) {
                Some("claims") | None => Self::All,
                Some(_) => Self::default(),
            },
            "Var" if inner.as_str() == Some("context") => Self::All,
            _ => Self::of(inner),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn these(paths: &[&str]) -> ClaimsRead {
        ClaimsRead::These(paths.iter().map(|path| (*path).to_owned()).collect())
    }

    fn said(pairs: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
        let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        pairs.iter().map(|(path, values)| ((*path).to_owned(), owned(values))).collect()
    }

    #[test]
    fn what_is_not_known_in_full_is_never_taken_for_what_was_not_said() {
        let claims =
            LoginClaims::new(said(&[("dept", &["db"]), ("sub", &["1"])]), ["groups".to_owned()], false);
        assert_eq!(claims.lacks(&these(&["dept", "other"])), None);
        for path in ["groups", "groups.name", "groups[\"a\"]"] {
            assert_eq!(claims.lacks(&these(&["dept", path])).as_deref(), Some(path));
        }
        assert_eq!(claims.lacks(&these(&["groupsy"])), None);
        assert_eq!(claims.lacks(&ClaimsRead::All).as_deref(), Some("groups"));
        // What is kept answers what was looked at, and nothing else.
        let kept = claims.only(&these(&["dept", "title", "groups"]));
        assert_eq!(kept.lacks(&these(&["dept", "title"])), None);
        assert_eq!(kept.values().map(|(path, _)| path).collect::<Vec<_>>(), ["dept"]);
        for path in ["sub", "groups", "other"] {
            assert_eq!(kept.lacks(&these(&[path])).as_deref(), Some(path));
        }
        assert_eq!(LoginClaims::unknown().lacks(&these(&["dept"])).as_deref(), Some("dept"));
        assert_eq!(LoginClaims::unknown().lacks(&these(&[])), None);
        let json = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<LoginClaims>(&json).unwrap(), kept);
    }

    #[test]
    fn what_is_too_much_is_left_out_and_not_known() {
        let large = vec!["x".repeat(MOST_BYTES)];
        let many = (0..2 * MOST_UNKNOWN).map(|at| (format!("m{at:03}"), large.clone()));
        let claims = LoginClaims::new([("a".to_owned(), large.clone())], [], false);
        assert_eq!(claims.lacks(&these(&["a"])).as_deref(), Some("a"));
        assert_eq!(claims.lacks(&these(&["b"])), None);
        let claims = LoginClaims::new(many, [], false);
        assert!(claims.unknown.len() == MOST_UNKNOWN && claims.partial);
        assert_eq!(claims.lacks(&these(&["b"])).as_deref(), Some("b"));
        let short = (0..MOST_BYTES).map(|at| (at.to_string(), Vec::new()));
        let kept = LoginClaims::new(short, [], false);
        assert!(kept.values.len() <= MOST_BYTES / COST_BYTES);
        assert!(!format!("{kept:?}").contains("00"), "{kept:?}");
    }
}
