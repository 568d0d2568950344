//! Recordings: their keys, uploads, playing and removal.

pub(crate) mod kept;
pub(crate) mod keys;
pub(crate) mod playing;
pub(crate) mod removing;
pub(crate) mod uploads;
