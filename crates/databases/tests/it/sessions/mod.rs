//! Sessions with a real PostgreSQL.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod beside;
mod crowds;
mod encodings;
mod ends;
mod exports;
mod manners;
mod records;
mod refusals;
mod settles;
mod unseen;
mod users;

/// Statements of `app` that the server is in the middle of.
const SLEEPS: &str = "select count(*) from pg_stat_activity where usename = 'app' and wait_event = 'PgSleep'";

/// A generator that is the same each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}
