//! A service provider over a directory in memory, and the clients that it meets.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod client;
mod filters;
mod groups;
mod listings;
mod patches;
mod properties;
mod requests;
mod server;
mod tester;
mod vendors;
