//! What is put on record of a session's messages: frames for its recording, and events for the audit log.
//!
//! Which statement an `Execute` runs is known only when the server has answered what came before: a `Parse` that it refuses
//! leaves an earlier statement of that name in place. So what the client says waits here for its answer, in order.

pub(super) mod about;
mod answering;
mod errors;
mod happened;
mod names;
mod over;
mod said;
mod state;
mod told;
pub(super) mod waiting;

pub(crate) use state::{Observer, Taken, Totals};

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
