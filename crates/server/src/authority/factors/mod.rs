//! Factors of users: passkeys, one-time codes and recovery codes, as they are kept.

pub(crate) mod kept;
pub(crate) mod names;
pub(crate) mod passkeys;
pub(crate) mod records;
pub(crate) mod recovery;
