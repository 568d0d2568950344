//! Addresses on this machine whose clients come to the cluster as the user who listens: a program that may connect there
//! is that user, so programs of other users are refused.

mod listener;
mod owner;

pub(crate) use self::listener::{Accepted, Address, Listener, serve};
