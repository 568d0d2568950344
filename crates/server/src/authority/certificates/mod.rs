//! What was issued: found, denied, signed by hand and exported.

pub(crate) mod export;
pub(crate) mod register;
pub(crate) mod signing;
