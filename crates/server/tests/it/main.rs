//! The services through their API, a cluster in one process.
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
mod auth_api;
#[path = "../../../testing/src/authenticator.rs"]
mod authenticator;
mod catalogue_api;
mod certificates;
mod cluster;
mod databases_api;
mod fips;
mod identity;
mod logins;
mod openssh;
#[path = "../../../ca/tests/it/programs/mod.rs"]
mod programs;
mod rotation;
mod scim;
mod sso;
mod support;
mod well_known;
