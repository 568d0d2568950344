//! What of a request the system does: names, modes, owners and times.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, RenameFlags, Uid};

use super::attributes::Wanted;
use crate::printable::printable;
use crate::session::Account;

/// As realpath(3), but the last part need not exist, and neither must anything when the first part does not.
pub(super) fn real_path(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (parent, name) = (path.parent(), path.file_name());
            match (parent, name) {
                (Some(parent), Some(name)) => {
                    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                    Ok(fs::canonicalize(parent)?.join(name))
                }
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// `~` and `~name` at the front of a path.
pub(super) fn expand(bytes: &[u8]) -> io::Result<PathBuf> {
    let Some(rest) = bytes.strip_prefix(b"~") else { return Ok(path(bytes).to_owned()) };
    let cut = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (name, tail) = rest.split_at(cut);
    let account = if name.is_empty() {
        Account::own()
    } else {
        nix::unistd::User::from_name(&printable(name))
            .ok()
            .flatten()
            .map(Account::from)
            .ok_or_else(|| crate::session::StartError::NoAccount { login: printable(name) })
    };
    let home = account.map_err(|error| io::Error::new(io::ErrorKind::NotFound, error.to_string()))?.home;
    Ok(home.join(path(tail.strip_prefix(b"/").unwrap_or(tail))))
}

/// Version 3's rename must not replace (draft §6.5); a file system that cannot promise that is asked first.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        result => Ok(result?),
    }
}

pub(super) fn mode(permissions: u32) -> Mode {
    Mode::from_raw_mode(permissions & 0o7777)
}

pub(super) fn owner(ids: (u32, u32)) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(ids.0)), Some(Gid::from_raw(ids.1)))
}

pub(super) fn set_by_path(path: &Path, wanted: &Wanted) -> io::Result<()> {
    if let Some(size) = wanted.size {
        OpenOptions::new().write(true).open(path)?.set_len(size)?;
    }
    if let Some(ids) = wanted.owner {
        let (uid, gid) = owner(ids);
        rustix::fs::chownat(CWD, path, uid, gid, AtFlags::empty())?;
    }
    if let Some(permissions) = wanted.permissions {
        fs::set_permissions(path, fs::Permissions::from_mode(permissions & 0o7777))?;
    }
    if let Some(times) = wanted.timestamps() {
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?;
    }
    Ok(())
}

pub(super) fn set_by_file(file: &File, wanted: &Wanted) -> io::Result<()> {
    if let Some(size) = wanted.size {
        file.set_len(size)?;
    }
    if let Some(ids) = wanted.owner {
        let (uid, gid) = owner(ids);
        rustix::fs::fchown(file, uid, gid)?;
    }
    if let Some(permissions) = wanted.permissions {
        rustix::fs::fchmod(file, mode(permissions))?;
    }
    if let Some(times) = wanted.timestamps() {
        rustix::fs::futimens(file, &times)?;
    }
    Ok(())
}

/// As [`set_by_path`], of the link itself. A link has no mode and no size of its own.
pub(super) fn set_link(path: &Path, wanted: &Wanted) -> io::Result<()> {
    if let Some(ids) = wanted.owner {
        let (uid, gid) = owner(ids);
        rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if let Some(times) = wanted.timestamps() {
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if wanted.size.is_some() || (wanted.permissions.is_some() && fs::symlink_metadata(path)?.is_symlink()) {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    if let Some(permissions) = wanted.permissions {
        fs::set_permissions(path, fs::Permissions::from_mode(permissions & 0o7777))?;
    }
    Ok(())
}

pub(super) fn path(bytes: &[u8]) -> &Path {
    // The draft's §6.2: an empty path is the user's default directory.
    if bytes.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(bytes)) }
}
