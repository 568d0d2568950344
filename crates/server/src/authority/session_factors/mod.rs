//! The second factor for each session: asked for by users and for them, kept for a while, and looked for where sessions are decided.

pub(crate) mod asked;
mod awaited;
pub(crate) mod certify;
pub(crate) mod check;
mod gone;
pub(crate) mod grants;
mod pending;
mod proving;
pub(crate) mod targets;
