//! Databases: which there are, and the sessions that are opened to their agents.

pub(crate) mod certified;
pub(crate) mod holders;
pub(crate) mod makers;
pub(crate) mod opened;
pub(crate) mod openings;
pub(crate) mod register;
pub(crate) mod reports;
pub(crate) mod table;
