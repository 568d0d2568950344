//! The client, the jump host and file copies against real OpenSSH.

mod agent;
mod attacks;
mod client;
mod clients;
mod copy;
mod custody;
mod cut;
mod forwarded;
mod jump;
mod pipelined;
mod recorded;
pub(crate) mod rig;
