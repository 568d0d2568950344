//! Why roles cannot be compiled.

use crate::RoleName;

/// Why roles cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A regular expression that was accepted when the role was written is not valid here.
    #[error("role {role:?}: {pattern:?} is not a regular expression: {problem}")]
    Regex {
        /// The role.
        role: String,
        /// The expression.
        pattern: String,
        /// What the library says.
        problem: String,
    },
    /// A compiled role does not fit the schema: a fault of this crate, not of the role.
    #[error("a compiled role does not fit the policy schema: {0}")]
    Internal(String),
}

impl PolicyError {
    pub(crate) fn regex(role: &RoleName, pattern: &str, error: &regex::Error) -> Self {
        Self::Regex { role: role.to_string(), pattern: pattern.to_owned(), problem: error.to_string() }
    }

    pub(crate) fn internal(problem: &str) -> Self {
        Self::Internal(problem.to_owned())
    }
}
