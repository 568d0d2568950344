//! The reserve on the authority's disk.
//!
//! Recordings are what fills it. They leave a part of it to the audit log and the state, without which no user could log
//! in: below that, uploads are refused and wait where the recordings were made. When something else has filled the disk
//! to its end, nothing is done that cannot be put on record, and both the gap and its end are said afterwards.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::gauge;
use sallyport_audit::Event;
use sallyport_audit::log::LogError;
use time::OffsetDateTime;
use tokio::sync::watch;
use tonic::Status;
use tracing::{error, warn};

/// The share of the disk that recordings leave, as a divisor,
const SHARE: u64 = 20;
/// and its bounds in bytes.
const LEAST: u64 = 1 << 20;
const MOST: u64 = 256 << 20;
/// Of its inodes, too: users make recordings, and short ones take more of these than of bytes.
const LEAST_INODES: u64 = 64;
const MOST_INODES: u64 = 4_096;
/// Files of one recording: itself, whose it is, and that it is complete.
const FILES_EACH: u64 = 3;

/// What is the matter with the authority's disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// Recordings are not taken; in words.
    Short(String),
    /// Nothing can be put on record, so that nothing is done; in words.
    Unwritable(String),
}

/// Free bytes or inodes, and those that recordings leave free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Space {
    free: u64,
    reserve: u64,
}

impl Space {
    fn of(free: u64, total: u64) -> Self {
        Self { free, reserve: (total / SHARE).clamp(LEAST, MOST) }
    }

    fn of_inodes(free: u64, total: u64) -> Self {
        Self { free, reserve: (total / SHARE).clamp(LEAST_INODES, MOST_INODES) }
    }

    /// Whether recordings may go on, where they were (`short`) or were not refused before. There is room again only
    /// when there is enough for a while.
    fn admits(self, wanted: u64, short: bool) -> bool {
        let reserve = if short { self.reserve + self.reserve / 2 } else { self.reserve };
        self.free >= reserve.saturating_add(wanted)
    }
}

/// Looks after the disk of the authority.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    directory: PathBuf,
    short: AtomicBool,
    /// Why the audit log cannot be written, since when.
    unwritable: parking_lot::Mutex<Option<(String, OffsetDateTime)>>,
    /// What is put on record as soon as there is room for it.
    owed: parking_lot::Mutex<Vec<Event>>,
    trouble: watch::Sender<Trouble>,
}

impl DiskReserve {
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            short: AtomicBool::new(false),
            unwritable: parking_lot::Mutex::default(),
            owed: parking_lot::Mutex::default(),
            trouble: watch::Sender::default(),
        }
    }

    /// The directory whose disk it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Trouble> {
        self.trouble.subscribe()
    }

    /// Whether so many bytes of recordings may be stored. Blocks for as long as the system takes to look.
    pub(crate) fn admits(&self, bytes: usize) -> Result<(), Status> {
        match self.look(bytes as u64) {
            Some(problem) => Err(Status::resource_exhausted(format!(
                "{problem}: give it room, or remove recordings (sallyport recordings rm)"
            ))),
            None => Ok(()),
        }
    }

    /// Looks at the disk; says in words why recordings are not taken, if they are not.
    pub(crate) fn look(&self, bytes: u64) -> Option<String> {
        let (space, files) = match rustix::fs::statvfs(&self.directory) {
            Ok(seen) => (
                Space::of(
                    seen.f_bavail.saturating_mul(seen.f_frsize),
                    seen.f_blocks.saturating_mul(seen.f_frsize),
                ),
                // Some file systems have no bound, and give none.
                (seen.f_files > 0).then(|| Space::of_inodes(seen.f_favail, seen.f_files)),
            ),
            Err(error) => {
                warn!(%error, path = %self.directory.display(), "the room on the disk is not known");
                return None;
            }
        };
        // There are never more bytes than fit into any float well enough for a graph.
        #[allow(clippy::cast_precision_loss)]
        gauge!("sallyport_auth_disk_free_bytes").set(space.free as f64);
        let before = self.short.load(Ordering::Relaxed);
        let problem = if !space.admits(bytes, before) {
            Some(format!(
                "the authority's disk has {} MiB left, and recordings leave {} MiB of it to the audit log and the state",
                space.free >> 20,
                space.reserve >> 20
            ))
        } else {
            files.filter(|files| !files.admits(FILES_EACH, before)).map(|files| {
                format!(
                    "the authority's disk has {} inodes left (df -i), and recordings leave {} of them to the audit log and the state",
                    files.free, files.reserve
                )
            })
        };
        self.short.store(problem.is_some(), Ordering::Relaxed);
        self.tell(problem.clone());
        problem
    }

    fn tell(&self, short: Option<String>) {
        let unwritable = self.unwritable().clone();
        let now = match (unwritable, short) {
            (Some((problem, _)), _) => Trouble::Unwritable(problem),
            (None, Some(problem)) => Trouble::Short(problem),
            (None, None) => Trouble::None,
        };
        self.trouble.send_if_modified(|before| {
            // How much is left changes all the time, and is no news.
            let news = std::mem::discriminant(before) != std::mem::discriminant(&now);
            *before = now;
            news
        });
    }

    /// Notes that the audit log could not be written.
    pub(crate) fn unwritten(&self, error: &LogError) {
        let mut unwritable = self.unwritable();
        if unwritable.is_none() {
            error!(%error, "the audit log cannot be written: nothing is done until it can be");
            *unwritable = Some((error.to_string(), OffsetDateTime::now_utc()));
        }
    }

    pub(crate) fn owed(&self) -> parking_lot::MutexGuard<'_, Vec<Event>> {
        self.owed.lock()
    }

    pub(crate) fn unwritable(&self) -> parking_lot::MutexGuard<'_, Option<(String, OffsetDateTime)>> {
        self.unwritable.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn recordings_leave_a_part_of_the_disk() {
        for (total, reserve) in [(2, 1), (100, 5), (1_000, 50), (10_000_000, 256)] {
            assert_eq!(Space::of(0, total * MIB).reserve, reserve * MIB, "{total} MiB");
        }
        let space = Space::of(6 * MIB, 100 * MIB);
        assert!(space.admits(MIB, false) && !space.admits(MIB + 1, false));
        assert!(!space.admits(0, true), "room for a moment is not room");
        assert!(Space::of(8 * MIB, 100 * MIB).admits(0, true));
    }

    #[test]
    fn recordings_leave_a_part_of_the_inodes() {
        for (total, reserve) in [(100, 64), (10_000, 500), (16_000_000, 4_096)] {
            assert_eq!(Space::of_inodes(0, total).reserve, reserve, "{total} inodes");
        }
        assert!(Space::of_inodes(67, 1_000).admits(FILES_EACH, false));
        assert!(!Space::of_inodes(66, 1_000).admits(FILES_EACH, false));
    }

    #[test]
    fn what_is_refused_says_how_much_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let room = DiskReserve::of(directory.path());
        room.admits(0).expect("room");
        let refused = room.admits(usize::MAX).expect_err("more than there is");
        assert!(refused.message().contains("MiB left"), "{refused:?}");
        assert!(matches!(&*room.subscribe().borrow(), Trouble::Short(_)));
    }
}
