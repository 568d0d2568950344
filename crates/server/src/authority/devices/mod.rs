//! Trusted devices: enrolled once, proven at each login, listed and removed.

pub(crate) mod challenges;
pub(crate) mod enrolling;
pub(crate) mod index;
pub(crate) mod inventory;
pub(crate) mod kept;
pub(crate) mod records;
pub(crate) mod voiding;
