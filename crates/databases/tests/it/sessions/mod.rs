//! Sessions with a real PostgreSQL.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod ends;
mod records;
mod refusals;
mod users;
