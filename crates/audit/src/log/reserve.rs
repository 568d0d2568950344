//! Room in the log's file that is taken before it is needed: what must be on record also when the disk is full goes there.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

/// Bytes kept behind the end of the log: some hundreds of locks with their events.
pub(super) const RESERVE_BYTES: u64 = 1 << 20;
/// Room is taken in such steps, since each costs a call.
const STEP_BYTES: u64 = 16 << 10;
/// With less than this on the disk nothing ordinary is written: the state would not be, either, and both are said at the same time.
const LEAST_BYTES: u64 = 64 << 10;

/// How far a file has its room already.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    until: u64,
}

impl Reserve {
    /// Takes room until [`RESERVE_BYTES`] behind `end`, and looks whether there is any for the rest; the file stays as long as it is
    /// (fallocate(2), `FALLOC_FL_KEEP_SIZE`).
    ///
    /// # Errors
    /// The disk is full.
    pub(super) fn keep(&mut self, file: &File, end: u64) -> io::Result<()> {
        let wanted = end + RESERVE_BYTES;
        if wanted > self.until {
            self.take(file, wanted)?;
        }
        match fstatvfs(file) {
            Ok(seen) if seen.f_bavail.saturating_mul(seen.f_frsize) < LEAST_BYTES => {
                Err(io::ErrorKind::StorageFull.into())
            }
            // What is not known is found out by writing.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn take(&mut self, file: &File, wanted: u64) -> io::Result<()> {
        let until = wanted.next_multiple_of(STEP_BYTES);
        match fallocate(file, FallocateFlags::KEEP_SIZE, 0, until) {
            Ok(()) => {
                self.until = until;
                Ok(())
            }
            // A file system that knows no such thing has no room that is kept, and is written as long as it takes it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.until = u64::MAX;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The file was cut, and what was behind its end is gone.
    pub(super) fn lost(&mut self) {
        self.until = 0;
    }
}
