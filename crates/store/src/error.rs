//! What may go wrong with state.

use std::path::PathBuf;

/// Why an operation on state failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The caller: there is no such key.
    #[error("{key} does not exist")]
    NotFound {
        /// The key.
        key: String,
    },
    /// The caller: the key is taken.
    #[error("{key} exists already")]
    Exists {
        /// The key.
        key: String,
    },
    /// The caller: another caller changed it meanwhile.
    #[error(
        "{key} was changed meanwhile: it has revision {found}, not {expected}; read it again and repeat the change"
    )]
    Conflict {
        /// The key.
        key: String,
        /// The revision that the caller had read.
        expected: u64,
        /// The revision that it has; 0 when it is gone.
        found: u64,
    },
    /// The caller: this watch fell too far behind and must begin again with a snapshot.
    #[error("the watch fell behind by {missed} changes and must begin again")]
    Lagged {
        /// Changes that it did not see.
        missed: u64,
    },
    /// The operator: the file is not sound.
    #[error("the state file {path} is damaged: {detail}; stop the service and restore it from a backup", path = .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The operator: others may read or write the file.
    #[error("the state file {path} may be read by others (mode {mode:03o}); run: chmod 600 {path}", path = .path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The operator: another process has the file open.
    #[error("the state file {path} is in use by another process; stop that one first", path = .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The operator: the file cannot be opened or written.
    #[error("the state file {path} cannot be used: {detail}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        detail: String,
    },
    /// The operator: there is no room on the disk. What was asked for was not done, and may be asked for again.
    #[error("the disk of the state file {path} is full: make room on it", path = .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The operator: the file system takes no further files. What was asked for was not done, and may be asked for again.
    #[error("the file system of the state file {path} has no free inode (df -i): remove files from it", path = .path.display())]
    NoInode {
        /// The file.
        path: PathBuf,
    },
    /// The caller: what is kept in memory alone, which is what is being proven, takes all of it that it may. What was asked for was not
    /// done, and may be asked for again.
    #[error(
        "{key} is not taken: what is being proven takes too much memory; it ends within minutes, ask again then"
    )]
    MemoryFull {
        /// The key.
        key: String,
    },
    /// Ourselves: a stored value is not what its kind should be.
    #[error("{key} cannot be read: {detail}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong.
        detail: String,
    },
    /// The store is closed or has failed.
    #[error("the state is closed")]
    Closed,
}
