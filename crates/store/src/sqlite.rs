//! State in one SQLite file, durable when an operation has been answered.
//!
//! One thread writes. It gathers the transactions that wait and commits them together, so that the disk is waited for
//! once for many of them. Readers have threads and connections of their own and never wait for the writer (WAL), nor for
//! whatever else blocks in the process; what was read or written lately they have at once (`recent`). What is asked
//! [`crate::ahead`] has a reader that nothing else may take. Kinds of minutes may be in memory alone (`passing`).

mod file;
mod listing;
mod passing;
mod recent;
mod steps;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use rusqlite::{Connection, TransactionBehavior};
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::coop::consume_budget;

use crate::backend::{self, Watchers};
use crate::reserve::Reserve;
use crate::{Backend, Item, Op, StoreError, Watch};
use file::{
    Lock, check, connect, create, damaged, file, lock_beside, prepare_file, refused, take_out, unusable,
};
use listing::{live, select};
use passing::{Passing, Snapshot, key_of};
use recent::Recent;
use steps::{Group, revision};

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
    /// Connections that no read uses now.
    readers: Mutex<Vec<Connection>>,
    /// Held for as long as the file is ours. A read that uses a connection has it meanwhile, so that it outlives all of them.
    lock: RwLock<Option<Lock>>,
    recent: Recent,
    passing: Passing,
    /// The number of the last change.
    last: AtomicU64,
    closed: AtomicBool,
    watchers: Watchers,
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
        Self::open_with(path, &[])
    }

    /// [`Self::open`] with keys that begin so in memory alone: they cost neither disk nor SQLite, and end with the process. All else that
    /// the contract says holds of them, too, in one transaction with what is in the file. They have a bound in bytes
    /// ([`StoreError::MemoryFull`]), and what the file has of them is removed.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, in_memory: &[&str]) -> Result<Self, StoreError> {
        let beside = lock_beside(path)?;
        let fresh = prepare_file(path)?;
        let lock = Lock::of(path, beside)?;
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
        let last = revision(&connection).map_err(corrupt)?;
        let taken_out = take_out(&mut connection, in_memory).map_err(corrupt)?;
        if taken_out > 0 {
            tracing::info!(taken_out, path = %path.display(), "state of minutes that an older release kept in the file was removed");
        }
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            readers: Mutex::new(Vec::new()),
            lock: RwLock::new(Some(lock)),
            recent: Recent::default(),
            passing: Passing::of(in_memory),
            last: AtomicU64::new(last),
            closed: AtomicBool::new(false),
            watchers: Watchers::default(),
        });
        let (work, queue) = mpsc::channel(QUEUE);
        // Where there is no room now, the next one who opens the file has none until there is.
        let _ = reserve.keep();
        let writer = Writer { connection, shared: Arc::clone(&shared), reserve };
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|error| unusable(path, error))?;
        let reads = readers(&shared, READERS).map_err(|error| unusable(path, error))?;
        let reads_ahead = readers(&shared, 1).map_err(|error| unusable(path, error))?;
        Ok(Self { shared, work, reads, reads_ahead })
    }

    fn opened(&self) -> Result<&Shared, StoreError> {
        if self.shared.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(&self.shared) }
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

    async fn take(&self, ops: Vec<Op>, now: OffsetDateTime, urgent: bool) -> Result<Vec<u64>, StoreError> {
        consume_budget().await;
        let shared = &self.shared;
        let is_open = !shared.closed.load(Ordering::Acquire);
        let taken = if is_open { shared.take_in_memory(ops, now) } else { Err(ops) };
        let ops = match taken {
            Ok(taken) => return taken,
            Err(ops) => ops,
        };
        self.ask(|answer| Work::Transact { ops, now, urgent, answer }).await?
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
        let lock = self.lock.read();
        if lock.is_none() || self.closed.load(Ordering::Acquire) {
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

    /// Takes steps that are of kinds in memory alone, for which there is no need of the file, be it full. Gives back others, and those of which
    /// the writer holds an item.
    fn take_in_memory(
        &self,
        ops: Vec<Op>,
        now: OffsetDateTime,
    ) -> Result<Result<Vec<u64>, StoreError>, Vec<Op>> {
        if ops.iter().all(|op| self.passing.has(key_of(op))) {
            self.passing.transact(ops, now, &self.last, |changes| self.watchers.tell(changes))
        } else {
            Err(ops)
        }
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn get(&self, key: &str, now: OffsetDateTime) -> Result<Option<Item>, StoreError> {
        // What is in memory is there at once: who asks for much of it lets others have the thread, too.
        consume_budget().await;
        let shared = self.opened()?;
        if shared.passing.has(key) {
            return Ok(shared.passing.get(key, now));
        }
        let ticket = match shared.recent.item(key, now) {
            Ok(known) => return Ok(known),
            Err(ticket) => ticket,
        };
        let asked = key.to_owned();
        let found = self.read(move |connection| live(connection, &asked, now)).await?;
        shared.recent.keep(ticket, key, found.as_ref(), now);
        Ok(found)
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Item>, StoreError> {
        consume_budget().await;
        let shared = self.opened()?;
        if shared.passing.has(prefix) {
            return Ok(shared.passing.list(prefix, after, limit, now));
        }
        let ticket = match after {
            None => match shared.recent.listing(prefix, limit, now) {
                Ok(known) => return Ok(known),
                Err(ticket) => Some(ticket),
            },
            Some(_) => None,
        };
        let (wanted, behind) = (prefix.to_owned(), after.map(str::to_owned));
        let mut listed =
            self.read(move |connection| select(connection, &wanted, behind.as_deref(), limit, now)).await?;
        if shared.passing.has_some_of(prefix) {
            listed.extend(shared.passing.list(prefix, after, limit, now));
            listed.sort_by(|left, right| left.key.cmp(&right.key));
            listed.truncate(limit);
        } else if let Some(ticket) = ticket
            // It is all that there is.
            && listed.len() < limit
        {
            shared.recent.keep_listing(ticket, prefix, &listed, now);
        }
        Ok(listed)
    }

    async fn transact(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        self.take(ops, now, false).await
    }

    async fn transact_urgent(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        self.take(ops, now, true).await
    }

    async fn watch(&self, prefixes: Vec<String>, now: OffsetDateTime) -> Result<Watch, StoreError> {
        // Listening begins before the snapshot is taken; what both have is told apart by revision.
        let mut changes = self.shared.watchers.watch(prefixes.clone())?;
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
        changes.knows(known);
        let passing = &self.shared.passing;
        if prefixes.iter().any(|prefix| passing.has_some_of(prefix)) {
            let Snapshot { items, known, under_way } = passing.snapshot(&prefixes, &self.shared.last, now);
            snapshot.extend(items);
            changes.knows_more(passing.prefixes().to_vec(), known, under_way);
        }
        snapshot.sort_by(|left, right| left.key.cmp(&right.key));
        snapshot.dedup_by(|left, right| left.key == right.key);
        Ok(Watch { snapshot, changes })
    }

    async fn sweep(&self, now: OffsetDateTime) -> Result<usize, StoreError> {
        let shared = self.opened()?;
        // It is swept whatever becomes of the file: on a full disk items are still taken.
        let in_memory = shared.passing.sweep(now, &shared.last, |changes| shared.watchers.tell(changes));
        let in_file = self.ask(|answer| Work::Sweep { now, answer }).await??;
        Ok(in_memory + in_file)
    }

    async fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let _ = self.ask(|answer| Work::Close { answer }).await;
        self.shared.watchers.close();
        self.shared.readers.lock().clear();
        self.shared.recent.clear();
        self.shared.passing.clear();
    }
}

struct Writer {
    connection: Connection,
    shared: Arc<Shared>,
    reserve: Reserve,
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
        self.let_go();
    }

    /// Lets go of the file: of the connections first, those in use included, and then of its lock.
    fn let_go(self) {
        let Self { connection, shared, .. } = self;
        shared.closed.store(true, Ordering::Release);
        // This waits for the reads that are under way; none begins after it.
        let mut lock = shared.lock.write();
        shared.readers.lock().clear();
        drop(connection);
        *lock = None;
    }

    /// Closes the file, which is whole by itself then, for a copy that is made of it now.
    fn close(self) {
        let taken_over = self.connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| {
            Ok(row.get::<_, i64>(0)? == 0 && row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
        });
        // What is not in the file yet, as on a full disk, stays in the log, and SQLite leaves that where it is.
        if matches!(taken_over, Ok(true)) {
            self.reserve.put_by();
        }
        self.let_go();
    }

    /// Does a transaction that is in memory alone, and came here because the group before held an item of it: that is over. Gives back all else.
    fn without_file(&self, work: Work) -> Option<Work> {
        match work {
            Work::Transact { ops, now, urgent, answer } => match self.shared.take_in_memory(ops, now) {
                Ok(taken) => {
                    let _ = answer.send(taken);
                    None
                }
                Err(ops) => Some(Work::Transact { ops, now, urgent, answer }),
            },
            other => Some(other),
        }
    }

    /// Does what needs no disk and what is urgent first, and the rest where the disk has room for it besides.
    fn commit_all(&mut self, group: Vec<Work>) -> Option<oneshot::Sender<()>> {
        let group: Vec<Work> = group.into_iter().filter_map(|work| self.without_file(work)).collect();
        if group.is_empty() {
            return None;
        }
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
        let shared = Arc::clone(&self.shared);
        let path = &shared.path;
        let mut work_done = Group::new(&shared.passing, &shared.last, path);
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
                                let _ = answer.send(Err(file(path, &error)));
                                return Err(error);
                            }
                        };
                        match work_done.transact(&savepoint, ops, now) {
                            Ok(revisions) => {
                                let released = savepoint.commit();
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
                        let swept = work_done.sweep(&transaction, now);
                        let count = swept.as_ref().map_or(0, |count| *count);
                        pending.push(Box::new(move |committed| {
                            let _ = answer.send(committed.map(|()| count));
                        }));
                        swept?;
                    }
                    Work::Close { answer } => closing = Some(answer),
                }
            }
            work_done.write_counter(&transaction)?;
            shared.recent.commits(&work_done.in_file);
            transaction.commit()
        })();
        let result = done.map_err(|error| {
            tracing::error!(%error, path = %path.display(), "state could not be written");
            file(path, &error)
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
        let is_done = result.is_ok();
        shared.recent.committed(&work_done.in_file, is_done);
        let changes = work_done.take_changes();
        shared.passing.release(work_done.held, is_done, || shared.watchers.tell(changes));
        for answer in pending {
            answer(result.clone());
        }
        closing
    }
}

#[cfg(test)]
mod tests;
