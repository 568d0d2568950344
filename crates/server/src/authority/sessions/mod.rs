//! The sessions that run.

pub(crate) mod bindings;
pub(crate) mod live;
pub(crate) mod running;
