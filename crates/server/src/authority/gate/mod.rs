//! Who may call what, and how often; that no caller hands out more than it holds, and that a person proves a factor for what is dangerous.

pub(crate) mod acts;
pub(crate) mod administering;
pub(crate) mod calls;
pub(crate) mod delegation;
pub(crate) mod guesses;
mod on_behalf;
pub(crate) mod proofs;
