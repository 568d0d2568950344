//! The layer through its public surface: vectors, other programs, tokens of hardware.
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

mod conformance;
mod contract;
mod economy;
mod formats;
mod formats_hostile;
mod formats_interop;
mod formats_vectors;
mod kept;
mod openssl_tls;
mod password;
mod programs;
mod sealed;
mod softhsm;
mod token;
