//! The audit log: a hash chain in files, with signed checkpoints.
//!
//! Every record holds the hash of the one before it, so that none can be changed, taken out, put in or moved without
//! breaking the chain. A checkpoint signs the number and hash of the last record, so that cutting off the end shows as
//! well. `docs/audit.md` has the format.

mod chain;
mod writer;

pub use chain::{Filter, Problem, Record, Verification, parse_line, verify};
pub use writer::{AuditLog, LogError, Repair};
