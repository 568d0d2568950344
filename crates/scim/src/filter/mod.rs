//! Filters (RFC 7644 §3.4.2.2): read from text, and held against resources.

pub(crate) mod condition;
pub(crate) mod parser;
mod syntax;

pub use syntax::{Filter, Literal, MAX_FILTER_BYTES, MAX_FILTER_DEPTH, Operator};
