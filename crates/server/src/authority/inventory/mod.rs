//! The client inventory.

pub(crate) mod clients;
pub(crate) mod reports;
