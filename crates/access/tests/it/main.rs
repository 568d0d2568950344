//! Who may do what, by documents as an administrator writes them.
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
mod databases;
mod decide;
mod devices;
mod docs;
mod factors;
mod listed;
mod login_rules;
mod people;
mod pins;
mod role_errors;
mod written;
