//! The end-to-end suites of the lab, and those that need its networks.
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

/// The lab.
pub const LAB: &str = env!("CARGO_BIN_EXE_sallyport-lab");
/// What it measures, which cargo builds beside it.
pub const PROGRAM: &str = LAB.split_at(LAB.len() - "-lab".len()).0;

// The fuzz targets ask for a macro of this crate; see `fuzz_targets`.
#[allow(unused_extern_crates, reason = "the targets name it")]
extern crate self as libfuzzer_sys;

mod carriers;
mod commands;
mod fuzz_targets;
mod load;
mod roaming;
mod strength;
#[path = "../support/mod.rs"]
mod support;
mod wan;
