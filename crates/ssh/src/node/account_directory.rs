//! A directory of one session, which belongs to the session's account.
//!
//! The node is root, as a rule, and the account may do with its directory as it likes: move it away, or put a symbolic link
//! to another one in its place. So the node names nothing in it by a path. It holds the directory by a descriptor
//! (openat(2)) from the moment it was made, and what it makes, hands over and removes, it finds from there, never
//! following a link.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use tokio::net::UnixListener;
use uuid::Uuid;

use crate::session::Account;

/// For its owner alone.
const DIRECTORY_MODE: Mode = Mode::RWXU;
const ENTRY_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The directory. What the node has made in it goes when this is dropped, wherever the account has moved it by then; what the
/// account has put there stays, and so does a directory that is not empty.
#[derive(Debug)]
pub(super) struct AccountDirectory {
    path: PathBuf,
    directory: OwnedFd,
    made: Vec<&'static str>,
}

impl AccountDirectory {
    /// Makes one among the system's temporary files. Until it is given away, only the node's user can enter it.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`] where other accounts could take the directory away from root.
    pub(super) fn make(purpose: &str) -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir(), purpose)
    }

    fn make_in(place: &Path, purpose: &str) -> io::Result<Self> {
        let name = format!("sallyport-{purpose}-{}", Uuid::new_v4().simple());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(CWD, place, flags, Mode::empty())?;
        if rustix::process::geteuid().is_root() {
            roots_alone(place, &rustix::fs::fstat(&parent)?)?;
        }
        // Fails where there is something of that name: no account can have put it there to be followed.
        rustix::fs::mkdirat(&parent, &name, DIRECTORY_MODE)?;
        let directory = rustix::fs::openat(&parent, &name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self { path: place.join(name), directory, made: Vec::new() })
    }

    /// The path by which the account's programs find an entry.
    pub(super) fn path_of(&self, entry: &str) -> PathBuf {
        self.path.join(entry)
    }

    /// Makes a file. Call it before [`AccountDirectory::give_to`].
    pub(super) fn create(&mut self, entry: &'static str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, entry, flags, ENTRY_MODE)?;
        self.made.push(entry);
        Ok(file.into())
    }

    /// Listens on a new Unix socket. Call it before [`AccountDirectory::give_to`].
    pub(super) fn listen(&mut self, entry: &'static str) -> io::Result<UnixListener> {
        // There is no bindat(2); this link leads to the open directory itself.
        let here = PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        let listener = UnixListener::bind(here.join(entry))?;
        self.made.push(entry);
        rustix::fs::chmodat(&self.directory, entry, ENTRY_MODE, AtFlags::empty())?;
        Ok(listener)
    }

    /// Hands it and what was made in it over, where the node is root; else they are the account's already.
    pub(super) fn give_to(&self, account: &Account) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let (uid, gid) = (Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)));
        // The directory last: until then only root can change what is in it.
        for entry in &self.made {
            rustix::fs::chownat(&self.directory, *entry, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(rustix::fs::fchown(&self.directory, uid, gid)?)
    }
}

impl Drop for AccountDirectory {
    fn drop(&mut self) {
        for entry in &self.made {
            let _ = rustix::fs::unlinkat(&self.directory, *entry, AtFlags::empty());
        }
        // At most an empty directory that the account has put there itself: neither a link nor a full one is removed, and only
        // root can change what leads there.
        let _ = rustix::fs::rmdir(&self.path);
    }
}

/// Checks that no other account can take out of a directory what root makes there: it is root's, and others may either
/// not write or only take out what is their own (the sticky bit, as `/tmp` has it).
fn roots_alone(path: &Path, about: &Stat) -> io::Result<()> {
    let mode = Mode::from_raw_mode(about.st_mode);
    let others_write = mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX);
    if about.st_uid == 0 && FileType::from_raw_mode(about.st_mode).is_dir() && !others_write {
        return Ok(());
    }
    let reason = format!(
        "other accounts may replace what root makes in {} (user {}, mode {:o}); have it belong to root with mode 1777, or \
         start the node with TMPDIR naming another directory",
        path.display(),
        about.st_uid,
        about.st_mode & 0o7777
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[tokio::test]
    async fn what_was_made_goes_wherever_it_is_by_then() {
        let place = tempfile::tempdir().unwrap();
        let mut made = AccountDirectory::make_in(place.path(), "test").unwrap();
        made.create("cookies").unwrap().write_all(b"x").unwrap();
        let _socket = made.listen("agent").unwrap();
        made.give_to(&Account::own().unwrap()).unwrap();
        let path = made.path_of("agent");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&made.path_of("cookies"))), (0o600, 0o600));
        let _client = tokio::net::UnixStream::connect(&path).await.unwrap();

        // The account moves it away and leaves a link to a place of another's.
        let (victim, moved) = (place.path().join("victim"), place.path().join("moved"));
        std::fs::create_dir(&victim).unwrap();
        std::fs::write(victim.join("agent"), "theirs").unwrap();
        std::fs::rename(path.parent().unwrap(), &moved).unwrap();
        symlink(&victim, path.parent().unwrap()).unwrap();
        drop(made);
        assert_eq!(std::fs::read(victim.join("agent")).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 0);
    }

    #[test]
    fn nothing_stays_of_one_that_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let mut made = AccountDirectory::make_in(place.path(), "test").unwrap();
        made.create("cookies").unwrap();
        drop(made);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn root_makes_nothing_where_others_could_replace_it() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = AccountDirectory::make_in(place.path(), "test").unwrap_err().to_string();
        assert!(refused.contains("mode 777") && refused.contains("TMPDIR"), "{refused}");
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        AccountDirectory::make_in(place.path(), "test").unwrap();
        std::os::unix::fs::chown(place.path(), Some(65534), None).unwrap();
        AccountDirectory::make_in(place.path(), "test").unwrap_err();
    }
}
