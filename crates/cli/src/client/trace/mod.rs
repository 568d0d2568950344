//! Where the time of a connection goes, phase by phase.
//!
//! Phases are spans with the target [`PHASE`]; the code that they are in knows nothing of this module. One connection of one
//! process is traced, so that its recorder is the process's.

mod counted;
pub(crate) mod recorder;
mod round_trips;

pub(crate) use counted::Counted;
pub(crate) use recorder::{Phase, Recorder};
pub(crate) use round_trips::TELLING;
pub(crate) use sallyport_ssh::client::PHASE;
