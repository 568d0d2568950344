//! The helper's log: a file that never grows past a bound. Names of nodes and logins are in it, and never a key.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use tracing_subscriber::EnvFilter;

use super::socket::Place;
use sallyport_client::error::Doing;

use crate::error::Result;

/// Past this the file starts over: it is for looking at the last hours.
const LONGEST_LOG_BYTES: u64 = 256 * 1024;

/// Where the helper of a profile writes its log.
pub fn path(profile: &Path) -> PathBuf {
    Place::of(profile).log()
}

/// Has this process, the helper of a profile, log to its file.
///
/// # Errors
/// The file cannot be written.
pub fn start(profile: &Path) -> Result {
    let place = Place::of(profile);
    place.create().doing("make the helper's directory")?;
    let log = Bounded::open(&place.log()).doing(format!("write {}", place.log().display()))?;
    let filter = std::env::var("SALLYPORT_LOG").unwrap_or_else(|_| "warn,sallyport=info".to_owned());
    let log: &'static Bounded = Box::leak(Box::new(log));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(move || log)
        .try_init();
    Ok(())
}

/// Opens the file for appending, and none that a link leads to.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

/// Takes the lines of the log.
#[derive(Debug)]
struct Bounded(Mutex<File>);

impl Bounded {
    fn open(path: &Path) -> io::Result<Self> {
        open(path).map(|file| Self(Mutex::new(file)))
    }
}

impl Write for &Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.0.lock();
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
