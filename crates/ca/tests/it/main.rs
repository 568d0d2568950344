//! Certificates, lists and tokens, held against the programs that read them.
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
mod certificates;
mod channel_binding;
mod cluster;
mod handshakes;
mod issued;
#[path = "../../../sal/tests/it/kept.rs"]
mod kept;
mod kinds;
mod page;
mod prepared;
mod programs;
mod rotation;
#[allow(dead_code, reason = "the tests of sal use the rest")]
#[path = "../../../sal/tests/it/softhsm/mod.rs"]
mod softhsm;
mod subjects;
mod token;
mod tokens;
mod tool;
mod tools;
