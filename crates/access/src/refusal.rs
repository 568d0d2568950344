//! Why something is not allowed.

use std::fmt;

/// Why something is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) rule: Option<String>,
    pub(crate) hint: Option<String>,
}

impl Refusal {
    /// The deciding rule, such as `role "dev" deny.logins[0]`; none when nothing allows it.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The reason without what was asked for.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.why
    }

    /// What the refused person may read: what, why, and what they could do instead.
    #[must_use]
    pub fn public_message(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.rule {
            Some(rule) => write!(f, " ({rule})"),
            None => Ok(()),
        }
    }
}
