//! What keys cost: how many were made, for what, of which type, and the processor time that went into them.
//!
//! Every key that [`MemoryKey`] or a [`Custody`](crate::custody::Custody) makes is counted; keys for one handshake,
//! self-tests and measurements are not. The counts of the process are in [`snapshot`]. Counting takes two clock reads
//! and two additions.
//!
//! [`KeyPool`] makes keys ahead where making them is slow.
//!
//! # Across processes
//! When the environment variable [`LEDGER_VARIABLE`] names a file, each key made appends one line to it: purpose,
//! algorithm and microseconds of processor time, separated by spaces. All processes of a test run may share the file. It
//! is a diagnostic: it tells who makes keys when, to every reader of the file, and lines that cannot be written are
//! lost.

mod ledger;
mod pool;

pub(crate) use ledger::counted;
pub use ledger::{KeyCount, LEDGER_VARIABLE, snapshot, thread_cpu};
pub use pool::{Capacity, KeyPool, PoolCount, Source, Taken};

#[cfg(doc)]
use crate::MemoryKey;
