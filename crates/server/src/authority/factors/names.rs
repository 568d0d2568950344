//! What users call their factors.

use std::fmt;

use sallyport_access::text::steers;
use serde::{Deserialize, Serialize};
use tonic::Status;

/// Longest name, in characters.
const LONGEST: usize = 64;

/// The name of a factor, by which its user knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FactorName(String);

impl FactorName {
    /// # Errors
    /// The refusal of a name that is empty, too long or has characters that are not shown.
    pub(crate) fn new(text: &str) -> Result<Self, Status> {
        let text = text.trim();
        let fits = (1..=LONGEST).contains(&text.chars().count()) && !text.chars().any(steers);
        if fits {
            return Ok(Self(text.to_owned()));
        }
        Err(Status::invalid_argument(format!(
            "the name of a factor has 1 to {LONGEST} characters, each of which is seen: no control characters, and none that turn or \
             join text; give another name"
        )))
    }

    /// The first of the names `base`, `base 2`, … that is not taken.
    pub(crate) fn free(base: &str, taken: impl Fn(&str) -> bool) -> Self {
        let numbered = (2_u32..).map(|number| format!("{base} {number}"));
        let name = std::iter::once(base.to_owned()).chain(numbered).find(|name| !taken(name));
        Self(name.unwrap_or_else(|| base.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FactorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_shown() {
        assert_eq!(FactorName::new("  Work key ").unwrap().as_str(), "Work key");
        assert_eq!(FactorName::new(&"ü".repeat(64)).unwrap().as_str().chars().count(), 64);
        for bad in [
            "",
            "   ",
            "a\nb",
            "\u{1b}[31m",
            "a\u{202e}b",
            "a\u{200b}",
            "a\u{61c}b",
            "\u{e0041}",
            &"x".repeat(65),
        ] {
            assert!(FactorName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_that_is_taken_is_numbered() {
        let taken = ["codes", "codes 2"];
        assert_eq!(FactorName::free("codes", |name| taken.contains(&name)).as_str(), "codes 3");
        assert_eq!(FactorName::free("key", |name| taken.contains(&name)).as_str(), "key");
    }
}
