//! Room on the disk that is taken before it is needed, for what must be written also when the disk is full.
//!
//! SQLite writes first to its log (WAL), from the beginning again once all of it is in the file. So room behind the log's end is room
//! for a change that cannot wait. When it closes the file in order it removes the log, and its index with it; when it opens one it
//! makes both. So that a disk that is full by then has room for that, too, the log lives on under another name, and there is always
//! an index that has its room and waits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Bytes kept behind the end of the log: some hundreds of locks.
const RESERVE_BYTES: u64 = 2 << 20;
/// What SQLite takes for the index of a log of up to 4,096 pages (`WALINDEX_PGSZ`).
const INDEX_BYTES: u64 = 32 << 10;
/// The log's header (SQLite's file format, section 4.1). One of zeros is of a log that holds nothing.
const LOG_HEADER: [u8; 32] = [0; 32];
/// With less than this on the disk nothing ordinary is written: what would have to be on record could not be.
const LEAST_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Reserve {
    log: PathBuf,
    index: PathBuf,
    /// The log while the file is closed.
    kept_log: PathBuf,
    /// An index for the next one who opens the file.
    kept_index: PathBuf,
    directory: PathBuf,
    until: u64,
    index_waits: bool,
}

impl Reserve {
    /// For the state in this file.
    pub(crate) fn of(path: &Path) -> Self {
        let beside = |suffix: &str| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(suffix);
            path.with_file_name(name)
        };
        Self {
            log: beside("-wal"),
            index: beside("-shm"),
            kept_log: beside(".kept-wal"),
            kept_index: beside(".kept-shm"),
            directory: path.parent().map(Path::to_owned).unwrap_or_default(),
            until: 0,
            index_waits: false,
        }
    }

    /// Gives SQLite log and index with the room that was kept for them. No process may have the file open.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn give(&self) -> io::Result<()> {
        match OpenOptions::new().write(true).open(&self.kept_log) {
            // One that is in its place was not closed in order, and has changes that are nowhere else.
            Ok(_) if self.log.exists() => fs::remove_file(&self.kept_log)?,
            Ok(mut kept) => {
                // All of it is in the file. SQLite must not read it into another file that was put there since.
                kept.write_all(&LOG_HEADER)?;
                kept.sync_data()?;
                fs::rename(&self.kept_log, &self.log)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match fs::rename(&self.kept_index, &self.index) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps the log, which SQLite is about to remove, with all its room. All of it must be in the file.
    pub(crate) fn put_by(&self) {
        // Where there are no such links, there is no room either that is kept.
        if let Err(error) = fs::hard_link(&self.log, &self.kept_log) {
            tracing::debug!(%error, path = %self.kept_log.display(), "the room of the log is not kept");
        }
    }

    /// Takes the room, where it is not taken yet (fallocate(2), `FALLOC_FL_KEEP_SIZE`), and looks whether there is any for the rest.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        if !self.index_waits {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            take(&options.open(&self.kept_index)?, INDEX_BYTES)?;
            self.index_waits = true;
        }
        let length = match fs::metadata(&self.log) {
            Ok(metadata) => metadata.len(),
            // SQLite makes it with the first change.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.until = 0;
                return self.look();
            }
            Err(error) => return Err(error),
        };
        if length + RESERVE_BYTES > self.until {
            let until = (length + RESERVE_BYTES).next_multiple_of(RESERVE_BYTES);
            self.until = take(&OpenOptions::new().write(true).open(&self.log)?, until)?;
        }
        self.look()
    }

    fn look(&self) -> io::Result<()> {
        if is_full(&self.directory) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

/// Whether the disk of a directory has no room for anything but what cannot wait.
pub(crate) fn is_full(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|seen| seen.f_bavail.saturating_mul(seen.f_frsize) < LEAST_BYTES)
}

/// Whether the file system of a directory takes no further files. Some have no such bound, and give none.
pub fn is_out_of_inodes(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|seen| seen.f_files > 0 && seen.f_favail == 0)
}

/// Takes room in a file up to here; gives how far it reaches.
fn take(file: &File, until: u64) -> io::Result<u64> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, until) {
        Ok(()) => Ok(until),
        // A file system that knows no such thing keeps no room.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(u64::MAX),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use bytes::Bytes;
    use time::OffsetDateTime;

    use super::*;
    use crate::{Backend, Op, SqliteBackend};

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    /// Bytes that a file has on the disk.
    fn taken(path: &Path) -> u64 {
        fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512)
    }

    #[tokio::test]
    async fn room_outlives_the_process_and_a_put_by_log_is_never_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let reserve = Reserve::of(&path);
        let put = |key: &str| Op::Put { key: key.to_owned(), value: Bytes::from_static(b"1"), expires: None };
        let mut old = Vec::new();
        for (round, key) in ["a", "b", "c"].into_iter().enumerate() {
            let backend = SqliteBackend::open(&path).unwrap();
            assert!(!reserve.kept_log.exists());
            assert!(round == 0 || taken(&reserve.log) >= RESERVE_BYTES, "round {round}");
            // The first change makes the log, and the second one takes the room behind it.
            for _ in 0..2 {
                backend.transact(vec![put(key)], NOW).await.unwrap();
            }
            backend.close().await;
            assert!(!reserve.log.exists() && !reserve.index.exists());
            assert!(taken(&reserve.kept_log) >= RESERVE_BYTES && taken(&reserve.kept_index) >= INDEX_BYTES);
            if round == 0 {
                old = fs::read(&path).unwrap();
            }
        }
        // A copy from before that is put in its place stays what it was.
        fs::write(&path, old).unwrap();
        let backend = SqliteBackend::open(&path).unwrap();
        assert!(backend.get("a", NOW).await.unwrap().is_some());
        assert!(backend.get("c", NOW).await.unwrap().is_none());
        backend.close().await;
    }
}
