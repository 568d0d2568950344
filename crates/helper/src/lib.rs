//! The helper daemon: one process for each login that holds a warm connection to the proxy for many programs.
//!
//! `sallyport proxy ssh` and its like hand their input and output over a socket that only this user can reach, and wait.
//! The first program that needs a helper starts it, and it ends when no program has needed it for a while. It is never needed: a
//! program that cannot use it connects alone, and says the same. It holds the login's keys in memory only, takes up what a new login
//! or a rotation has put in their place, and ends with the login.

pub mod control;
mod database_session;
pub mod databases;
mod end_to_end;
pub mod endpoint;
mod ends;
pub mod error;
mod forwarder;
mod local_clients;
pub mod log;
mod native;
pub mod node;
mod program;
mod relay;
pub mod request;
mod resource_session;
pub mod resources;
pub mod serve;
pub mod setting;
pub mod socket;
pub mod stream;
mod stream_state;
mod transports;
