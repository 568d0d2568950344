//! Where the time of a connection goes, phase by phase.
//!
//! Phases are spans with the target [`PHASE`]; the code that they are in knows nothing of this module. One connection of one
//! process is traced, so that its recorder is the process's.

mod counted;
pub mod recorder;
mod round_trips;

pub use counted::Counted;
pub use recorder::{Phase, Recorder};
pub use round_trips::TELLING;
pub use sallyport_ssh::client::PHASE;
