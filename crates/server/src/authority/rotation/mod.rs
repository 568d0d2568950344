//! Rotations of certificate authorities, and what hosts confirm of them.

pub(crate) mod automatic;
pub(crate) mod by_hand;
pub(crate) mod confirmations;
pub(crate) mod details;
pub(crate) mod follow;
pub(crate) mod steps;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
