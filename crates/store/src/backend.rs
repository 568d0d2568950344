//! What a place for state must be able to do.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::sync::broadcast;

use crate::StoreError;

/// One key and what is under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// `kind/name`.
    pub key: String,
    /// Bytes that the backend does not look into.
    pub value: Bytes,
    /// Grows with every change anywhere in the store; never 0.
    pub revision: u64,
    /// When it ceases to exist, to the millisecond.
    pub expires: Option<OffsetDateTime>,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Fails with [`StoreError::Exists`] when the key is taken.
    Create {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
        /// Its end, if it has one.
        expires: Option<OffsetDateTime>,
    },
    /// Creates or replaces.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
        /// Its end, if it has one.
        expires: Option<OffsetDateTime>,
    },
    /// Fails with [`StoreError::Conflict`] unless the key has exactly this revision.
    CompareAndSwap {
        /// The key.
        key: String,
        /// The revision it must have.
        revision: u64,
        /// The new value.
        value: Bytes,
        /// The new end, if it has one.
        expires: Option<OffsetDateTime>,
    },
    /// Fails with [`StoreError::NotFound`] when there is no such key, and with [`StoreError::Conflict`] when a
    /// revision is given and it has another.
    Delete {
        /// The key.
        key: String,
        /// The revision it must have.
        revision: Option<u64>,
    },
    /// Changes nothing; fails with [`StoreError::Conflict`] unless the key has this revision, 0 standing for none.
    Check {
        /// The key.
        key: String,
        /// The revision it must have.
        revision: u64,
    },
}

/// Something that happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is there now, with this value.
    Put(Item),
    /// It is gone.
    Delete {
        /// The key.
        key: String,
        /// The revision of the deletion.
        revision: u64,
    },
}

impl Change {
    /// The key that it happened to.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put(item) => &item.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// When in the order of all changes.
    #[must_use]
    pub fn revision(&self) -> u64 {
        match self {
            Self::Put(item) => item.revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

/// A place for state. Every key has at most one value; an expired item does not exist for any reader.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync {
    /// The item under a key.
    ///
    /// # Errors
    /// When the state cannot be read.
    async fn get(&self, key: &str, now: OffsetDateTime) -> Result<Option<Item>, StoreError>;

    /// Items whose key begins with `prefix` and is greater than `after`, in key order, at most `limit`.
    ///
    /// # Errors
    /// When the state cannot be read.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Item>, StoreError>;

    /// Does all of the steps or none, durably. Gives the revision that each step left behind (a deletion's own, 0 for
    /// a check).
    ///
    /// # Errors
    /// The first step that failed.
    async fn transact(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError>;

    /// [`Backend::transact`] of what keeps a user or a host out, which must be possible also when the disk is full. A backend on
    /// a disk keeps room for it that nothing else takes; for others it is the same.
    ///
    /// # Errors
    /// As [`Backend::transact`].
    async fn transact_urgent(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        self.transact(ops, now).await
    }

    /// Everything under the prefixes as it is now, and every change after that.
    ///
    /// # Errors
    /// When the state cannot be read.
    async fn watch(&self, prefixes: Vec<String>, now: OffsetDateTime) -> Result<Watch, StoreError>;

    /// Removes what has expired, so that watchers hear of it; gives how many.
    ///
    /// # Errors
    /// When the state cannot be written.
    async fn sweep(&self, now: OffsetDateTime) -> Result<usize, StoreError>;

    /// Finishes what was begun and lets go of the state. Everything afterwards fails with [`StoreError::Closed`].
    async fn close(&self);
}

/// A snapshot and what follows.
#[derive(Debug)]
pub struct Watch {
    /// What there was, in key order.
    pub snapshot: Vec<Item>,
    /// What came after.
    pub changes: Changes,
}

/// The changes under some prefixes, in order.
#[derive(Debug)]
pub struct Changes {
    receiver: broadcast::Receiver<Arc<[Change]>>,
    prefixes: Arc<[String]>,
    /// What the snapshot already has,
    known: u64,
    /// and of keys that begin so,
    more_known: (Vec<String>, u64),
    /// but of these, of which a change was under way then, no more than up to that one.
    under_way: HashMap<String, u64>,
    ready: VecDeque<Change>,
}

impl Changes {
    pub(crate) fn new(
        receiver: broadcast::Receiver<Arc<[Change]>>,
        prefixes: Vec<String>,
        known: u64,
    ) -> Self {
        let more_known = (Vec::new(), 0);
        let (under_way, ready) = (HashMap::new(), VecDeque::new());
        Self { receiver, prefixes: prefixes.into(), known, more_known, under_way, ready }
    }

    /// The snapshot has changes up to this one.
    pub(crate) fn knows(&mut self, known: u64) {
        self.known = known;
    }

    /// Of keys that begin so, the snapshot has those up to this one; of each of some keys, of which a change was under way, only those up to
    /// another one.
    pub(crate) fn knows_more(&mut self, prefixes: Vec<String>, known: u64, under_way: HashMap<String, u64>) {
        self.more_known = (prefixes, known);
        self.under_way = under_way;
    }

    fn is_known(&self, change: &Change) -> bool {
        if let Some(known) = self.under_way.get(change.key()) {
            return change.revision() <= *known;
        }
        let (prefixes, known) = &self.more_known;
        let is_more = prefixes.iter().any(|prefix| change.key().starts_with(prefix.as_str()));
        change.revision() <= if is_more { *known } else { self.known }
    }

    /// The next change.
    ///
    /// # Errors
    /// [`StoreError::Lagged`] when this reader was too slow: then begin again with a snapshot. [`StoreError::Closed`]
    /// when the store has closed.
    pub async fn next(&mut self) -> Result<Change, StoreError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            let batch = self.receiver.recv().await.map_err(|error| match error {
                broadcast::error::RecvError::Lagged(missed) => StoreError::Lagged { missed },
                broadcast::error::RecvError::Closed => StoreError::Closed,
            })?;
            let wanted = batch.iter().filter(|change| {
                !self.is_known(change)
                    && self.prefixes.iter().any(|prefix| change.key().starts_with(prefix.as_str()))
            });
            let wanted: Vec<Change> = wanted.cloned().collect();
            self.ready.extend(wanted);
        }
    }
}

/// Those who watch, who are woken by what one of them watches and by nothing else.
#[derive(Debug)]
pub(crate) struct Watchers(Mutex<Option<Watching>>);

#[derive(Debug)]
struct Watching {
    sender: broadcast::Sender<Arc<[Change]>>,
    prefixes: Vec<Weak<[String]>>,
}

impl Default for Watchers {
    fn default() -> Self {
        let sender = broadcast::channel(WATCH_BACKLOG).0;
        Self(Mutex::new(Some(Watching { sender, prefixes: Vec::new() })))
    }
}

impl Watchers {
    /// Watches from now on.
    ///
    /// # Errors
    /// The store is closed.
    pub(crate) fn watch(&self, prefixes: Vec<String>) -> Result<Changes, StoreError> {
        let mut watching = self.0.lock();
        let watching = watching.as_mut().ok_or(StoreError::Closed)?;
        let changes = Changes::new(watching.sender.subscribe(), prefixes, 0);
        watching.prefixes.retain(|prefixes| prefixes.strong_count() > 0);
        watching.prefixes.push(Arc::downgrade(&changes.prefixes));
        Ok(changes)
    }

    /// Tells of changes that were made, in their order.
    pub(crate) fn tell(&self, changes: Vec<Change>) {
        let watching = self.0.lock();
        let Some(watching) = watching.as_ref() else { return };
        let is_watched = |change: &Change| {
            watching
                .prefixes
                .iter()
                .filter_map(Weak::upgrade)
                .any(|prefixes| prefixes.iter().any(|prefix| change.key().starts_with(prefix.as_str())))
        };
        if changes.iter().any(is_watched) {
            let _ = watching.sender.send(changes.into());
        }
    }

    /// Ends every watch.
    pub(crate) fn close(&self) {
        self.0.lock().take();
    }
}

tokio::task_local! {
    static AHEAD: ();
}

/// Does something whose reads wait for no others: for the operator of the machine, who must get through while other
/// callers ask more than there is time for.
pub async fn ahead<T>(work: impl Future<Output = T>) -> T {
    AHEAD.scope((), work).await
}

/// Whether this is done [`ahead`] of others.
pub(crate) fn is_ahead() -> bool {
    AHEAD.try_with(|()| ()).is_ok()
}

/// Batches of changes that a watcher may fall behind before it must begin again.
pub(crate) const WATCH_BACKLOG: usize = 4_096;

/// Milliseconds since 1970, as they are stored.
pub(crate) fn milliseconds(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

pub(crate) fn from_milliseconds(at: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000).ok()
}

/// To the millisecond, so that what is read back equals what was written.
pub(crate) fn rounded(expires: Option<OffsetDateTime>) -> Option<OffsetDateTime> {
    expires.and_then(|at| from_milliseconds(milliseconds(at)))
}
