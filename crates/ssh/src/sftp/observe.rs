//! Reading along in an SFTP session between a client and a server that is not ours, for the recording: which files are
//! opened, read, written, renamed. Bytes in, operations out; nothing is held back, and of content nothing is kept but,
//! where it is wanted, its hash.
//!
//! A client or server that cannot be understood any more is an error, and the session ends: what passes unseen would
//! stand in no recording.

use std::collections::HashMap;
use std::io;

use super::attributes::Wanted;
use super::packet::{Fields, malformed};
use super::passing::{Passed, Passing};
use crate::printable::printable;
use crate::session::FileOperation;

const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const WRITE: u8 = 6;
const SETSTAT: u8 = 9;
const FSETSTAT: u8 = 10;
const OPENDIR: u8 = 11;
const REMOVE: u8 = 13;
const MKDIR: u8 = 14;
const RMDIR: u8 = 15;
const RENAME: u8 = 18;
const SYMLINK: u8 = 20;
const EXTENDED: u8 = 200;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
/// SSH_FX_EOF.
const END_OF_FILE: u32 = 1;

/// Longest packet that is let pass. OpenSSH's own bound is 256 KiB; some servers send longer lists.
const MAX_PACKET_BYTES: usize = 16 * 1024 * 1024;
/// Of a packet, at most this much is looked at: two paths and their attributes.
const MAX_KEPT_BYTES: usize = 64 * 1024;
/// Of a packet with content, its head: a request number, a handle, a position and a length.
const MAX_HEAD_BYTES: usize = 4 + 4 + 256 + 8 + 4;
/// Of a packet whose content is hashed, this much, more than OpenSSH ever sends; what is in longer ones stays unknown.
const MAX_CONTENT_BYTES: usize = 1024 * 1024;
/// Requests without an answer, and files that are open, on one session.
const MAX_PENDING: usize = 8192;
const MAX_OPEN: usize = 4096;

/// Why a file transfer cannot be followed any more.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// No packet is that long, or that short.
    #[error("an SFTP packet of {0} bytes")]
    Length(usize),
    /// A packet is not what its type says.
    #[error(transparent)]
    Malformed(#[from] io::Error),
    /// The client waits for no answers, or the server gives none.
    #[error("more than {MAX_PENDING} SFTP requests without an answer")]
    Pending,
    /// The client closes no files.
    #[error("more than {MAX_OPEN} files open at a time")]
    Open,
}

/// Packets of one direction.
#[derive(Default)]
struct Lane {
    /// Length and type of the packet under way, as far as they are here.
    head: Vec<u8>,
    /// What is kept of its body.
    kept: Vec<u8>,
    /// Bytes of its body that are still to come, and of those how many are kept.
    left: usize,
    keep: usize,
    /// Whether content is kept until its packet is whole.
    content: bool,
}

impl Lane {
    /// Takes bytes and calls `whole` for every packet that ends in them, with its type and what is kept of it.
    fn take(
        &mut self,
        mut bytes: &[u8],
        mut whole: impl FnMut(u8, &[u8]) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        while !bytes.is_empty() {
            if self.head.len() < 5 {
                let count = bytes.len().min(5 - self.head.len());
                let (now, rest) = bytes.split_at(count);
                self.head.extend_from_slice(now);
                bytes = rest;
                let Ok([a, b, c, d, kind]) = <[u8; 5]>::try_from(self.head.as_slice()) else { break };
                let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                if length == 0 || length > MAX_PACKET_BYTES {
                    return Err(Unreadable::Length(length));
                }
                self.left = length - 1;
                let most = match (matches!(kind, WRITE | DATA), self.content) {
                    (true, true) => MAX_CONTENT_BYTES,
                    (true, false) => MAX_HEAD_BYTES,
                    (false, _) => MAX_KEPT_BYTES,
                };
                self.keep = self.left.min(most);
            }
            let count = bytes.len().min(self.left);
            let (now, rest) = bytes.split_at(count);
            let kept = now.get(..count.min(self.keep)).unwrap_or(now);
            self.kept.extend_from_slice(kept);
            self.keep -= kept.len();
            self.left -= count;
            bytes = rest;
            if self.left == 0 {
                let kind = self.head.last().copied().unwrap_or_default();
                whole(kind, &self.kept)?;
                self.head.clear();
                self.kept.clear();
                if self.kept.capacity() > MAX_KEPT_BYTES {
                    // An idle transfer need not hold it.
                    self.kept = Vec::new();
                }
            }
        }
        Ok(())
    }
}

/// A request that was not answered yet.
enum Pending {
    Open {
        path: Vec<u8>,
        intent: &'static str,
        /// The file is empty then.
        fresh: bool,
    },
    /// A directory, whose handle is of no interest.
    List {
        path: Vec<u8>,
    },
    Close {
        handle: Vec<u8>,
    },
    Read {
        handle: Vec<u8>,
        offset: u64,
    },
    Write {
        handle: Vec<u8>,
        bytes: u64,
    },
    /// One that is told as it ended.
    Change {
        operation: &'static str,
        path: Vec<u8>,
        target: Option<Vec<u8>>,
    },
}

struct Open {
    path: Vec<u8>,
    read: u64,
    written: u64,
    /// What has passed of it, where that is wanted.
    passing: Option<Passing>,
}

/// Something that has happened to a file.
#[derive(Debug)]
pub struct Seen {
    /// What.
    pub operation: FileOperation,
    /// Of a file that was closed, its content, where that is wanted.
    pub(crate) content: Option<Passed>,
}

impl From<FileOperation> for Seen {
    fn from(operation: FileOperation) -> Self {
        Self { operation, content: None }
    }
}

/// The session so far, between a client and a server.
#[derive(Default)]
pub struct Observer {
    from_client: Lane,
    from_server: Lane,
    pending: HashMap<u32, Pending>,
    open: HashMap<Vec<u8>, Open>,
    hashes: bool,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl Observer {
    /// One that also reads what files contain, if `hashes` says so.
    #[must_use]
    pub fn new(hashes: bool) -> Self {
        let lane = || Lane { content: hashes, ..Lane::default() };
        Self { from_client: lane(), from_server: lane(), hashes, ..Self::default() }
    }

    /// Reads what the client has sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn client(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        let Self { from_client, pending, open, .. } = self;
        from_client.take(bytes, |kind, body| {
            let request = request(kind, body, open)?;
            let Some((id, request)) = request else { return Ok(()) };
            if pending.len() >= MAX_PENDING {
                return Err(Unreadable::Pending);
            }
            // Two requests with one number: of one of them it is not known what it came to.
            if let Some(Pending::Write { handle, .. } | Pending::Read { handle, .. }) =
                pending.insert(id, request)
                && let Some(passing) = passing(open, &handle)
            {
                passing.lost();
            }
            Ok(())
        })
    }

    /// Reads what the server has sent; gives what has happened by it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn server(&mut self, bytes: &[u8]) -> Result<Vec<Seen>, Unreadable> {
        let Self { from_server, pending, open, hashes, .. } = self;
        let mut happened = Vec::new();
        from_server.take(bytes, |kind, body| {
            if !(STATUS..=DATA + 2).contains(&kind) {
                return Ok(());
            }
            let mut fields = Fields::new(body);
            let id = fields.u32()?;
            let Some(request) = pending.remove(&id) else { return Ok(()) };
            let answer = answer(kind, &mut fields)?;
            happened.extend(settle(request, answer, open, *hashes)?);
            Ok(())
        })?;
        Ok(happened)
    }

    /// The session has ended: files that were not closed.
    #[must_use]
    pub fn finish(&mut self) -> Vec<Seen> {
        self.open.drain().map(|(_, file)| closed(file)).collect()
    }
}

fn passing<'a>(open: &'a mut HashMap<Vec<u8>, Open>, handle: &[u8]) -> Option<&'a mut Passing> {
    open.get_mut(handle)?.passing.as_mut()
}

/// What a request is about; `None` when it changes nothing and moves no content. What it writes passes here.
fn request(
    kind: u8,
    body: &[u8],
    open: &mut HashMap<Vec<u8>, Open>,
) -> std::io::Result<Option<(u32, Pending)>> {
    let mut fields = Fields::new(body);
    let wanted_kinds =
        matches!(kind, OPEN..=WRITE | SETSTAT..=OPENDIR | REMOVE..=RMDIR | RENAME | SYMLINK | EXTENDED);
    if !wanted_kinds {
        return Ok(None);
    }
    let id = fields.u32()?;
    let change = |operation, path: &[u8], target: Option<Vec<u8>>| Pending::Change {
        operation,
        path: path.to_owned(),
        target,
    };
    let request = match kind {
        OPEN => {
            let path = fields.string()?.to_owned();
            let flags = fields.u32()?;
            let intent = match (flags & 0x1 != 0, flags & 0x6 != 0) {
                (true, true) => "read, write",
                (false, true) => "write",
                _ => "read",
            };
            // Emptied, or made where nothing was (draft §6.3). What is appended goes wherever the end is.
            let fresh = (flags & 0x10 != 0 || flags & 0x28 == 0x28) && flags & 0x4 == 0;
            Pending::Open { path, intent, fresh }
        }
        OPENDIR => Pending::List { path: fields.string()?.to_owned() },
        CLOSE => Pending::Close { handle: fields.string()?.to_owned() },
        READ => {
            let handle = fields.string()?.to_owned();
            Pending::Read { handle, offset: fields.u64()? }
        }
        WRITE => {
            let handle = fields.string()?.to_owned();
            let (offset, bytes) = (fields.u64()?, fields.u32()?);
            if let Some(passing) = passing(open, &handle) {
                match fields.bytes(bytes) {
                    Some(content) => passing.passed(offset, content),
                    None => passing.lost(),
                }
            }
            Pending::Write { handle, bytes: u64::from(bytes) }
        }
        SETSTAT => {
            let path = fields.string()?;
            change("setstat", path, Some(Wanted::read(&mut fields)?.describe().into_bytes()))
        }
        FSETSTAT => {
            let handle = fields.string()?;
            let path = open.get(handle).map(|file| file.path.clone()).unwrap_or_default();
            let wanted = Wanted::read(&mut fields)?;
            if let Some(passing) = passing(open, handle).filter(|_| wanted.size.is_some()) {
                passing.lost();
            }
            change("setstat", &path, Some(wanted.describe().into_bytes()))
        }
        REMOVE => change("remove", fields.string()?, None),
        MKDIR => change("mkdir", fields.string()?, None),
        RMDIR => change("rmdir", fields.string()?, None),
        RENAME => {
            let from = fields.string()?;
            change("rename", from, Some(fields.string()?.to_owned()))
        }
        SYMLINK => {
            // OpenSSH has the two the other way round than the draft, and all servers follow OpenSSH.
            let target = fields.string()?.to_owned();
            change("symlink", fields.string()?, Some(target))
        }
        EXTENDED => match fields.string()? {
            b"posix-rename@openssh.com" => {
                let from = fields.string()?;
                change("rename", from, Some(fields.string()?.to_owned()))
            }
            b"hardlink@openssh.com" => {
                let from = fields.string()?.to_owned();
                change("link", fields.string()?, Some(from))
            }
            b"lsetstat@openssh.com" => {
                let path = fields.string()?;
                change("setstat", path, Some(Wanted::read(&mut fields)?.describe().into_bytes()))
            }
            // Copies on the server, of which neither side sees the content.
            b"copy-data" => {
                let from = fields.string()?;
                let path = open.get(from).map(|file| file.path.clone()).unwrap_or_default();
                fields.u64()?;
                fields.u64()?;
                let to = fields.string()?;
                let target = open.get(to).map(|file| file.path.clone());
                if let Some(passing) = passing(open, to) {
                    passing.lost();
                }
                change("copy", &path, target)
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some((id, request)))
}

enum Answer<'a> {
    Ok,
    Failed {
        code: u32,
        text: String,
    },
    Handle(Vec<u8>),
    /// How much, and what of it is here.
    Data(u64, Option<&'a [u8]>),
    /// Something that answers none of the requests that are looked at.
    Other,
}

fn answer<'a>(kind: u8, fields: &mut Fields<'a>) -> std::io::Result<Answer<'a>> {
    Ok(match kind {
        STATUS => match fields.u32()? {
            0 => Answer::Ok,
            code => {
                let text = fields.string().map(printable).unwrap_or_default();
                let text = if text.is_empty() { format!("status {code}") } else { text };
                Answer::Failed { code, text }
            }
        },
        HANDLE => {
            let handle = fields.string()?;
            // Of the draft: the length of a handle string must not exceed 256 bytes.
            if handle.len() > 256 {
                return Err(malformed("a handle that is too long"));
            }
            Answer::Handle(handle.to_owned())
        }
        DATA => {
            let length = fields.u32()?;
            Answer::Data(u64::from(length), fields.bytes(length))
        }
        _ => Answer::Other,
    })
}

fn told(operation: &str, path: &[u8], target: Option<&[u8]>, error: Option<String>) -> FileOperation {
    FileOperation {
        target: target.filter(|target| !target.is_empty()).map(printable),
        error,
        ..FileOperation::new(operation, printable(path))
    }
}

fn closed(file: Open) -> Seen {
    let Open { path, read, written, passing } = file;
    let content = passing.and_then(|passing| passing.finish(&path, read, written));
    Seen { operation: FileOperation { read, written, ..told("close", &path, None, None) }, content }
}

/// What a request has come to.
fn settle(
    request: Pending,
    answer: Answer<'_>,
    open: &mut HashMap<Vec<u8>, Open>,
    hashes: bool,
) -> Result<Option<Seen>, Unreadable> {
    let failure = match &answer {
        Answer::Failed { text, .. } => Some(text.clone()),
        _ => None,
    };
    Ok(match (request, answer) {
        (Pending::Open { path, intent, fresh }, Answer::Handle(handle)) => {
            let operation = told("open", &path, Some(intent.as_bytes()), None);
            if open.len() >= MAX_OPEN {
                return Err(Unreadable::Open);
            }
            let passing = hashes.then(|| Passing::new(fresh));
            open.insert(handle, Open { path, read: 0, written: 0, passing });
            Some(operation.into())
        }
        (Pending::Open { path, intent, .. }, _) => {
            Some(told("open", &path, Some(intent.as_bytes()), failure).into())
        }
        (Pending::List { path }, _) => Some(told("list", &path, None, failure).into()),
        (Pending::Close { handle }, Answer::Ok) => open.remove(&handle).map(closed),
        (Pending::Read { handle, offset }, Answer::Data(bytes, content)) => {
            if let Some(file) = open.get_mut(&handle) {
                file.read = file.read.saturating_add(bytes);
                match (file.passing.as_mut(), content) {
                    (Some(passing), Some(content)) => passing.passed(offset, content),
                    (Some(passing), None) => passing.lost(),
                    (None, _) => {}
                }
            }
            None
        }
        (Pending::Read { handle, offset }, Answer::Failed { code: END_OF_FILE, .. }) => {
            if let Some(passing) = passing(open, &handle) {
                passing.ends(offset);
            }
            None
        }
        (Pending::Write { handle, bytes }, Answer::Ok) => {
            if let Some(file) = open.get_mut(&handle) {
                file.written = file.written.saturating_add(bytes);
            }
            None
        }
        (Pending::Change { operation, path, target }, _) => {
            Some(told(operation, &path, target.as_deref(), failure).into())
        }
        (Pending::Write { handle, .. }, _) => {
            // What was counted in is not in the file.
            if let Some(passing) = passing(open, &handle) {
                passing.lost();
            }
            None
        }
        (Pending::Close { .. } | Pending::Read { .. }, _) => None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests;
