//! Resources as documents: read, written and removed.

pub(crate) mod documents;
pub(crate) mod entered;
pub(crate) mod reading;
pub(crate) mod removing;
pub(crate) mod targets;
pub(crate) mod writing;
