//! Session recordings: what a session showed, so that it can be played again.
//!
//! A recording is a file that only grows. Its chunks are compressed, and sealed so that only the holder of the
//! cluster's recording key can read them: not even the node that writes them can. Each chunk stands for itself: a
//! damaged one is reported and skipped. The bytes are described in `docs/recording.md`.

mod codes;
pub mod database;
pub mod export;
mod format;
mod frame;
mod reader;
mod recorder;
mod script;
pub mod sql;
mod store;
pub mod transcript;

pub use codes::Screen;
pub use format::{Decoder, Encoder, FormatError};
pub use frame::{Body, Direction, Exit, ForwardEnd, Frame, SessionMetadata};
pub use reader::{Damage, Reader, Summary};
pub use recorder::{Recorder, Recorders, RecordingError, SyncBounds};
pub use store::{Aside, RecordingEntry, RecordingState, RecordingStore, StoreError};
