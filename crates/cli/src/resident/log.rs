//! The helper's log: a file that never grows past a bound.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

/// Past this the file starts over: it is for looking at the last hours.
const LONGEST_LOG_BYTES: u64 = 256 * 1024;

/// Opens the file for appending, and none that a link leads to.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

/// Takes the lines of the log.
#[derive(Debug)]
pub(super) struct Bounded(Mutex<File>);

impl Bounded {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        open(path).map(|file| Self(Mutex::new(file)))
    }
}

impl Write for &Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.metadata()?.len() > LONGEST_LOG_BYTES {
            file.set_len(0)?;
        }
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_stays_small() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = Bounded::open(&path).unwrap();
        let line = [b'x'; 1000];
        for _ in 0..1000 {
            (&log).write_all(&line).unwrap();
        }
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(length > 0 && length <= LONGEST_LOG_BYTES + 1000, "{length}");
    }
}
