//! What each request does.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::attributes::{self, Names, Wanted};
use super::digest::{Content, Digest};
use super::packet::{Fields, MAX_DATA_BYTES, MAX_HANDLES, MAX_PACKET_BYTES, Reply};
use super::system::{expand, path, real_path, rename_new, set_by_file, set_by_path, set_link};
use crate::printable::printable;
use crate::session::FileOperation;

const INIT: u8 = 1;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const WRITE: u8 = 6;
const LSTAT: u8 = 7;
const FSTAT: u8 = 8;
const SETSTAT: u8 = 9;
const FSETSTAT: u8 = 10;
const OPENDIR: u8 = 11;
const READDIR: u8 = 12;
const REMOVE: u8 = 13;
const MKDIR: u8 = 14;
const RMDIR: u8 = 15;
const REALPATH: u8 = 16;
const STAT: u8 = 17;
const RENAME: u8 = 18;
const READLINK: u8 = 19;
const SYMLINK: u8 = 20;
const EXTENDED: u8 = 200;

const VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
const EXTENDED_REPLY: u8 = 201;

/// Most entries of a directory in one answer.
const ENTRIES: usize = 128;
/// The extensions of OpenSSH's PROTOCOL file that are served, with their versions.
const EXTENSIONS: &[(&str, &str)] = &[
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
];

/// Why a request is not done.
enum Failure {
    /// The client broke the protocol; the connection ends.
    Protocol(io::Error),
    /// There is no more: the end of a file or directory.
    End,
    /// Nothing here serves that.
    Unsupported(String),
    /// No such handle.
    BadHandle,
    /// The system said no.
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData { Self::Protocol(error) } else { Self::System(error) }
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

enum Open {
    File { file: File, path: Vec<u8>, append: bool, read: u64, written: u64, digest: Option<Digest> },
    Directory { entries: fs::ReadDir, path: PathBuf, dots: bool, ended: bool },
}

/// A client's open files.
pub(super) struct Files<F: FnMut(FileOperation)> {
    report: F,
    open: HashMap<u32, Open>,
    next: u32,
    names: Names,
    /// Whether contents are hashed.
    hash: bool,
}

impl<F: FnMut(FileOperation)> Files<F> {
    pub(super) fn new(report: F, hash: bool) -> Self {
        Self { report, open: HashMap::new(), next: 0, names: Names::default(), hash }
    }

    /// Does one request and puts the answer into `reply`.
    pub(super) fn answer(&mut self, kind: u8, mut fields: Fields<'_>, reply: &mut Reply) -> io::Result<()> {
        if kind == INIT {
            fields.u32()?;
            reply.begin(VERSION).u32(3);
            for (name, version) in EXTENSIONS {
                reply.string(name.as_bytes()).string(version.as_bytes());
            }
            return Ok(());
        }
        let id = fields.u32()?;
        let (code, message) = match self.act(kind, id, &mut fields, reply) {
            Ok(true) => return Ok(()),
            Ok(false) => (0, "done".to_owned()),
            Err(Failure::Protocol(error)) => return Err(error),
            Err(Failure::End) => (1, "end of file".to_owned()),
            Err(Failure::Unsupported(what)) => (8, format!("{what} is not served here")),
            Err(Failure::BadHandle) => (4, "no such handle".to_owned()),
            Err(Failure::System(error)) => {
                let code = match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => 2,
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => 3,
                    _ => 4,
                };
                (code, describe(&error))
            }
        };
        reply.begin(STATUS).u32(id).u32(code).string(message.as_bytes()).string(b"en");
        Ok(())
    }

    /// Closes what the client left open.
    pub(super) fn close_all(&mut self) {
        let handles: Vec<u32> = self.open.keys().copied().collect();
        for handle in handles {
            // Closing cannot fail in a way that the client, who has gone, could hear of.
            let _ = self.close(handle);
        }
    }

    /// True when the reply is complete; false when it is a plain "done".
    fn act(
        &mut self,
        kind: u8,
        id: u32,
        fields: &mut Fields<'_>,
        reply: &mut Reply,
    ) -> Result<bool, Failure> {
        match kind {
            OPEN => {
                let path = fields.string()?;
                let flags = fields.u32()?;
                let wanted = Wanted::read(fields)?;
                let handle = self.open_file(path, flags, &wanted)?;
                reply.begin(HANDLE).u32(id).string(&handle.to_be_bytes());
            }
            CLOSE => {
                let handle = handle(fields)?;
                self.close(handle)?;
                return Ok(false);
            }
            READ => self.read(id, fields, reply)?,
            WRITE => {
                self.write(fields)?;
                return Ok(false);
            }
            LSTAT | STAT => {
                let path = path(fields.string()?);
                let metadata = if kind == STAT { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
                reply.begin(ATTRS).u32(id);
                attributes::write(reply, &metadata);
            }
            FSTAT => {
                let handle = handle(fields)?;
                let metadata = match self.open.get(&handle) {
                    Some(Open::File { file, .. }) => file.metadata()?,
                    Some(Open::Directory { path, .. }) => fs::metadata(path)?,
                    None => return Err(Failure::BadHandle),
                };
                reply.begin(ATTRS).u32(id);
                attributes::write(reply, &metadata);
            }
            SETSTAT => {
                let path = fields.string()?;
                let wanted = Wanted::read(fields)?;
                let result = set_by_path(self::path(path), &wanted);
                self.reported("setstat", path, Some(wanted.describe().as_bytes()), result)?;
                return Ok(false);
            }
            FSETSTAT => {
                let handle = handle(fields)?;
                let wanted = Wanted::read(fields)?;
                let (result, path) = match self.open.get(&handle) {
                    Some(Open::File { file, path, .. }) => (set_by_file(file, &wanted), path.clone()),
                    _ => return Err(Failure::BadHandle),
                };
                self.reported("setstat", &path, Some(wanted.describe().as_bytes()), result)?;
                return Ok(false);
            }
            OPENDIR => {
                let bytes = fields.string()?;
                let result = self.room().and_then(|()| fs::read_dir(path(bytes)));
                let entries = self.reported("list", bytes, None, result)?;
                let open =
                    Open::Directory { entries, path: path(bytes).to_owned(), dots: false, ended: false };
                let handle = self.keep(open);
                reply.begin(HANDLE).u32(id).string(&handle.to_be_bytes());
            }
            READDIR => self.read_directory(id, fields, reply)?,
            REMOVE => {
                let bytes = fields.string()?;
                self.reported("remove", bytes, None, fs::remove_file(path(bytes)))?;
                return Ok(false);
            }
            MKDIR => {
                let bytes = fields.string()?;
                let wanted = Wanted::read(fields)?;
                let mode = wanted.permissions.unwrap_or(0o777) & 0o7777;
                let result = fs::DirBuilder::new().mode(mode).create(path(bytes));
                self.reported("mkdir", bytes, None, result)?;
                return Ok(false);
            }
            RMDIR => {
                let bytes = fields.string()?;
                self.reported("rmdir", bytes, None, fs::remove_dir(path(bytes)))?;
                return Ok(false);
            }
            REALPATH => {
                let real = real_path(path(fields.string()?))?;
                one_name(reply, id, real.as_os_str().as_bytes());
            }
            RENAME => {
                let (from, to) = (fields.string()?, fields.string()?);
                let result = rename_new(path(from), path(to));
                self.reported("rename", from, Some(to), result)?;
                return Ok(false);
            }
            READLINK => {
                let target = fs::read_link(path(fields.string()?))?;
                one_name(reply, id, target.as_os_str().as_bytes());
            }
            SYMLINK => {
                // OpenSSH's order, which every client follows: the target first (its PROTOCOL file, §4.1).
                let (target, link) = (fields.string()?, fields.string()?);
                let result = std::os::unix::fs::symlink(path(target), path(link));
                self.reported("symlink", link, Some(target), result)?;
                return Ok(false);
            }
            EXTENDED => return self.extended(id, fields, reply),
            other => return Err(Failure::Unsupported(format!("request {other}"))),
        }
        Ok(true)
    }

    fn extended(&mut self, id: u32, fields: &mut Fields<'_>, reply: &mut Reply) -> Result<bool, Failure> {
        match fields.string()? {
            b"posix-rename@openssh.com" => {
                let (from, to) = (fields.string()?, fields.string()?);
                self.reported("rename", from, Some(to), fs::rename(path(from), path(to)))?;
                Ok(false)
            }
            b"hardlink@openssh.com" => {
                let (from, to) = (fields.string()?, fields.string()?);
                self.reported("link", to, Some(from), fs::hard_link(path(from), path(to)))?;
                Ok(false)
            }
            b"lsetstat@openssh.com" => {
                let bytes = fields.string()?;
                let wanted = Wanted::read(fields)?;
                let result = set_link(path(bytes), &wanted);
                self.reported("setstat", bytes, Some(wanted.describe().as_bytes()), result)?;
                Ok(false)
            }
            b"fsync@openssh.com" => match self.open.get(&handle(fields)?) {
                Some(Open::File { file, .. }) => {
                    file.sync_all()?;
                    Ok(false)
                }
                _ => Err(Failure::BadHandle),
            },
            b"statvfs@openssh.com" => {
                let found = rustix::fs::statvfs(path(fields.string()?))?;
                statvfs(reply, id, &found);
                Ok(true)
            }
            b"fstatvfs@openssh.com" => match self.open.get(&handle(fields)?) {
                Some(Open::File { file, .. }) => {
                    let found = rustix::fs::fstatvfs(file)?;
                    statvfs(reply, id, &found);
                    Ok(true)
                }
                Some(Open::Directory { path, .. }) => {
                    let found = rustix::fs::statvfs(path.as_path())?;
                    statvfs(reply, id, &found);
                    Ok(true)
                }
                None => Err(Failure::BadHandle),
            },
            b"limits@openssh.com" => {
                reply.begin(EXTENDED_REPLY).u32(id);
                for limit in [MAX_PACKET_BYTES, MAX_DATA_BYTES, MAX_DATA_BYTES, MAX_HANDLES] {
                    reply.u64(limit as u64);
                }
                Ok(true)
            }
            b"expand-path@openssh.com" => {
                let expanded = expand(fields.string()?)?;
                let real = real_path(&expanded)?;
                one_name(reply, id, real.as_os_str().as_bytes());
                Ok(true)
            }
            other => Err(Failure::Unsupported(printable(other))),
        }
    }

    fn open_file(&mut self, bytes: &[u8], flags: u32, wanted: &Wanted) -> Result<u32, Failure> {
        let on = |flag: u32| flags & flag != 0;
        let (read, write, append) = (on(0x1), on(0x2), on(0x4));
        let (create, truncate, exclusive) = (on(0x8), on(0x10), on(0x20));
        let mut options = OpenOptions::new();
        options.read(read || !(write || append)).write(write && !append).append(append);
        options.mode(wanted.permissions.unwrap_or(0o666) & 0o7777);
        if write || append {
            options.create(create).truncate(truncate && !append).create_new(create && exclusive);
        }
        let result = self.room().and_then(|()| options.open(path(bytes)));
        let intent = match (read, write || append) {
            (true, true) => "read, write",
            (false, true) => "write",
            _ => "read",
        };
        let file = self.reported("open", bytes, Some(intent.as_bytes()), result)?;
        if append && truncate {
            file.set_len(0)?;
        }
        // A device or a pipe has no content that could be told by a hash.
        let regular = file.metadata().is_ok_and(|about| about.is_file());
        let digest = (self.hash && regular).then(Digest::new);
        Ok(self.keep(Open::File { file, path: bytes.to_owned(), append, read: 0, written: 0, digest }))
    }

    fn read(&mut self, id: u32, fields: &mut Fields<'_>, reply: &mut Reply) -> Result<(), Failure> {
        let handle = handle(fields)?;
        let offset = fields.u64()?;
        let length = usize::try_from(fields.u32()?).unwrap_or(usize::MAX).min(MAX_DATA_BYTES);
        let Some(Open::File { file, read, digest, .. }) = self.open.get_mut(&handle) else {
            return Err(Failure::BadHandle);
        };
        reply.begin(DATA).u32(id);
        let count = reply.string_with(length, |place| {
            loop {
                match file.read_at(place, offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(count) => {
                        if let Some(digest) = digest.as_mut().filter(|_| count > 0) {
                            digest.passed(offset, place.get(..count).unwrap_or_default());
                        }
                        return Ok(count);
                    }
                    Err(error) => return Err(error),
                }
            }
        })?;
        if count == 0 && length > 0 {
            return Err(Failure::End);
        }
        *read += count as u64;
        Ok(())
    }

    fn write(&mut self, fields: &mut Fields<'_>) -> Result<(), Failure> {
        let handle = handle(fields)?;
        let offset = fields.u64()?;
        let data = fields.string()?;
        let Some(Open::File { file, append, written, digest, .. }) = self.open.get_mut(&handle) else {
            return Err(Failure::BadHandle);
        };
        if *append {
            io::Write::write_all(file, data)?;
        } else {
            file.write_all_at(data, offset)?;
        }
        if let Some(digest) = digest {
            digest.passed(offset, data);
        }
        *written += data.len() as u64;
        Ok(())
    }

    fn read_directory(&mut self, id: u32, fields: &mut Fields<'_>, reply: &mut Reply) -> Result<(), Failure> {
        let handle = handle(fields)?;
        let Some(Open::Directory { entries, path, dots, ended }) = self.open.get_mut(&handle) else {
            return Err(Failure::BadHandle);
        };
        let mut found: Vec<(Vec<u8>, fs::Metadata)> = Vec::new();
        if !*dots {
            *dots = true;
            for name in [".", ".."] {
                if let Ok(metadata) = fs::symlink_metadata(path.join(name)) {
                    found.push((name.into(), metadata));
                }
            }
        }
        let mut size = 0;
        while !*ended && found.len() < ENTRIES && size < MAX_DATA_BYTES / 4 {
            match entries.next() {
                None => *ended = true,
                Some(entry) => {
                    let entry = entry?;
                    let name = entry.file_name().as_bytes().to_owned();
                    // An entry that was removed meanwhile is not there.
                    if let Ok(metadata) = entry.metadata() {
                        size += 2 * name.len() + 128;
                        found.push((name, metadata));
                    }
                }
            }
        }
        if found.is_empty() {
            return Err(Failure::End);
        }
        reply.begin(NAME).u32(id).u32(u32::try_from(found.len()).unwrap_or(u32::MAX));
        for (name, metadata) in &found {
            let long = attributes::long_name(name, metadata, &mut self.names);
            reply.string(name).string(&long);
            attributes::write(reply, metadata);
        }
        Ok(())
    }

    fn close(&mut self, handle: u32) -> Result<(), Failure> {
        match self.open.remove(&handle) {
            None => Err(Failure::BadHandle),
            Some(Open::Directory { .. }) => Ok(()),
            Some(Open::File { file, path, read, written, digest, .. }) => {
                let size = file.metadata().ok().filter(fs::Metadata::is_file).map(|about| about.len());
                let content = match (digest, size) {
                    (Some(digest), Some(size)) if read + written > 0 => {
                        Some(digest.finish(&file, read, written, size))
                    }
                    _ => None,
                };
                let (sha256, unhashed) = match content {
                    Some(Content::Known(hash)) => (Some(hash), None),
                    Some(Content::Unknown(why)) => (None, Some(why.to_owned())),
                    None => (None, None),
                };
                (self.report)(FileOperation {
                    read,
                    written,
                    size,
                    sha256,
                    unhashed,
                    ..FileOperation::new("close", printable(&path))
                });
                Ok(())
            }
        }
    }

    fn room(&self) -> io::Result<()> {
        if self.open.len() < MAX_HANDLES {
            Ok(())
        } else {
            Err(io::Error::other(format!("{MAX_HANDLES} files are open already; close some")))
        }
    }

    fn keep(&mut self, open: Open) -> u32 {
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let handle = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(handle, open);
        handle
    }

    /// Reports an operation as it ended and passes its result on.
    fn reported<T>(
        &mut self,
        operation: &str,
        path: &[u8],
        target: Option<&[u8]>,
        result: io::Result<T>,
    ) -> Result<T, Failure> {
        (self.report)(FileOperation {
            target: target.filter(|target| !target.is_empty()).map(printable),
            error: result.as_ref().err().map(describe),
            ..FileOperation::new(operation, printable(path))
        });
        // What the system calls invalid data is not the protocol's doing.
        result.map_err(Failure::System)
    }
}

fn describe(error: &io::Error) -> String {
    // The system's own words without Rust's "(os error 2)".
    match rustix::io::Errno::from_io_error(error) {
        Some(code) => nix::errno::Errno::from_raw(code.raw_os_error()).desc().to_owned(),
        None => error.to_string(),
    }
}

fn handle(fields: &mut Fields<'_>) -> io::Result<u32> {
    let bytes = fields.string()?;
    Ok(bytes.try_into().map(u32::from_be_bytes).unwrap_or(u32::MAX))
}

fn one_name(reply: &mut Reply, id: u32, name: &[u8]) {
    reply.begin(NAME).u32(id).u32(1).string(name).string(name).u32(0);
}

/// OpenSSH's PROTOCOL file, §3.4.
fn statvfs(reply: &mut Reply, id: u32, found: &rustix::fs::StatVfs) {
    let mut flags = 0;
    if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        flags |= 1;
    }
    if found.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID) {
        flags |= 2;
    }
    reply.begin(EXTENDED_REPLY).u32(id);
    for value in [
        found.f_bsize,
        found.f_frsize,
        found.f_blocks,
        found.f_bfree,
        found.f_bavail,
        found.f_files,
        found.f_ffree,
        found.f_favail,
        found.f_fsid,
        flags,
        found.f_namemax,
    ] {
        reply.u64(value);
    }
}
