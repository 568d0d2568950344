//! The directory here that a copy fills: what is below it is reached by descriptors, and through no symbolic link.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// How a directory is opened on the way.
const WALK: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a file is opened: whatever else is there is told apart before a byte is written.
const WRITE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A directory of the user's.
pub(super) struct Ground {
    directory: OwnedFd,
    path: PathBuf,
}

impl Ground {
    /// Opens the directory that the user named. Links on the way to it are the user's own.
    ///
    /// # Errors
    /// As of open(2).
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = rustix::fs::open(path, WALK.difference(OFlags::NOFOLLOW), Mode::empty())?;
        Ok(Self { directory, path: path.to_owned() })
    }

    /// The path of something below, for people.
    pub(super) fn shown(&self, below: &Path) -> String {
        // Joined with nothing, it would end with a slash.
        if below.as_os_str().is_empty() { self.path.clone() } else { self.path.join(below) }
            .display()
            .to_string()
    }

    /// A file to write from its beginning: a new one, or the regular file that is there.
    ///
    /// # Errors
    /// As of open(2), and when what is there is a link or no regular file.
    pub(super) fn create(&self, below: &Path, mode: u32) -> io::Result<File> {
        let (holder, name) = self.holder(below)?;
        let mode = Mode::from_raw_mode((mode & 0o777 | 0o200) as rustix::fs::RawMode);
        let file =
            File::from(rustix::fs::openat(self.at(holder.as_ref()), &name, WRITE, mode).map_err(refused)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("there is something of this name that is no regular file"));
        }
        file.set_len(0)?;
        Ok(file)
    }

    /// Makes a directory, or finds it.
    ///
    /// # Errors
    /// As of mkdir(2), and when something else is there.
    pub(super) fn make_directory(&self, below: &Path) -> io::Result<()> {
        if below.as_os_str().is_empty() {
            return Ok(());
        }
        let (holder, name) = self.holder(below)?;
        let at = self.at(holder.as_ref());
        // Written to while it is filled; the mode comes afterwards.
        match rustix::fs::mkdirat(at, &name, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) => open_directory(at, &name).map(drop),
            other => Ok(other?),
        }
    }

    /// A directory that the copy has filled, to set its mode and times.
    ///
    /// # Errors
    /// As of open(2), and when it is another thing by now.
    pub(super) fn directory(&self, below: &Path) -> io::Result<File> {
        let (holder, name) = self.holder(below)?;
        open_directory(self.at(holder.as_ref()), &name).map(File::from)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As of symlink(2).
    pub(super) fn link(&self, target: &str, below: &Path) -> io::Result<()> {
        let (holder, name) = self.holder(below)?;
        Ok(rustix::fs::symlinkat(target, self.at(holder.as_ref()), &name)?)
    }

    fn at<'a>(&'a self, holder: Option<&'a OwnedFd>) -> BorrowedFd<'a> {
        holder.unwrap_or(&self.directory).as_fd()
    }

    /// The directory right above, unless it is this one; and the name in it.
    fn holder(&self, below: &Path) -> io::Result<(Option<OwnedFd>, OsString)> {
        let elsewhere = || io::Error::new(io::ErrorKind::InvalidInput, "the name leads elsewhere");
        let mut at = None;
        let mut components = below.components();
        let Some(Component::Normal(name)) = components.next_back() else { return Err(elsewhere()) };
        for component in components {
            let Component::Normal(step) = component else { return Err(elsewhere()) };
            at = Some(open_directory(self.at(at.as_ref()), step)?);
        }
        Ok((at, name.to_owned()))
    }
}

fn open_directory(at: BorrowedFd<'_>, name: &std::ffi::OsStr) -> io::Result<OwnedFd> {
    rustix::fs::openat(at, name, WALK, Mode::empty()).map_err(|errno| match errno {
        // Linux says ENOTDIR of a link, too, where a directory is asked for.
        Errno::NOTDIR if is_link(at, name) => refused(Errno::LOOP),
        other => refused(other),
    })
}

fn is_link(at: BorrowedFd<'_>, name: &std::ffi::OsStr) -> bool {
    rustix::fs::readlinkat(at, name, Vec::new()).is_ok()
}

fn refused(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP => {
            io::Error::other("there is a link of this name, which a copy does not write through; remove it")
        }
        Errno::NXIO => io::Error::other("there is something of this name that is no regular file"),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_is_below_and_no_link_is_reached() {
        let work = tempfile::tempdir().unwrap();
        fs::create_dir(work.path().join("in")).unwrap();
        fs::write(work.path().join("out"), "kept").unwrap();
        let ground = Ground::open(&work.path().join("in")).unwrap();
        for below in ["", "..", "../out", "/etc/passwd", "a/../../out", "."] {
            assert!(ground.create(Path::new(below), 0o644).is_err(), "{below}");
            assert!(ground.link("x", Path::new(below)).is_err(), "{below}");
        }
        ground.make_directory(Path::new("a")).unwrap();
        ground.make_directory(Path::new("a")).unwrap();
        ground.create(Path::new("a/file"), 0o600).unwrap().write_all(b"written").unwrap();
        assert_eq!(fs::read(work.path().join("in/a/file")).unwrap(), b"written");
        ground.link("../out", Path::new("file")).unwrap();
        ground.link("..", Path::new("up")).unwrap();
        for (made, below) in [
            (ground.create(Path::new("file"), 0o644).map(drop), "file"),
            (ground.create(Path::new("up/out"), 0o644).map(drop), "up/out"),
            (ground.make_directory(Path::new("up")), "up"),
            (ground.directory(Path::new("up")).map(drop), "up"),
        ] {
            let error = made.unwrap_err().to_string();
            assert!(error.contains("a link of this name"), "{below}: {error}");
        }
        assert_eq!(fs::read(work.path().join("out")).unwrap(), b"kept");
        // Moved away from under the copy, and a link in its place.
        fs::rename(work.path().join("in"), work.path().join("moved")).unwrap();
        symlink(".", work.path().join("in")).unwrap();
        drop(ground.create(Path::new("out"), 0o644).unwrap());
        assert_eq!(fs::read(work.path().join("out")).unwrap(), b"kept");
    }
}
