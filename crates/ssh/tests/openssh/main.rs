//! The client, the jump host and file copies against real OpenSSH.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, unreachable_pub)]

mod client;
mod copy;
mod custody;
mod jump;
mod recorded;
mod rig;
#[allow(dead_code)]
#[path = "../../../sal/tests/softhsm/mod.rs"]
mod softhsm;
