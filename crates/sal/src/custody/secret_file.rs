//! Files that hold a secret.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::SalError;

/// Opens a file with a secret, after checking that it is a regular one, ours, and closed to every other account. Gives its
/// length too, in bytes.
///
/// # Errors
/// [`SalError::NotAFile`], [`SalError::WrongOwner`], [`SalError::LooseMode`] or [`SalError::File`]; each says what to
/// do. A file that is not there is a [`SalError::File`] whose source has the kind `NotFound`.
pub(super) fn open(path: &Path) -> Result<(File, u64), SalError> {
    let failed = |action| move |source| SalError::File { action, path: path.to_owned(), source };
    // The checks below are on the open file, so that it cannot be swapped between the check and the read; a symbolic
    // link is refused by the open itself.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(SalError::NotAFile { path: path.to_owned(), found: "a symbolic link" });
        }
        Err(error) => return Err(failed("open")(error)),
    };
    let metadata = file.metadata().map_err(failed("inspect"))?;
    if metadata.is_dir() {
        return Err(SalError::NotAFile { path: path.to_owned(), found: "a directory" });
    }
    if !metadata.is_file() {
        return Err(SalError::NotAFile { path: path.to_owned(), found: "a device, pipe or socket" });
    }
    let expected = rustix::process::geteuid().as_raw();
    if metadata.uid() != expected {
        return Err(SalError::WrongOwner { path: path.to_owned(), owner: metadata.uid(), expected });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SalError::LooseMode { path: path.to_owned(), mode });
    }
    Ok((file, metadata.len()))
}
