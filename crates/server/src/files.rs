//! Private files: written whole or not at all, readable by their owner alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::ServerError;

/// Makes a directory (and its parents) that only its owner may enter and that can be written to.
pub(crate) fn private_directory(path: &Path) -> Result<(), ServerError> {
    only_owners(path)?;
    // A read-only file system or a foreign owner is better met here than at the first write an hour later.
    let probe = path.join(".writable");
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&probe);
    match written {
        // A full disk does not keep the authority from starting: without it an administrator could not lock out the attacker who
        // fills the disk.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
        Err(source) => return Err(ServerError::File { action: "write to", path: path.to_owned(), source }),
        Ok(_) => drop(fs::remove_file(&probe)),
    }
    Ok(())
}

/// Makes a directory (and its parents) that only its owner may enter.
fn only_owners(path: &Path) -> Result<(), ServerError> {
    let failed = |source| ServerError::File { action: "create the directory", path: path.to_owned(), source };
    if let Some(file) = path.ancestors().find(|above| above.exists()).filter(|above| !above.is_dir()) {
        return Err(ServerError::BadState {
            path: file.to_owned(),
            problem: format!("this is a file, and {} has to be a directory", path.display()),
            fix: "write another directory (data_dir in the configuration), or move the file away".to_owned(),
        });
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let about = fs::metadata(path).map_err(failed)?;
    // Its owner could put other files in place of root's at any time.
    if rustix::process::geteuid().is_root() && about.uid() != 0 {
        return Err(ServerError::BadState {
            path: path.to_owned(),
            problem: format!("this directory belongs to user {}, and this process runs as root", about.uid()),
            fix: format!("run: chown -R root {}; or start this process as that user", path.display()),
        });
    }
    let mode = about.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(ServerError::BadState {
            path: path.to_owned(),
            problem: format!("others may enter this directory (mode {mode:03o})"),
            fix: format!("run: chmod 700 {}", path.display()),
        });
    }
    Ok(())
}

/// What a file that cannot be made fails with. The system says "no space left" also where there is space and no inode, and an
/// administrator who looks for space finds nothing wrong.
pub(crate) fn no_file(action: &'static str, path: &Path, source: io::Error) -> ServerError {
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    if source.kind() == io::ErrorKind::StorageFull && sallyport_store::is_out_of_inodes(directory) {
        return ServerError::BadState {
            path: path.to_owned(),
            problem: "its file system has no free inode (df -i), so that no file can be made".to_owned(),
            fix: "remove files from that file system, and start again".to_owned(),
        };
    }
    ServerError::File { action, path: path.to_owned(), source }
}

/// The right of one process to a directory, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
}

/// Claims a private directory for this process: what two write at once, both lose.
///
/// # Errors
/// When another process has it, or it cannot be claimed.
pub(crate) fn claim(directory: &Path) -> Result<Claim, ServerError> {
    only_owners(directory)?;
    let path = directory.join("lock");
    // Opened for writing, which is what tells a read-only file system.
    let failed = |source| no_file("lock", &path, source);
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let lock = lock.map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(Claim { _lock: lock }),
        Err(TryLockError::WouldBlock) => Err(in_use(directory)),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Says that another process has a directory.
pub(crate) fn in_use(directory: &Path) -> ServerError {
    ServerError::BadState {
        path: directory.to_owned(),
        problem: "this directory is in use by another process".to_owned(),
        fix: "stop that one first, or give this one a data_dir of its own".to_owned(),
    }
}

/// Whether another process holds a lock file. Nothing is made where there is none.
pub(crate) fn is_locked(lock: &Path) -> bool {
    let lock = OpenOptions::new().write(true).open(lock);
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Replaces a file so that a crash leaves the old or the new content, never a mixture.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), ServerError> {
    replace(path, content, 0o600).map_err(|source| ServerError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// As [`write_private`] for a file that every account of the machine may read.
pub(crate) fn write_public(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, 0o644)
}

fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let fresh = directory.join(name);
    let result = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(directory)?.sync_all()
    })();
    if result.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    result
}

/// Reads a private file; `None` when there is none.
///
/// # Errors
/// When others may read it, or it cannot be read.
pub(crate) fn read_private(path: &Path) -> Result<Option<Vec<u8>>, ServerError> {
    let failed = |source| ServerError::File { action: "read", path: path.to_owned(), source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    // Of the file that is read, whatever is at the path by now.
    check_private(path, file.metadata().map_err(failed)?.mode())?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

fn check_private(path: &Path, mode: u32) -> Result<(), ServerError> {
    let mode = mode & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(ServerError::BadState {
        path: path.to_owned(),
        problem: format!("others may read this file (mode {mode:03o})"),
        fix: format!(
            "if no other user has read it, run: chmod 600 {}; else replace it (a host: remove it and join again)",
            path.display()
        ),
    })
}

/// What of its own the authority reads for no document of an administrator's, who may not be one of its machine: what is sent to a server that
/// the document names would be the author's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Apart {
    /// Everything in this directory.
    pub(crate) directory: PathBuf,
    /// These files.
    pub(crate) files: Vec<PathBuf>,
}

/// Why a file is not read.
const OWN_DIRECTORY: &str = "it is in the authority's own directory, of which nothing is sent to others";
const OWN_FILE: &str = "it is a secret of this process's own, which its configuration names, and is sent to no others; name a file for this alone";

impl Apart {
    /// Whether a path names one of these, as it is written: where links lead shows when the file is read.
    pub(crate) fn refuses_path(&self, path: &Path) -> Option<&'static str> {
        if path.starts_with(&self.directory) {
            return Some(OWN_DIRECTORY);
        }
        self.files.iter().any(|own| own == path).then_some(OWN_FILE)
    }

    /// Whether a file that is open is one of these, by whatever name or link it was found.
    fn refuses(&self, real: &Path, about: &fs::Metadata) -> io::Result<Option<&'static str>> {
        if real.starts_with(fs::canonicalize(&self.directory)?) {
            return Ok(Some(OWN_DIRECTORY));
        }
        for own in &self.files {
            match fs::metadata(own) {
                Ok(own) if (own.dev(), own.ino()) == (about.dev(), about.ino()) => return Ok(Some(OWN_FILE)),
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => {
                    let problem = format!("whether it is {} cannot be known: {error}", own.display());
                    return Err(io::Error::other(problem));
                }
            }
        }
        Ok(None)
    }
}

/// A file that an administrator's document or the configuration names. Which file that is decides the author of the document, who may
/// not be an administrator of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Most bytes that it may have.
    pub(crate) limit: u64,
    /// Others of the machine may not read it.
    pub(crate) private: bool,
    /// It is none of these, wherever links lead.
    pub(crate) apart: Option<&'a Apart>,
}

/// Reads a regular file of so many bytes at most: no device and no pipe, which may give bytes for ever or none, and nothing that the
/// system says of its processes and settings. `None` when there is none.
///
/// # Errors
/// It is none that may be read so, or it cannot be read.
pub(crate) fn read_named(path: &Path, named: Named<'_>) -> Result<Option<Vec<u8>>, ServerError> {
    let failed = |source| ServerError::File { action: "read", path: path.to_owned(), source };
    let refused = |problem: &str| failed(io::Error::other(problem.to_owned()));
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let is_shared_memory = real.starts_with("/dev/shm");
    if ["/proc", "/sys", "/dev"].iter().any(|system| real.starts_with(system)) && !is_shared_memory {
        return Err(refused("it is the system's own, and no file"));
    }
    // A pipe that has come to be there is not waited for, and a link not followed.
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&real).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(refused("it is no regular file"));
    }
    // Of the file that is open, whatever is at the path by now.
    if let Some(apart) = named.apart
        && let Some(problem) = apart.refuses(&real, &about).map_err(failed)?
    {
        return Err(refused(problem));
    }
    if named.private {
        check_private(path, about.mode())?;
    }
    let mut bytes = Vec::new();
    file.take(named.limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > named.limit {
        return Err(refused(&format!("it has more than {} bytes", named.limit)));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn root_keeps_nothing_in_a_directory_of_anothers() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("state");
        private_directory(&inner).unwrap();
        std::os::unix::fs::chown(&inner, Some(65534), None).unwrap();
        let message = private_directory(&inner).unwrap_err().to_string();
        assert!(message.contains("user 65534") && message.contains("chown"), "{message}");
    }

    #[test]
    fn a_directory_is_one_processes_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("node");
        let first = claim(&inner).unwrap();
        let refused = claim(&inner).unwrap_err().to_string();
        assert!(refused.contains("in use by another process"), "{refused}");
        assert!(is_locked(&inner.join("lock")));
        drop(first);
        assert!(!is_locked(&inner.join("lock")) && !is_locked(&inner.join("none")));
        claim(&inner).unwrap();
    }

    #[test]
    fn files_are_private_and_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("state");
        private_directory(&inner).unwrap();
        let path = inner.join("identity.json");
        assert!(read_private(&path).unwrap().is_none());
        write_private(&path, b"one").unwrap();
        write_private(&path, b"two").unwrap();
        assert_eq!(read_private(&path).unwrap().unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1, "no leftovers");
    }

    #[test]
    fn loose_modes_are_refused_with_the_command_to_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity.json");
        write_private(&path, b"secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let message = read_private(&path).unwrap_err().to_string();
        assert!(message.contains("mode 644") && message.contains("chmod 600"), "{message}");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let message = private_directory(directory.path()).unwrap_err().to_string();
        assert!(message.contains("chmod 700"), "{message}");
    }
}
