//! Who may call what, and how often; and that no caller hands out more than it holds.

pub(crate) mod calls;
pub(crate) mod delegation;
pub(crate) mod guesses;
