//! What sessions are with besides nodes: kept in the state, told to hosts, reported by agents of their own configuration, removed.
//! Databases and the kinds of the table that have no code of their own are kept by the same code, each under its own keys.

pub(crate) mod kept;
pub(crate) mod register;
pub(crate) mod reports;
pub(crate) mod table;
