//! The one writer of the log: a thread that commits many events with one write and one sync.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sallyport_sal::{PublicKey, Signer};
use time::OffsetDateTime;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use uuid::Uuid;

use super::Cursor;
use super::anew::{self, Break};
use super::chain::{
    CHECKPOINTS, Filter, PREFIX, Record, SUFFIX, Verification, lines, segments, verify_against,
};
use super::checkpoint::{Beginning, Checkpoint, Head};
use super::reserve::Reserve;
use crate::Event;

/// A file of the log is closed at this size.
const SEGMENT_BYTES: u64 = 64 << 20;
/// A checkpoint is made after this many records,
const CHECKPOINT_RECORDS: u64 = 1000;
/// or this long after the first record without one.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(60);
/// Batches that may wait for the writer.
const QUEUE: usize = 4096;
/// Events that go to disk with one sync at the most.
const BATCH: usize = 4096;
/// Ids remembered to know an event that is delivered twice.
const REMEMBERED: usize = 200_000;
/// Records that a follower may be behind before it has to read the files.
const FOLLOW: usize = 4096;

/// Why events cannot be written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The disk.
    #[error("the audit log cannot be written: {path}: {problem}")]
    Io {
        /// The file or directory.
        path: String,
        /// What the system says.
        problem: String,
    },
    /// There is no room on the disk. Nothing of what was to be appended is in the log.
    #[error("the disk of the audit log is full ({path}): make room on it")]
    Full {
        /// The file.
        path: String,
    },
    /// The log does not fit together; nothing is appended to it, and nothing of it is cut off.
    #[error(
        "the audit log is broken: {0}; nothing was changed. To set the log aside, every byte of it, and go on in a new one: sallyport \
         admin audit repair --data-dir DIR"
    )]
    Broken(String),
    /// The writer has stopped.
    #[error("the audit log is closed")]
    Closed,
}

/// What was mended when the log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Bytes of an unfinished record that were cut off.
    pub bytes: u64,
}

/// The log, open for writing. Clones share it.
#[derive(Clone)]
pub struct AuditLog {
    shared: Arc<Shared>,
}

/// A log that was opened, and what had to be done for it.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: AuditLog,
    /// An unfinished record was cut off.
    pub repair: Option<Repair>,
    /// The log that was there was set aside, and this one begins behind it.
    pub broken: Option<Break>,
}

struct Shared {
    directory: PathBuf,
    signed: watch::Receiver<Option<Checkpoint>>,
    queue: mpsc::Sender<Command>,
    live: broadcast::Sender<Arc<Record>>,
    head: Arc<Mutex<(u64, [u8; 32])>>,
    key: PublicKey,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

type Answer = oneshot::Sender<Result<(), LogError>>;

enum Command {
    Append { events: Vec<Event>, urgent: bool, answer: Answer },
    Checkpoint(Answer),
    Close(Answer),
}

impl AuditLog {
    /// Opens a log, making it if needed; mends an end that a crash left unfinished. Checkpoints are signed by `signer`.
    ///
    /// # Errors
    /// [`LogError`] when the disk fails or the last file has a whole line that is no record.
    pub fn open(directory: &Path, signer: Arc<dyn Signer>) -> Result<(Self, Option<Repair>), LogError> {
        let opened = Self::open_against(directory, signer, None, OffsetDateTime::now_utc())?;
        Ok((opened.log, opened.repair))
    }

    /// [`AuditLog::open`]; a log that does not hold the head that was `kept` elsewhere is set aside, and a new one begins behind it.
    ///
    /// # Errors
    /// As [`AuditLog::open`].
    pub fn open_against(
        directory: &Path,
        signer: Arc<dyn Signer>,
        kept: Option<Head>,
        now: OffsetDateTime,
    ) -> Result<Opened, LogError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| failed(directory, &error))?;
        let key = signer.public_key();
        let (live, _) = broadcast::channel(FOLLOW);
        let mut writer = Writer::open(directory, Arc::clone(&signer), live.clone())?;
        let mut broken = None;
        let holds = kept.map_or(Ok(true), |kept| anew::holds(directory, &key, &kept));
        let left = anew::left_aside(directory).map_err(|error| failed(directory, &error))?;
        let aside = match holds.map_err(|error| failed(directory, &error))? {
            true => left,
            false => {
                writer.file = None;
                Some(match left {
                    Some(left) => left,
                    None => anew::set_aside(directory, now).map_err(|error| failed(directory, &error))?,
                })
            }
        };
        if let Some(aside) = aside {
            let begun = anew::begin(directory, aside, kept, &*signer, now);
            broken = Some(begun.map_err(|error| failed(directory, &error))?);
            writer = Writer::open(directory, signer, live.clone())?;
        }
        let repair = writer.repaired.take();
        let head = Arc::clone(&writer.head);
        let signed = writer.signed.subscribe();
        let (queue, commands) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || writer.run(commands))
            .map_err(|error| failed(directory, &error))?;
        let shared = Shared { directory: directory.to_owned(), signed, queue, live, head, key };
        Ok(Opened { log: Self { shared: Arc::new(shared) }, repair, broken })
    }

    /// Appends events; returns when they are on disk. An event that the same host delivered lately is not written again. What
    /// of an event is too long is cut ([`Event::bounded`]).
    ///
    /// # Errors
    /// [`LogError`]: none of them may be taken for written.
    pub async fn append(&self, events: Vec<Event>) -> Result<(), LogError> {
        self.ask(|answer| Command::Append { events, urgent: false, answer }).await
    }

    /// [`AuditLog::append`] of what must be on record also when the disk is full: there is a part of it that nothing else takes.
    ///
    /// # Errors
    /// As [`AuditLog::append`].
    pub async fn append_urgent(&self, events: Vec<Event>) -> Result<(), LogError> {
        self.ask(|answer| Command::Append { events, urgent: true, answer }).await
    }

    /// Checkpoints as they are made.
    #[must_use]
    pub fn checkpoints(&self) -> watch::Receiver<Option<Checkpoint>> {
        self.shared.signed.clone()
    }

    /// Signs where the chain stands now.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn checkpoint(&self) -> Result<(), LogError> {
        self.ask(Command::Checkpoint).await
    }

    /// Makes a last checkpoint and stops. Later appends fail.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn close(&self) -> Result<(), LogError> {
        self.ask(Command::Close).await
    }

    async fn ask(&self, command: impl FnOnce(Answer) -> Command) -> Result<(), LogError> {
        let (answer, done) = oneshot::channel();
        self.shared.queue.send(command(answer)).await.map_err(|_| LogError::Closed)?;
        done.await.map_err(|_| LogError::Closed)?
    }

    /// The number and hash of the last record.
    #[must_use]
    pub fn head(&self) -> (u64, [u8; 32]) {
        *self.shared.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records from now on. A receiver that falls behind by more than a few thousand is told so, and reads the files
    /// with [`AuditLog::scan`] from where it stood.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Record>> {
        self.shared.live.subscribe()
    }

    /// Calls `visit` for every record from number `from` that matches, in order. Blocks: for a blocking thread.
    ///
    /// # Errors
    /// What reading says.
    pub fn scan(
        &self,
        from: u64,
        filter: &Filter,
        mut visit: impl FnMut(Record) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let paths = segments(&self.shared.directory)?;
        let mut over = false;
        for (index, path) in paths.iter().enumerate() {
            // The next file's first number says whether this one has any of interest.
            if paths.get(index + 1).and_then(|next| first_of(next)).is_some_and(|next| next <= from) {
                continue;
            }
            lines(path, |line| {
                let Some(record) = line.record() else { return ControlFlow::Continue(()) };
                if record.sequence < from || !filter.matches(&record) {
                    return ControlFlow::Continue(());
                }
                let flow = visit(record);
                over = flow.is_break();
                flow
            })?;
            if over {
                break;
            }
        }
        Ok(())
    }

    /// Records from number `from` to the last that there is now, to be read piece by piece.
    #[must_use]
    pub fn read(&self, from: u64, filter: Filter) -> Cursor {
        Cursor::new(&self.shared.directory, filter, from, self.head().0)
    }

    /// Checks the whole log against its own key. Blocks: for a blocking thread.
    ///
    /// # Errors
    /// What reading says.
    pub fn verify(&self) -> io::Result<Verification> {
        self.verify_against(&[])
    }

    /// [`AuditLog::verify`], and that the log holds what was kept elsewhere.
    ///
    /// # Errors
    /// As [`AuditLog::verify`].
    pub fn verify_against(&self, heads: &[Head]) -> io::Result<Verification> {
        verify_against(&self.shared.directory, &self.shared.key, heads)
    }

    /// Whether the key of this log signed a checkpoint.
    #[must_use]
    pub fn signed(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.is_signed(&self.shared.key)
    }

    /// The number behind which this log begins; 0 where it begins with its first record.
    ///
    /// # Errors
    /// What reading says.
    pub fn begins(&self) -> io::Result<u64> {
        Ok(match Beginning::read(&self.shared.directory)? {
            Some(Beginning::Good(checkpoint)) => checkpoint.head.sequence,
            Some(Beginning::Unreadable) | None => 0,
        })
    }
}

/// The first number of a file, from its name.
pub(super) fn first_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

fn failed(path: &Path, error: &io::Error) -> LogError {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return LogError::Full { path: path.display().to_string() };
    }
    LogError::Io { path: path.display().to_string(), problem: error.to_string() }
}

struct Writer {
    directory: PathBuf,
    signer: Arc<dyn Signer>,
    signed: watch::Sender<Option<Checkpoint>>,
    live: broadcast::Sender<Arc<Record>>,
    head: Arc<Mutex<(u64, [u8; 32])>>,
    file: Option<(File, PathBuf)>,
    /// Where the last whole batch ends.
    good: u64,
    reserve: Reserve,
    since_checkpoint: u64,
    first_unsigned: Option<Instant>,
    remembered: HashSet<Uuid>,
    order: VecDeque<Uuid>,
    repaired: Option<Repair>,
}

impl Writer {
    fn open(
        directory: &Path,
        signer: Arc<dyn Signer>,
        live: broadcast::Sender<Arc<Record>>,
    ) -> Result<Self, LogError> {
        let mut writer = Self {
            directory: directory.to_owned(),
            signer,
            signed: watch::Sender::default(),
            live,
            head: Arc::new(Mutex::new((0, [0; 32]))),
            file: None,
            good: 0,
            reserve: Reserve::default(),
            since_checkpoint: 0,
            first_unsigned: None,
            remembered: HashSet::new(),
            order: VecDeque::new(),
            repaired: None,
        };
        let beginning = Beginning::read(directory).map_err(|error| failed(directory, &error))?;
        if let Some(Beginning::Good(checkpoint)) = beginning {
            *writer.head.lock().unwrap_or_else(PoisonError::into_inner) =
                (checkpoint.head.sequence, checkpoint.head.hash);
        }
        let paths = segments(directory).map_err(|error| failed(directory, &error))?;
        let Some(last) = paths.last() else { return Ok(writer) };
        let mut previous = None;
        let mut torn = 0;
        let mut broken = None;
        let mut number = 0;
        lines(last, |line| match line.record() {
            Some(record) => {
                if let Ok(event) = record.event() {
                    writer.remember(event.delivery());
                }
                previous = Some(record);
                number += 1;
                writer.good += line.bytes;
                ControlFlow::Continue(())
            }
            None if !line.ended => {
                torn = line.bytes;
                ControlFlow::Break(())
            }
            None => {
                broken = Some(format!(
                    "{} line {} is a whole line of {} bytes and not a record",
                    last.display(),
                    number + 1,
                    line.bytes
                ));
                ControlFlow::Break(())
            }
        })
        .map_err(|error| failed(last, &error))?;
        if let Some(broken) = broken {
            return Err(LogError::Broken(broken));
        }
        let previous = match previous {
            Some(record) => Some(record),
            // A file that was made and never written: the chain goes on from the one before.
            None => paths.iter().rev().nth(1).map(|path| last_record(path)).transpose()?.flatten(),
        };
        if let Some(record) = previous {
            *writer.head.lock().unwrap_or_else(PoisonError::into_inner) = (record.sequence, record.hash);
            // Whether the last process signed its last records is not known; signing them again does no harm.
            writer.since_checkpoint = 1;
            writer.first_unsigned = Some(Instant::now());
        }
        let file = OpenOptions::new().append(true).open(last).map_err(|error| failed(last, &error))?;
        if torn > 0 {
            file.set_len(writer.good)
                .and_then(|()| file.sync_data())
                .map_err(|error| failed(last, &error))?;
            writer.repaired = Some(Repair { bytes: torn });
        }
        // Where there is no room now, what is urgent has none until there is.
        let _ = writer.reserve.keep(&file, writer.good);
        writer.file = Some((file, last.clone()));
        Ok(writer)
    }

    fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
        loop {
            let first = match self.first_unsigned {
                None => Ok(runtime.block_on(commands.recv())),
                Some(since) => {
                    let left = CHECKPOINT_AFTER.saturating_sub(since.elapsed());
                    runtime.block_on(async { tokio::time::timeout(left, commands.recv()).await })
                }
            };
            let first = match first {
                Ok(Some(command)) => command,
                Ok(None) => {
                    let _ = self.checkpoint();
                    return;
                }
                Err(_) => {
                    self.checkpoint_or_warn();
                    continue;
                }
            };
            let mut waiting = Vec::new();
            let mut count = 0;
            let mut after = None;
            let mut next = Some(first);
            while let Some(command) = next.take() {
                match command {
                    Command::Append { events, urgent, answer } => {
                        count += events.len();
                        waiting.push((events, urgent, answer));
                    }
                    other => {
                        after = Some(other);
                        break;
                    }
                }
                if count < BATCH {
                    next = commands.try_recv().ok();
                }
            }
            self.commit_all(waiting);
            match after {
                Some(Command::Checkpoint(answer)) => {
                    let _ = answer.send(self.checkpoint());
                }
                Some(Command::Close(answer)) => {
                    let outcome = self.checkpoint();
                    drop(self);
                    let _ = answer.send(outcome);
                    return;
                }
                Some(Command::Append { .. }) | None => {}
            }
            if self.since_checkpoint >= CHECKPOINT_RECORDS {
                self.checkpoint_or_warn();
            }
        }
    }

    /// Writes what waits with one sync. What is urgent waits for nothing: a disk that is too full for the rest is not for it.
    fn commit_all(&mut self, waiting: Vec<(Vec<Event>, bool, Answer)>) {
        let all = waiting.iter().flat_map(|(events, _, _)| events);
        let whole = self.commit(all, false);
        if !matches!(whole, Err(LogError::Full { .. })) {
            for (_, _, answer) in waiting {
                let _ = answer.send(whole.clone());
            }
            return;
        }
        for (events, urgent, answer) in waiting {
            let outcome = if urgent { self.commit(events.iter(), true) } else { whole.clone() };
            let _ = answer.send(outcome);
        }
    }

    /// Writes events and syncs; all or none.
    fn commit<'e>(&mut self, events: impl Iterator<Item = &'e Event>, urgent: bool) -> Result<(), LogError> {
        let mut batch = HashSet::new();
        let fresh: Vec<Event> = events
            .filter(|event| {
                let delivery = event.delivery();
                !self.remembered.contains(&delivery) && batch.insert(delivery)
            })
            .map(|event| event.clone().bounded())
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let (mut sequence, mut hash) = *self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let mut records = Vec::with_capacity(fresh.len());
        for event in &fresh {
            sequence += 1;
            let record = Record::chain(sequence, &hash, event.to_json());
            hash = record.hash;
            text.push_str(&record.line());
            records.push(Arc::new(record));
        }
        self.write(&text, records.first().map_or(1, |record| record.sequence), urgent)?;
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = (sequence, hash);
        for event in &fresh {
            self.remember(event.delivery());
        }
        self.since_checkpoint += records.len() as u64;
        self.first_unsigned.get_or_insert_with(Instant::now);
        for record in records {
            // Nobody following is no fault.
            let _ = self.live.send(record);
        }
        Ok(())
    }

    fn write(&mut self, text: &str, first: u64, urgent: bool) -> Result<(), LogError> {
        // What is urgent goes where its room is.
        if self.file.is_none() || (self.good >= SEGMENT_BYTES && !urgent) {
            self.begin_file(first)?;
        }
        let end = self.good + text.len() as u64;
        let Some((file, path)) = self.file.as_mut() else { return Err(LogError::Closed) };
        if !urgent {
            self.reserve.keep(file, end).map_err(|error| failed(path, &error))?;
        }
        match file.write_all(text.as_bytes()).and_then(|()| file.sync_data()) {
            Ok(()) => {
                self.good = end;
                Ok(())
            }
            Err(error) => {
                // Half a record would break the chain for good.
                let _ = file.set_len(self.good);
                self.reserve.lost();
                let _ = self.reserve.keep(file, self.good);
                Err(failed(path, &error))
            }
        }
    }

    /// Begins a file with the record of this number. The one before keeps what is reserved until the new one has as much.
    fn begin_file(&mut self, first: u64) -> Result<(), LogError> {
        let path = self.directory.join(format!("{PREFIX}{first:016}{SUFFIX}"));
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failed(&path, &error))?;
        let mut reserve = Reserve::default();
        // The name of a new file must survive as its content does.
        let begun =
            reserve.keep(&file, 0).and_then(|()| File::open(&self.directory)).and_then(|at| at.sync_all());
        if let Err(error) = begun {
            let _ = fs::remove_file(&path);
            return Err(failed(&path, &error));
        }
        if let Some((before, _)) = self.file.take() {
            let _ = before.set_len(self.good);
        }
        self.file = Some((file, path));
        self.reserve = reserve;
        self.good = 0;
        Ok(())
    }

    fn remember(&mut self, id: Uuid) {
        if self.remembered.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.remembered.remove(&oldest);
        }
    }

    fn checkpoint_or_warn(&mut self) {
        if let Err(error) = self.checkpoint() {
            tracing::error!(%error, "an audit checkpoint could not be made");
            // Not at once again.
            self.first_unsigned = Some(Instant::now());
        }
    }

    fn checkpoint(&mut self) -> Result<(), LogError> {
        if self.since_checkpoint == 0 {
            return Ok(());
        }
        let (sequence, hash) = *self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let time = OffsetDateTime::now_utc().unix_timestamp();
        let path = self.directory.join(CHECKPOINTS);
        let checkpoint = Checkpoint::sign(Head { sequence, hash }, time, &*self.signer)
            .map_err(|error| LogError::Io { path: path.display().to_string(), problem: error.to_string() })?;
        let line = format!("{}\n", checkpoint.to_line());
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
            let before = file.metadata()?.len();
            file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).inspect_err(|_| {
                let _ = file.set_len(before);
            })
        };
        write().map_err(|error| failed(&path, &error))?;
        self.signed.send_replace(Some(checkpoint));
        self.since_checkpoint = 0;
        self.first_unsigned = None;
        Ok(())
    }
}

fn last_record(path: &Path) -> Result<Option<Record>, LogError> {
    let mut last = None;
    lines(path, |line| {
        last = line.record().or(last.take());
        ControlFlow::Continue(())
    })
    .map_err(|error| failed(path, &error))?;
    Ok(last)
}
