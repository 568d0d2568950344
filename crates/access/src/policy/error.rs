//! Why roles cannot be compiled.

use std::sync::Arc;

use cedar_policy::{CedarSchemaError, ParseErrors, PolicyFromJsonError, PolicySetError, ValidationError};

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
    #[error("a compiled role does not fit the policy schema")]
    Internal(#[source] Arc<SchemaError>),
}

/// What Cedar does not take of the policy schema, or of a role that this crate compiled.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The name of a type of the schema.
    #[error(transparent)]
    Type(#[from] ParseErrors),
    /// The schema itself.
    #[error(transparent)]
    Schema(#[from] CedarSchemaError),
    /// The name of a rule.
    #[error("policy id")]
    RuleName,
    /// A rule, as it is written for Cedar.
    #[error(transparent)]
    Rule(#[from] PolicyFromJsonError),
    /// Two rules of one name.
    #[error(transparent)]
    Rules(#[from] PolicySetError),
    /// A rule that the schema has no types for.
    #[error(transparent)]
    Invalid(#[from] ValidationError),
}

impl From<SchemaError> for PolicyError {
    fn from(error: SchemaError) -> Self {
        Self::Internal(Arc::new(error))
    }
}

impl PolicyError {
    pub(crate) fn regex(role: &RoleName, pattern: &str, error: &regex::Error) -> Self {
        Self::Regex { role: role.to_string(), pattern: pattern.to_owned(), problem: error.to_string() }
    }
}
