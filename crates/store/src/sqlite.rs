//! State in one SQLite file, durable when an operation has been answered.
//!
//! One thread writes. It gathers the transactions that wait and commits them together, so that the disk is waited for
//! once for many of them. Readers have threads and connections of their own and never wait for the writer (WAL), nor for
//! whatever else blocks in the process. What is asked [`crate::ahead`] has a reader that nothing else may take.

mod file;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, Savepoint, TransactionBehavior, params};
use time::OffsetDateTime;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::backend::{self, Changes, WATCH_BACKLOG, from_milliseconds, milliseconds, rounded};
use crate::reserve::Reserve;
use crate::{Backend, Change, Item, Op, StoreError, Watch};
use file::{check, connect, create, damaged, file, lock, prepare_file, refused, unusable};

/// Transactions that may wait for the writer.
const QUEUE: usize = 1_024;
/// Transactions that are committed together.
const GROUP: usize = 128;
/// Threads that read, each with a connection; one more is for what is asked ahead of the others.
const READERS: usize = 4;
/// The log is taken over into the file at so many pages, half of SQLite's: its room is taken beforehand.
const CHECKPOINT_PAGES: i64 = 500;
/// Reads that may wait for a thread; callers beyond that wait to be let in.
const READS: usize = 1_024;

enum Work {
    Transact {
        ops: Vec<Op>,
        now: OffsetDateTime,
        urgent: bool,
        answer: oneshot::Sender<Result<Vec<u64>, StoreError>>,
    },
    Sweep {
        now: OffsetDateTime,
        answer: oneshot::Sender<Result<usize, StoreError>>,
    },
    Close {
        answer: oneshot::Sender<()>,
    },
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
    closed: AtomicBool,
    /// `None` once closed, which ends every watch.
    changes: Mutex<Option<broadcast::Sender<Arc<[Change]>>>>,
}

/// State in a file.
#[derive(Debug)]
pub struct SqliteBackend {
    shared: Arc<Shared>,
    work: mpsc::Sender<Work>,
    reads: mpsc::Sender<Read>,
    reads_ahead: mpsc::Sender<Read>,
}

/// Something to be read.
type Read = Box<dyn FnOnce(&Shared) + Send>;

impl SqliteBackend {
    /// Opens the file, or creates it with mode 0600. Blocks: call it before serving, or from a blocking task.
    ///
    /// # Errors
    /// When others may read the file, another process has it, or it is damaged.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let lock = lock(path)?;
        let fresh = prepare_file(path)?;
        let mut reserve = Reserve::of(path);
        reserve.give().map_err(|error| refused(path, &error))?;
        let corrupt = |error: rusqlite::Error| damaged(path, &error);
        let mut connection = connect(path)?;
        if fresh {
            create(&mut connection).map_err(|error| file(path, &error))?;
        } else {
            check(&connection, path)?;
        }
        connection.pragma_update(None, "journal_mode", "WAL").map_err(corrupt)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(corrupt)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(corrupt)?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            readers: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
            changes: Mutex::new(Some(broadcast::channel(WATCH_BACKLOG).0)),
        });
        let (work, queue) = mpsc::channel(QUEUE);
        // Where there is no room now, the next one who opens the file has none until there is.
        let _ = reserve.keep();
        let writer = Writer { connection, shared: Arc::clone(&shared), reserve, _lock: lock };
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|error| unusable(path, error))?;
        let reads = readers(&shared, READERS).map_err(|error| unusable(path, error))?;
        let reads_ahead = readers(&shared, 1).map_err(|error| unusable(path, error))?;
        Ok(Self { shared, work, reads, reads_ahead })
    }

    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Read = Box::new(move |shared| {
            if !answer.is_closed() {
                let _ = answer.send(shared.read(read));
            }
        });
        let queue = if backend::is_ahead() { &self.reads_ahead } else { &self.reads };
        queue.send(job).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    async fn ask<T>(&self, work: impl FnOnce(oneshot::Sender<T>) -> Work) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.work.send(work(answer)).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)
    }
}

/// Threads that read until the store is dropped.
fn readers(shared: &Arc<Shared>, threads: usize) -> io::Result<mpsc::Sender<Read>> {
    let (reads, queue) = mpsc::channel::<Read>(READS);
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..threads {
        let (shared, queue) = (Arc::clone(shared), Arc::clone(&queue));
        std::thread::Builder::new().name("store-reader".to_owned()).spawn(move || {
            loop {
                // The thread that has the queue waits in it for the next read; the others wait for the queue.
                let next = queue.lock().blocking_recv();
                let Some(read) = next else { return };
                read(&shared);
            }
        })?;
    }
    Ok(reads)
}

impl Shared {
    fn read<T>(&self, read: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let kept = self.readers.lock().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                let connection = connect(&self.path)?;
                connection
                    .pragma_update(None, "query_only", true)
                    .map_err(|error| damaged(&self.path, &error))?;
                connection
            }
        };
        let result = read(&mut connection).map_err(|error| damaged(&self.path, &error))?;
        let mut readers = self.readers.lock();
        if readers.len() <= READERS && !self.closed.load(Ordering::Acquire) {
            readers.push(connection);
        }
        Ok(result)
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn get(&self, key: &str, now: OffsetDateTime) -> Result<Option<Item>, StoreError> {
        let key = key.to_owned();
        self.read(move |connection| live(connection, &key, now)).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Item>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.read(move |connection| select(connection, &prefix, after.as_deref(), limit, now)).await
    }

    async fn transact(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        self.ask(|answer| Work::Transact { ops, now, urgent: false, answer }).await?
    }

    async fn transact_urgent(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        self.ask(|answer| Work::Transact { ops, now, urgent: true, answer }).await?
    }

    async fn watch(&self, prefixes: Vec<String>, now: OffsetDateTime) -> Result<Watch, StoreError> {
        // Listening begins before the snapshot is taken; what both have is told apart by revision.
        let receiver = {
            let changes = self.shared.changes.lock();
            changes.as_ref().ok_or(StoreError::Closed)?.subscribe()
        };
        let wanted = prefixes.clone();
        let (snapshot, known) = self
            .read(move |connection| {
                let transaction = connection.transaction()?;
                let known = revision(&transaction)?;
                let mut snapshot = Vec::new();
                for prefix in &wanted {
                    snapshot.extend(select(&transaction, prefix, None, usize::MAX, now)?);
                }
                Ok((snapshot, known))
            })
            .await?;
        let mut snapshot: Vec<Item> = snapshot;
        snapshot.sort_by(|left, right| left.key.cmp(&right.key));
        snapshot.dedup_by(|left, right| left.key == right.key);
        Ok(Watch { snapshot, changes: Changes::new(receiver, prefixes, known) })
    }

    async fn sweep(&self, now: OffsetDateTime) -> Result<usize, StoreError> {
        self.ask(|answer| Work::Sweep { now, answer }).await?
    }

    async fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let _ = self.ask(|answer| Work::Close { answer }).await;
        self.shared.changes.lock().take();
        self.shared.readers.lock().clear();
    }
}

struct Writer {
    connection: Connection,
    shared: Arc<Shared>,
    reserve: Reserve,
    /// Held for as long as the file is ours.
    _lock: File,
}

/// An answer that waits for the commit.
type Pending = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

impl Writer {
    fn run(mut self, mut queue: mpsc::Receiver<Work>) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP {
                match queue.try_recv() {
                    Ok(work) => group.push(work),
                    Err(_) => break,
                }
            }
            if let Some(closing) = self.commit_all(group) {
                queue.close();
                self.close();
                let _ = closing.send(());
                return;
            }
        }
    }

    /// Closes the file, which is whole by itself then, for a copy that is made of it now.
    fn close(self) {
        let Self { connection, shared, reserve, _lock } = self;
        let taken_over = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| {
            Ok(row.get::<_, i64>(0)? == 0 && row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
        });
        // What is not in the file yet, as on a full disk, stays in the log, and SQLite leaves that where it is.
        if matches!(taken_over, Ok(true)) {
            reserve.put_by();
        }
        shared.readers.lock().clear();
        drop(connection);
    }

    /// Does what is urgent first, and the rest where the disk has room for it besides.
    fn commit_all(&mut self, group: Vec<Work>) -> Option<oneshot::Sender<()>> {
        let (urgent, rest): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|work| matches!(work, Work::Transact { urgent: true, .. }));
        if !urgent.is_empty() {
            self.commit(urgent);
        }
        let kept = self.reserve.keep();
        let rest = match kept {
            Ok(()) => rest,
            Err(error) => {
                let path = &self.shared.path;
                let failed = || refused(path, &error);
                let mut closing = Vec::new();
                for work in rest {
                    match work {
                        Work::Transact { answer, .. } => drop(answer.send(Err(failed()))),
                        Work::Sweep { answer, .. } => drop(answer.send(Err(failed()))),
                        Work::Close { .. } => closing.push(work),
                    }
                }
                closing
            }
        };
        if rest.is_empty() { None } else { self.commit(rest) }
    }

    /// Does a group of works in one commit; gives the answer to a request to close.
    fn commit(&mut self, group: Vec<Work>) -> Option<oneshot::Sender<()>> {
        let mut closing = None;
        let mut pending: Vec<Pending> = Vec::new();
        let mut changes = Vec::new();
        let path = self.shared.path.clone();
        let mut group = group.into_iter();
        let done = (|| -> rusqlite::Result<()> {
            let mut transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for work in group.by_ref() {
                match work {
                    Work::Transact { ops, now, answer, .. } => {
                        let savepoint = match transaction.savepoint() {
                            Ok(savepoint) => savepoint,
                            Err(error) => {
                                let _ = answer.send(Err(file(&path, &error)));
                                return Err(error);
                            }
                        };
                        let mut own = Vec::new();
                        match apply_all(&savepoint, ops, now, &mut own, &path) {
                            Ok(revisions) => {
                                let released = savepoint.commit();
                                changes.extend(own);
                                pending.push(Box::new(move |committed| {
                                    let _ = answer.send(committed.map(|()| revisions));
                                }));
                                released?;
                            }
                            Err(error) => {
                                drop(savepoint);
                                let over = matches!(error, StoreError::Full { .. });
                                let _ = answer.send(Err(error));
                                // A full disk rolls back all that was begun, not only this. What came now would
                                // be committed by itself, and no caller would be told.
                                if over || transaction.is_autocommit() {
                                    return Err(rusqlite::Error::SqliteFailure(
                                        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL),
                                        None,
                                    ));
                                }
                            }
                        }
                    }
                    Work::Sweep { now, answer } => {
                        let swept = sweep(&transaction, now);
                        let count = swept.as_ref().map_or(0, Vec::len);
                        pending.push(Box::new(move |committed| {
                            let _ = answer.send(committed.map(|()| count));
                        }));
                        changes.extend(swept?);
                    }
                    Work::Close { answer } => closing = Some(answer),
                }
            }
            transaction.commit()
        })();
        let result = done.map_err(|error| {
            tracing::error!(%error, path = %path.display(), "state could not be written");
            file(&path, &error)
        });
        // Those that were not begun: no caller may take silence for a store that is closed.
        for work in group {
            let failed = || result.clone().err().unwrap_or(StoreError::Closed);
            match work {
                Work::Transact { answer, .. } => drop(answer.send(Err(failed()))),
                Work::Sweep { answer, .. } => drop(answer.send(Err(failed()))),
                Work::Close { answer } => closing = Some(answer),
            }
        }
        if result.is_ok() && !changes.is_empty() {
            let sender = self.shared.changes.lock();
            if let Some(sender) = sender.as_ref() {
                let _ = sender.send(changes.into());
            }
        }
        for answer in pending {
            answer(result.clone());
        }
        closing
    }
}

fn apply_all(
    savepoint: &Savepoint<'_>,
    ops: Vec<Op>,
    now: OffsetDateTime,
    changes: &mut Vec<Change>,
    path: &Path,
) -> Result<Vec<u64>, StoreError> {
    ops.into_iter().map(|op| apply(savepoint, op, now, changes, path)).collect()
}

fn apply(
    connection: &Connection,
    op: Op,
    now: OffsetDateTime,
    changes: &mut Vec<Change>,
    path: &Path,
) -> Result<u64, StoreError> {
    let failed = |error: rusqlite::Error| file(path, &error);
    let found = |key: &str| -> Result<u64, StoreError> {
        Ok(live(connection, key, now).map_err(failed)?.map_or(0, |item| item.revision))
    };
    let (key, value, expires) = match op {
        Op::Create { key, value, expires } => {
            if found(&key)? != 0 {
                return Err(StoreError::Exists { key });
            }
            (key, value, expires)
        }
        Op::Put { key, value, expires } => (key, value, expires),
        Op::CompareAndSwap { key, revision, value, expires } => {
            let found = found(&key)?;
            if found != revision || revision == 0 {
                return Err(StoreError::Conflict { key, expected: revision, found });
            }
            (key, value, expires)
        }
        Op::Check { key, revision } => {
            let found = found(&key)?;
            if found != revision {
                return Err(StoreError::Conflict { key, expected: revision, found });
            }
            return Ok(0);
        }
        Op::Delete { key, revision } => {
            let found = found(&key)?;
            if found == 0 {
                return Err(StoreError::NotFound { key });
            }
            if let Some(expected) = revision
                && expected != found
            {
                return Err(StoreError::Conflict { key, expected, found });
            }
            let revision = next_revision(connection).map_err(failed)?;
            let mut delete = connection.prepare_cached("DELETE FROM items WHERE key = ?1").map_err(failed)?;
            delete.execute([&key]).map_err(failed)?;
            changes.push(Change::Delete { key, revision });
            return Ok(revision);
        }
    };
    let revision = next_revision(connection).map_err(failed)?;
    let expires = rounded(expires);
    let mut put = connection
        .prepare_cached(
            "INSERT OR REPLACE INTO items (key, value, revision, expires) VALUES (?1, ?2, ?3, ?4)",
        )
        .map_err(failed)?;
    put.execute(params![key, value.as_ref(), revision.cast_signed(), expires.map(milliseconds)])
        .map_err(failed)?;
    changes.push(Change::Put(Item { key, value, revision, expires }));
    Ok(revision)
}

fn sweep(connection: &Connection, now: OffsetDateTime) -> rusqlite::Result<Vec<Change>> {
    let mut select =
        connection.prepare_cached("SELECT key FROM items WHERE expires IS NOT NULL AND expires <= ?1")?;
    let keys: Vec<String> =
        select.query_map([milliseconds(now)], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut changes = Vec::with_capacity(keys.len());
    for key in keys {
        let revision = next_revision(connection)?;
        connection.prepare_cached("DELETE FROM items WHERE key = ?1")?.execute([&key])?;
        changes.push(Change::Delete { key, revision });
    }
    Ok(changes)
}

fn revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT revision FROM counter WHERE id = 1")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}

fn next_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("UPDATE counter SET revision = revision + 1 WHERE id = 1 RETURNING revision")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}

fn item(row: &Row<'_>) -> rusqlite::Result<Item> {
    Ok(Item {
        key: row.get(0)?,
        value: Bytes::from(row.get::<_, Vec<u8>>(1)?),
        revision: row.get::<_, i64>(2)?.cast_unsigned(),
        expires: row.get::<_, Option<i64>>(3)?.and_then(from_milliseconds),
    })
}

fn live(connection: &Connection, key: &str, now: OffsetDateTime) -> rusqlite::Result<Option<Item>> {
    connection
        .prepare_cached(
            "SELECT key, value, revision, expires FROM items WHERE key = ?1 AND (expires IS NULL OR expires > ?2)",
        )?
        .query_row(params![key, milliseconds(now)], item)
        .optional()
}

fn select(
    connection: &Connection,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
    now: OffsetDateTime,
) -> rusqlite::Result<Vec<Item>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (from, end) = range(prefix, after);
    let length = i64::try_from(prefix.chars().count()).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(listing(&from, end.is_some()))?;
    let (Bound::Included(start) | Bound::Excluded(start)) = &from;
    let rows = statement.query_map(params![start, end, prefix, length, milliseconds(now), limit], item)?;
    rows.collect()
}

/// The first key of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound<'k> {
    Included(&'k str),
    Excluded(&'k str),
}

/// Where a listing begins, and the first key beyond it. Keys compare as bytes, so a prefix is a range: it ends where the last
/// character is one higher.
fn range<'k>(prefix: &'k str, after: Option<&'k str>) -> (Bound<'k>, Option<String>) {
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    (from, end_of(prefix))
}

/// The statement for a listing. SQLite searches its index by a bound that stands by itself; of a bound in an expression it knows nothing,
/// and reads all keys up to the last.
fn listing(from: &Bound<'_>, has_end: bool) -> &'static str {
    macro_rules! listing {
        ($bounds:literal) => {
            concat!(
                "SELECT key, value, revision, expires FROM items WHERE ",
                $bounds,
                " AND substr(key, 1, ?4) = ?3 AND (expires IS NULL OR expires > ?5) ORDER BY key LIMIT ?6"
            )
        };
    }
    match (from, has_end) {
        (Bound::Included(_), true) => listing!("key >= ?1 AND key < ?2"),
        (Bound::Excluded(_), true) => listing!("key > ?1 AND key < ?2"),
        (Bound::Included(_), false) => listing!("key >= ?1 AND ?2 IS NULL"),
        (Bound::Excluded(_), false) => listing!("key > ?1 AND ?2 IS NULL"),
    }
}

/// The first key after all keys with this prefix, if there is one.
fn end_of(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        if let Some(next) = char::from_u32(u32::from(last) + 1) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests;
