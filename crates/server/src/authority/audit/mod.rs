//! The audit log: written, kept within the disk's reserve, its checkpoints carried elsewhere, searched and checked.

pub(crate) mod checkpoints;
pub(crate) mod destinations;
pub(crate) mod disk_reserve;
pub(crate) mod journal;
pub(crate) mod refusals;
pub(crate) mod search;
pub(crate) mod send;
pub(crate) mod sigv4;
pub(crate) mod verify;
