//! The audit log: a hash chain in files, with signed checkpoints.
//!
//! Every record holds the hash of the one before it, so that none can be changed, taken out, put in or moved without
//! breaking the chain. A checkpoint signs the number and hash of the last record, so that cutting off the end shows as
//! well. `docs/audit.md` has the format.
//!
//! A head that is kept elsewhere, as the authority keeps one in its state, shows a history that was written anew. A log that does not
//! hold it is set aside whole, and a new one begins behind it.

mod anew;
mod chain;
mod checkpoint;
mod cursor;
mod error;
mod reserve;
mod writer;

pub use anew::{Break, SetAside, repair};
pub use chain::{Filter, Problem, Record, Verification, parse_line, verify, verify_against};
pub use checkpoint::{Checkpoint, Head, NotAHead};
pub use cursor::Cursor;
pub use error::LogError;
pub use writer::{AuditLog, Opened, Repair};
