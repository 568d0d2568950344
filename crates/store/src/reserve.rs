//! Room on the disk that is taken before it is needed, for what must be written also when the disk is full.
//!
//! SQLite writes first to its log (WAL), from the beginning again once all of it is in the file. So room behind the log's end is room
//! for a change that cannot wait.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Bytes kept behind the end of the log: some hundreds of locks.
const RESERVE_BYTES: u64 = 2 << 20;
/// With less than this on the disk nothing ordinary is written: what would have to be on record could not be.
const LEAST_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Reserve {
    log: PathBuf,
    directory: PathBuf,
    until: u64,
}

impl Reserve {
    /// For the state in this file.
    pub(crate) fn of(path: &Path) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push("-wal");
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        Self { log: path.with_file_name(name), directory, until: 0 }
    }

    /// Takes the room, where it is not taken yet (fallocate(2), `FALLOC_FL_KEEP_SIZE`), and looks whether there is any for the rest.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        let length = match std::fs::metadata(&self.log) {
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
            let log = OpenOptions::new().write(true).open(&self.log)?;
            match fallocate(&log, FallocateFlags::KEEP_SIZE, 0, until) {
                Ok(()) => self.until = until,
                // A file system that knows no such thing keeps no room.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.until = u64::MAX,
                Err(error) => return Err(error.into()),
            }
        }
        self.look()
    }

    fn look(&self) -> io::Result<()> {
        let Ok(seen) = statvfs(&self.directory) else { return Ok(()) };
        if seen.f_bavail.saturating_mul(seen.f_frsize) < LEAST_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}
