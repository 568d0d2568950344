//! The client, the jump host and file copies against real OpenSSH.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, unreachable_pub)]

mod agent;
mod client;
mod copy;
mod custody;
#[path = "../display/mod.rs"]
mod display;
mod forwarded;
mod jump;
mod pipelined;
mod recorded;
mod rig;
#[allow(dead_code)]
#[path = "../../../sal/tests/softhsm/mod.rs"]
mod softhsm;
