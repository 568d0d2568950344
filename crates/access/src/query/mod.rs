//! Predicates that select nodes: `labels["env"] == "prod" && name.startsWith("web")`.
//!
//! A query is parsed once, with an error that points at the place, and asked about many nodes. It has no variables but
//! the facts of one node, no loops and no side effects, so it ends in time linear in its length.

mod expression;
mod parse;
mod print;
mod token;

pub use expression::{DEEPEST_QUERY, LONGEST_QUERY_BYTES, QueryError, Subject, glob};

use expression::Expression;

/// A parsed query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Expression);

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, and its place.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text).map(Self)
    }

    /// Whether it holds for a node. A label that the node does not have differs from every text and is equal to none.
    #[must_use]
    pub fn holds(&self, subject: &Subject<'_>) -> bool {
        self.0.holds(subject)
    }
}

#[cfg(test)]
mod tests;
