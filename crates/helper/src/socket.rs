//! The helper's place on disk, and the two ends of its socket.

use std::fs::{self, File};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::request::{Request, answer};

/// The longest path that fits into a socket's address, without its final zero (`sun_path` of unix(7)).
const LONGEST_PATH: usize = 107;

/// Where the helper of one profile lives.
///
/// ```text
/// PROFILE/connect/         mode 0700
///                 socket   mode 0600
///                 running  locked by the helper while it takes requests
///                 starting locked by the program that starts one
///                 log      of bounded size
/// ```
#[derive(Debug, Clone)]
pub(super) struct Place {
    directory: PathBuf,
}

impl Place {
    pub(super) fn of(profile: &Path) -> Self {
        Self { directory: profile.join("connect") }
    }

    pub(super) fn create(&self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check(),
            other => other,
        }
    }

    /// Whether the directory that is there is one that this user has made, and not a link to another.
    fn check(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.directory)?;
        let problem = if !found.is_dir() {
            "is no directory"
        } else if found.uid() != rustix::process::geteuid().as_raw() {
            "belongs to another user"
        } else if found.mode() & 0o077 != 0 {
            "is open to other users (chmod 700)"
        } else {
            return Ok(());
        };
        Err(io::Error::other(format!("{} {problem}", self.directory.display())))
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Opens a lock file; one process at a time holds its lock.
    pub(super) fn lock_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let mut opening = File::options();
        opening.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        opening.open(self.directory.join(name))
    }

    /// An address of the socket that is short enough, and what must stay open meanwhile.
    fn address(&self) -> io::Result<(PathBuf, Option<OwnedFd>)> {
        let path = self.socket();
        if path.as_os_str().len() <= LONGEST_PATH {
            return Ok((path, None));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.directory, flags, Mode::empty())?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
        Ok((PathBuf::from(format!("/proc/self/fd/{number}/socket")), Some(directory)))
    }

    /// Connects to a helper, if one listens and runs as this user.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let (path, _open) = self.address()?;
        let stream = UnixStream::connect(path)?;
        if is_me(&stream)? {
            Ok(stream)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the helper runs as another user"))
        }
    }

    /// Listens, in place of a helper that is gone. The caller holds the lock.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        let _ = fs::remove_file(self.socket());
        let (path, _open) = self.address()?;
        let listener = UnixListener::bind(path)?;
        // Other users do not get as far as the socket: its directory is closed to them.
        fs::set_permissions(self.socket(), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }
}

/// Whether the other end belongs to this user.
pub fn is_me(stream: impl AsFd) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid == rustix::process::geteuid())
}

/// Sends a request with the descriptors that belong to it, of a program that can ask its person or cannot.
pub(super) fn send(
    stream: &UnixStream,
    (request, asks): (&Request, bool),
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = request.encode(asks).ok_or(io::ErrorKind::InvalidInput)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    // A fresh socket takes a few hundred bytes whole; one that does not is no helper's.
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Asks a running helper about itself.
pub(super) fn ask(place: &Place, request: &Request) -> io::Result<String> {
    let mut stream = place.connect()?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    send(&stream, (request, false), &[])?;
    let mut said = Vec::new();
    (&mut stream).take(64 * 1024).read_to_end(&mut said)?;
    match said.split_first() {
        Some((&answer::SAID, text)) => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(io::Error::other("the helper did not understand the question")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_user_gets_to_the_socket_however_long_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let long = directory.path().join("x".repeat(120));
        fs::create_dir(&long).unwrap();
        for profile in [directory.path(), &long] {
            let place = Place::of(profile);
            assert!(place.connect().is_err());
            place.create().unwrap();
            place.create().unwrap();
            let listener = place.listen().unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&place.directory), 0o700);
            assert_eq!(mode(&place.socket()), 0o600);
            let stream = place.connect().unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert!(is_me(&accepted).unwrap());
            send(&stream, (&Request::Status, false), &[]).unwrap();
        }
    }
}
