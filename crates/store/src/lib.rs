//! State behind one trait: typed resources, revisions, expiry and watch.
//!
//! [`Backend`] is keys and bytes: atomic batches of operations, compare-and-swap by revision, listing by prefix,
//! expiry, and a watch that begins with a snapshot. [`SqliteBackend`] keeps it in one file, [`MemoryBackend`] in
//! memory; both pass [`contract::suite`], and so must any other. [`Store`] puts typed resources on top.

pub mod backend;
pub mod contract;
pub mod error;
pub mod memory;
mod reserve;
pub mod sqlite;
pub mod typed;

pub use backend::{Backend, Change, Changes, Item, Op, Watch, ahead};
pub use error::StoreError;
pub use memory::MemoryBackend;
pub use reserve::is_out_of_inodes;
pub use sqlite::SqliteBackend;
pub use typed::{Kind, Store, Stored};
