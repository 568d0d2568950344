//! Where the temporary files of the tests are: in memory, where the machine has a place there.
//!
//! What the product writes it flushes, and a flush takes milliseconds on a disk. No test is about the disk under it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Linux has memory there as a file system.
const MEMORY: &str = "/dev/shm";
/// What directories of runs are called, with the number of the process behind it. Short: paths of sockets have 108 bytes.
const PREFIX: &str = "sly";
/// So much of it must be free.
const LEAST_FREE_BYTES: u64 = 4 << 30;

/// A directory for all temporary files of a run, which goes with this value.
#[derive(Debug)]
pub(crate) struct Room(PathBuf);

impl Room {
    pub(crate) fn new() -> Result<Self, String> {
        remove_left_behind();
        let parent = if fits() { PathBuf::from(MEMORY) } else { std::env::temp_dir() };
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        let failed = |error| format!("cannot make {}: {error}", path.display());
        fs::create_dir(&path).map_err(failed)?;
        // As /tmp is: some of what the tests start runs as another account.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).map_err(failed)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes those of runs that were ended.
fn remove_left_behind() {
    for parent in [Path::new(MEMORY), &std::env::temp_dir()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
            if number.is_some_and(|number| !Path::new("/proc").join(number.to_string()).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Whether there is such a place, with room, where programs may be run.
fn fits() -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let free = rustix::fs::statvfs(MEMORY).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    free >= LEAST_FREE_BYTES && runs_programs(&mounts, MEMORY)
}

/// Whether the last file system mounted there lets programs run.
fn runs_programs(mounts: &str, place: &str) -> bool {
    let options = mounts.lines().rev().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        (words.next()? == place).then(|| words.nth(1))?
    });
    options.is_some_and(|options| options.split(',').all(|option| option != "noexec"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_where_nothing_runs_is_none() {
        let mounts = "tmpfs /dev/shm tmpfs rw,noexec 0 0\ntmpfs /run tmpfs rw,nosuid 0 0\n";
        assert!(!runs_programs(mounts, "/dev/shm") && runs_programs(mounts, "/run"));
        assert!(!runs_programs(mounts, "/mnt"));
        assert!(runs_programs(&mounts.replace(",noexec", ""), "/dev/shm"));
    }
}
