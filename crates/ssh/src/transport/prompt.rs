//! What a user is asked at a login, and what they have typed.

use std::fmt;

use zeroize::Zeroizing;

/// The name of the method by which clients are asked (RFC 4256).
pub(super) const INTERACTIVE: &[u8] = b"keyboard-interactive";

/// One thing that the user is asked. The answer is shown as it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// What the user reads first; may have several lines.
    pub words: String,
    /// What stands before the answer.
    pub label: String,
}

/// What a user has typed. Wiped when it goes, and in no log.
#[derive(Clone)]
pub struct Typed(Zeroizing<String>);

impl Typed {
    /// What was typed.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Typed {
    fn from(typed: String) -> Self {
        Self(Zeroizing::new(typed))
    }
}

impl fmt::Debug for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Typed(..)")
    }
}
