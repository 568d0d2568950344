//! A client of a cluster: the stored login, connections to the proxy and the authority, and the streams inside them.
//!
//! Nothing here reads arguments, asks a person or prints.

pub(crate) mod authority;
pub(crate) mod carrier;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod database_agents;
pub(crate) mod dial;
pub(crate) mod follow;
pub(crate) mod liveness;
pub(crate) mod login;
pub(crate) mod native;
pub(crate) mod native_history;
pub(crate) mod profile;
mod signing;
pub(crate) mod ssh_agent;
pub(crate) mod times;
pub(crate) mod trace;
pub(crate) mod transport;
pub(crate) mod trust;
mod vouched;
