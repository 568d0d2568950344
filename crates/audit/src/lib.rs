//! Audit events, the tamper-evident log, and session recordings.
//!
//! * [`Event`] is what happened: typed, with a stable [`Code`]. A service that sees something happen emits it into a
//!   [`Sink`]; only the authority writes it down.
//! * [`log`] is where it is written: a hash chain with signed checkpoints.
//! * [`recording`] is what a session showed: compressed, sealed chunks in a file that only grows.

mod bounds;
pub mod event;
pub mod log;
pub mod recording;

pub use bounds::{EVENT_BYTES, TEXT_BYTES};
pub use event::{Code, Event, Severity, Sink};

/// The target of spans that are phases of a connection, whichever protocol it speaks: one filter takes them all, for a
/// reader who wants to know where the time went.
pub const PHASE: &str = "sallyport::phase";
