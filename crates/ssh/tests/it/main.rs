//! The node, its doors and the client, against stock OpenSSH and against those who mean ill.
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
mod display;
mod endpoint;
mod hostile;
mod layer;
mod many;
mod node;
mod openssh;
#[cfg(feature = "pam")]
mod pam;
mod proofs;
mod rekeys;
#[allow(dead_code, reason = "the tests of sal use the rest")]
#[path = "../../../sal/tests/it/softhsm/mod.rs"]
mod softhsm;
mod world;
