//! A provider in software, and what is made of what it sends.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod documents;
mod issuer;
mod keys;
mod logouts;
mod mappings;
mod tokens;
