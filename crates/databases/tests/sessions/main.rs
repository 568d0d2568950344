//! Sessions with a real PostgreSQL.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod client;
mod ends;
mod postgres;
mod records;
mod refusals;
mod users;
mod world;
