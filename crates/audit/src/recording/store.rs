//! The recordings that the authority holds.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::SessionId;
use sallyport_sal::hpke::RecipientKeys;

use super::frame::{Exit, SessionMetadata};
use super::reader::Reader;

/// Why the store refuses or fails.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such recording.
    #[error("there is no recording of session {0}")]
    NotFound(SessionId),
    /// The upload does not continue where the store ends.
    #[error("the recording has {have} bytes, the upload begins at {got}")]
    Offset {
        /// Bytes in the store.
        have: u64,
        /// Offset of the upload.
        got: u64,
    },
    /// Nothing is added to a recording that was said to be whole.
    #[error("the recording of session {0} is closed")]
    Closed(SessionId),
    /// It is held.
    #[error("the recording of session {0} is held; release it first: sallyport recordings release {0}")]
    Held(SessionId),
    /// More may come.
    #[error("the recording of session {0} may still grow; its node has not said that it is over")]
    Live(SessionId),
    /// Another host began it.
    #[error("the recording of session {0} belongs to another host")]
    Owner(SessionId),
    /// The disk.
    #[error("the recording of session {session}: {source}")]
    Io {
        /// The session.
        session: SessionId,
        /// What the system says.
        source: io::Error,
    },
}

/// How much of a recording there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingState {
    /// More may come.
    Live,
    /// All of it, with its end.
    Complete,
    /// All that will ever come, without its end.
    Interrupted,
}

impl RecordingState {
    /// As the API says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
        }
    }
}

/// One recording, without its content.
#[derive(Debug, Clone)]
pub struct RecordingEntry {
    /// The session.
    pub session: SessionId,
    /// Bytes on disk.
    pub bytes: u64,
    /// How much of it there is.
    pub state: RecordingState,
    /// Whose, where, when; none when the beginning is damaged.
    pub metadata: Option<SessionMetadata>,
    /// Until the last frame.
    pub duration: Duration,
    /// How it ended.
    pub exit: Option<Exit>,
    /// Parts that cannot be read, if any are known.
    pub damaged: bool,
}

/// A recording that is being removed.
#[derive(Debug, Clone)]
pub struct Aside {
    /// Its bytes on disk.
    pub bytes: u64,
    /// Whose it is; none when the beginning is damaged.
    pub metadata: Option<SessionMetadata>,
}

/// The suffix of a recording between the decision to remove it and its removal.
const ASIDE: &str = "aside";

/// Recordings in a directory: `SESSION.rec`, and `SESSION.owner` with the host that uploads it, and `SESSION.closed`
/// once it has said that no more will come. `SESSION.aside` is one that is about to go.
pub struct RecordingStore {
    directory: PathBuf,
    key: Arc<RecipientKeys>,
    /// What was read of recordings: of those that may grow, it counts for as long as they have not.
    known: Mutex<HashMap<SessionId, RecordingEntry>>,
    /// Held while a recording changes; several share one. Two uploads of the same one, of which the first was given up
    /// by its host, would otherwise both find their place and write there.
    changing: [Mutex<()>; 64],
}

impl fmt::Debug for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl RecordingStore {
    /// Opens the directory, making it if needed.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(directory: &Path, key: Arc<RecipientKeys>) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            key,
            known: Mutex::default(),
            changing: std::array::from_fn(|_| Mutex::default()),
        })
    }

    fn changing(&self, session: SessionId) -> Option<MutexGuard<'_, ()>> {
        let sum = session.to_string().bytes().map(usize::from).sum::<usize>();
        let lock = self.changing.get(sum % self.changing.len())?;
        Some(lock.lock())
    }

    fn path(&self, session: SessionId, suffix: &str) -> PathBuf {
        self.directory.join(format!("{session}.{suffix}"))
    }

    /// How many bytes there are, and whether more may come. A session that is not known has none.
    ///
    /// # Errors
    /// [`StoreError::Owner`] when another host uploads it.
    pub fn offset(&self, session: SessionId, host: &str) -> Result<(u64, bool), StoreError> {
        self.check_owner(session, host)?;
        let length = match fs::metadata(self.path(session, "rec")) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(StoreError::Io { session, source }),
        };
        Ok((length, self.path(session, "closed").exists()))
    }

    fn check_owner(&self, session: SessionId, host: &str) -> Result<(), StoreError> {
        match fs::read_to_string(self.path(session, "owner")) {
            Ok(owner) if owner == host => Ok(()),
            Ok(_) => Err(StoreError::Owner(session)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StoreError::Io { session, source }),
        }
    }

    /// Appends bytes at `offset`, which must be the end; gives the new end. The first upload makes `host` the only one
    /// that may go on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn append(
        &self,
        session: SessionId,
        host: &str,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, StoreError> {
        let _changing = self.changing(session);
        let (have, closed) = self.offset(session, host)?;
        if closed {
            return Err(StoreError::Closed(session));
        }
        if have != offset {
            return Err(StoreError::Offset { have, got: offset });
        }
        let failed = |source| StoreError::Io { session, source };
        if have == 0 {
            self.write_whole(session, "owner", host.as_bytes()).map_err(failed)?;
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.path(session, "rec"))
            .map_err(failed)?;
        if let Err(error) = file.write_all(bytes) {
            let _ = file.set_len(have);
            return Err(failed(error));
        }
        Ok(have + bytes.len() as u64)
    }

    /// Puts what there is of a recording on disk for good, for it to be closed; gives what it is then. Closing it needs
    /// no room on the disk any more, so that what is put on record in between stays true.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn settle(&self, session: SessionId, host: &str) -> Result<RecordingEntry, StoreError> {
        let _changing = self.changing(session);
        self.check_owner(session, host)?;
        let failed = |source| StoreError::Io { session, source };
        let file = File::open(self.path(session, "rec")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound(session),
            _ => failed(error),
        })?;
        file.sync_data().map_err(failed)?;
        self.write_beside(session, "closed", b"").map_err(failed)?;
        self.read_entry(session, true)
    }

    /// Notes that no more will come. [`RecordingStore::settle`] comes before.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn close(&self, session: SessionId, host: &str) -> Result<RecordingEntry, StoreError> {
        let _changing = self.changing(session);
        self.check_owner(session, host)?;
        self.put_in_place(session, "closed").map_err(|source| StoreError::Io { session, source })?;
        self.entry(session)
    }

    fn write_whole(&self, session: SessionId, suffix: &str, content: &[u8]) -> io::Result<()> {
        self.write_beside(session, suffix, content)?;
        self.put_in_place(session, suffix)
    }

    fn write_beside(&self, session: SessionId, suffix: &str, content: &[u8]) -> io::Result<()> {
        let beside = self.path(session, &format!("{suffix}.new"));
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(content)?;
            file.sync_data()
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })
    }

    fn put_in_place(&self, session: SessionId, suffix: &str) -> io::Result<()> {
        fs::rename(self.path(session, &format!("{suffix}.new")), self.path(session, suffix))
    }

    /// What is known of one recording.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn entry(&self, session: SessionId) -> Result<RecordingEntry, StoreError> {
        if let Some(known) = self.known(session) {
            return Ok(known);
        }
        let closed = self.path(session, "closed").exists();
        let entry = self.read_entry(session, closed)?;
        self.known.lock().insert(session, entry.clone());
        Ok(entry)
    }

    /// What was read of a recording before, if that is still all that there is of it. It opens nothing.
    #[must_use]
    pub fn known(&self, session: SessionId) -> Option<RecordingEntry> {
        let known = self.known.lock().get(&session).cloned()?;
        if known.state != RecordingState::Live {
            return Some(known);
        }
        let bytes = fs::metadata(self.path(session, "rec")).ok()?.len();
        (bytes == known.bytes && !self.path(session, "closed").exists()).then_some(known)
    }

    fn read_entry(&self, session: SessionId, closed: bool) -> Result<RecordingEntry, StoreError> {
        let path = self.path(session, "rec");
        let bytes = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NotFound(session));
            }
            Err(source) => return Err(StoreError::Io { session, source }),
        };
        let mut entry = RecordingEntry {
            session,
            bytes,
            state: if closed { RecordingState::Interrupted } else { RecordingState::Live },
            metadata: None,
            duration: Duration::ZERO,
            exit: None,
            damaged: true,
        };
        if let Ok(mut reader) = self.reader(session)
            && let Ok(summary) = reader.summary()
        {
            if closed && summary.complete {
                entry.state = RecordingState::Complete;
            }
            entry.damaged = !reader.damage().is_empty() || summary.metadata.is_none();
            entry.metadata = summary.metadata;
            entry.duration = summary.duration;
            entry.exit = summary.exit;
        }
        Ok(entry)
    }

    /// Opens a recording for playing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn reader(&self, session: SessionId) -> Result<Reader<io::BufReader<File>>, StoreError> {
        self.reader_of(session, "rec")
    }

    fn reader_of(&self, session: SessionId, suffix: &str) -> Result<Reader<io::BufReader<File>>, StoreError> {
        let file = File::open(self.path(session, suffix)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound(session),
            _ => StoreError::Io { session, source: error },
        })?;
        Reader::open(io::BufReader::with_capacity(256 * 1024, file), &self.key)
            .map_err(|source| StoreError::Io { session, source })
    }

    /// Takes a recording away so that it can be put on record that it was removed, and then be discarded. From here on
    /// there is no such recording. One that may still grow is taken only when nothing was added for `silence`: its host
    /// is gone.
    ///
    /// # Errors
    /// [`StoreError::Held`], [`StoreError::Live`] and the disk's.
    pub fn set_aside(&self, session: SessionId, silence: Duration) -> Result<Aside, StoreError> {
        let changing = self.changing(session);
        let failed = |source| StoreError::Io { session, source };
        if self.is_held(session) {
            return Err(StoreError::Held(session));
        }
        let path = self.path(session, "rec");
        let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound(session),
            _ => failed(error),
        })?;
        let quiet = metadata.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
        if !self.path(session, "closed").exists() && quiet < silence {
            return Err(StoreError::Live(session));
        }
        fs::rename(&path, self.path(session, ASIDE)).map_err(failed)?;
        self.known.lock().remove(&session);
        drop(changing);
        self.aside(session)
    }

    /// What was set aside.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and the disk's.
    pub fn aside(&self, session: SessionId) -> Result<Aside, StoreError> {
        let metadata = fs::metadata(self.path(session, ASIDE)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound(session),
            _ => StoreError::Io { session, source: error },
        })?;
        // One whose beginning is damaged can go as well.
        let read = self
            .reader_of(session, ASIDE)
            .and_then(|mut reader| reader.summary().map_err(|source| StoreError::Io { session, source }));
        Ok(Aside { bytes: metadata.len(), metadata: read.ok().and_then(|summary| summary.metadata) })
    }

    /// Puts back what was set aside: it stays after all.
    ///
    /// # Errors
    /// The disk's.
    pub fn put_back(&self, session: SessionId) -> Result<(), StoreError> {
        let _changing = self.changing(session);
        fs::rename(self.path(session, ASIDE), self.path(session, "rec"))
            .map_err(|source| StoreError::Io { session, source })
    }

    /// Removes what was set aside for good.
    ///
    /// # Errors
    /// The disk's.
    pub fn discard(&self, session: SessionId) -> Result<(), StoreError> {
        let _changing = self.changing(session);
        fs::remove_file(self.path(session, ASIDE)).map_err(|source| StoreError::Io { session, source })?;
        // A host that was taken for gone may have begun to upload it anew.
        if !self.path(session, "rec").exists() {
            for suffix in ["owner", "closed"] {
                let _ = fs::remove_file(self.path(session, suffix));
            }
        }
        Ok(())
    }

    /// Keeps a recording from being removed, or no longer; says whether that is news.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and the disk's.
    pub fn hold(&self, session: SessionId, hold: bool) -> Result<bool, StoreError> {
        let _changing = self.changing(session);
        if !self.path(session, "rec").exists() {
            return Err(StoreError::NotFound(session));
        }
        let news = self.is_held(session) != hold;
        let changed = match (news, hold) {
            (false, _) => Ok(()),
            (true, true) => self.write_whole(session, "held", b""),
            (true, false) => fs::remove_file(self.path(session, "held")),
        };
        changed.map_err(|source| StoreError::Io { session, source })?;
        Ok(news)
    }

    /// Whether a recording is held.
    #[must_use]
    pub fn is_held(&self, session: SessionId) -> bool {
        self.path(session, "held").exists()
    }

    /// Recordings to which nothing was added since `before`, the oldest first, at most `most`; without those held.
    ///
    /// # Errors
    /// What the system says.
    pub fn older_than(&self, before: std::time::SystemTime, most: usize) -> io::Result<Vec<SessionId>> {
        let mut old = Vec::new();
        for session in self.sessions()?.into_iter().rev() {
            if old.len() >= most {
                break;
            }
            let Ok(metadata) = fs::metadata(self.path(session, "rec")) else { continue };
            if metadata.modified()? < before && !self.is_held(session) {
                old.push(session);
            }
        }
        Ok(old)
    }

    /// Every session, the newest first.
    ///
    /// # Errors
    /// What the system says.
    pub fn sessions(&self) -> io::Result<Vec<SessionId>> {
        self.with_suffix("rec")
    }

    /// What was set aside and not discarded: the process that did it was interrupted.
    ///
    /// # Errors
    /// What the system says.
    pub fn all_aside(&self) -> io::Result<Vec<SessionId>> {
        self.with_suffix(ASIDE)
    }

    fn with_suffix(&self, suffix: &str) -> io::Result<Vec<SessionId>> {
        let mut sessions = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let Some((session, found)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
            if found == suffix {
                sessions.extend(session.parse::<SessionId>());
            }
        }
        // Ids are ordered by time.
        sessions.sort_unstable_by(|a, b| b.cmp(a));
        Ok(sessions)
    }
}
