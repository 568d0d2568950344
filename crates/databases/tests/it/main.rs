//! Sessions of PostgreSQL, with a real server.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

mod attacks;
mod client;
mod postgres;
mod sessions;
mod streams;
mod world;
