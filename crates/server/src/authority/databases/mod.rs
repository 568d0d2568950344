//! Databases: the sessions that are opened to their agents, and the certificates for these. Which there are `catalogue` keeps.

pub(crate) mod certified;
pub(crate) mod holders;
pub(crate) mod makers;
pub(crate) mod opened;
pub(crate) mod openings;
