//! The end-to-end suites: real processes of the real programs, with the clients and servers that people have.
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

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_sallyport");

mod administrators;
mod apps;
mod attacks;
mod authority_disk;
mod certificates;
mod certified_sessions;
mod compatibility;
mod custody;
mod databases;
mod devices;
mod ends;
mod faults;
mod faults_load;
mod fips;
mod helper;
mod logins;
mod native;
mod openssh;
mod openssh_servers;
mod other_clients;
mod outage;
mod own_client;
mod own_keys;
mod pages;
mod passkeys;
mod people;
mod provisioning;
mod quickstart;
mod reach;
mod recording;
mod relay;
mod rotation;
mod sal;
mod security_keys;
mod session_factors;
mod sessions;
mod single_sign_on;
mod suites;
mod support;
mod telemetry;
mod tools;
mod trace;
mod under_faults;
