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
mod settles;
mod users;

/// Statements of `app` that the server is in the middle of.
const SLEEPS: &str = "select count(*) from pg_stat_activity where usename = 'app' and wait_event = 'PgSleep'";
