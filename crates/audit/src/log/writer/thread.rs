//! The thread that writes: batches, files, checkpoints and what was delivered twice.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_sal::Signer;
use time::OffsetDateTime;
use tokio::sync::{broadcast, mpsc, watch};
use uuid::Uuid;

use super::command::{Answer, Command, Repair};
use crate::Event;
use crate::log::chain::{CHECKPOINTS, PREFIX, Record, SUFFIX, lines, segments};
use crate::log::checkpoint::{Beginning, Checkpoint, Head};
use crate::log::error::{LogError, failed};
use crate::log::reserve::Reserve;

/// A file of the log is closed at this size.
const SEGMENT_BYTES: u64 = 64 << 20;
/// A checkpoint is made after this many records,
const CHECKPOINT_RECORDS: u64 = 1000;
/// or this long after the first record without one.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(60);
/// Events that go to disk with one sync at the most.
const BATCH: usize = 4096;
/// Ids remembered to know an event that is delivered twice.
const REMEMBERED: usize = 200_000;

/// The log as its thread has it.
pub(super) struct Writer {
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
    /// What of the log's end was cut off when it was opened.
    pub(super) fn repaired(&mut self) -> Option<Repair> {
        self.repaired.take()
    }

    /// The number and hash of the last record, as they go on.
    pub(super) fn head(&self) -> Arc<Mutex<(u64, [u8; 32])>> {
        Arc::clone(&self.head)
    }

    /// Checkpoints as they are made.
    pub(super) fn signed(&self) -> watch::Receiver<Option<Checkpoint>> {
        self.signed.subscribe()
    }

    /// Lets go of the file, which is about to be set aside.
    pub(super) fn let_go(&mut self) {
        self.file = None;
    }

    pub(super) fn open(
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
            *writer.head.lock() = (checkpoint.head.sequence, checkpoint.head.hash);
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
            *writer.head.lock() = (record.sequence, record.hash);
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

    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
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
        let fresh: Vec<(Uuid, &Event)> = events
            .map(|event| (event.delivery(), event))
            .filter(|(delivery, _)| !self.remembered.contains(delivery) && batch.insert(*delivery))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let (mut sequence, mut hash) = *self.head.lock();
        let mut text = String::new();
        let mut records = Vec::with_capacity(fresh.len());
        for (_, event) in &fresh {
            sequence += 1;
            let record = Record::chain(sequence, &hash, event.to_bounded_json());
            hash = record.hash;
            text.push_str(&record.line());
            records.push(Arc::new(record));
        }
        self.write(&text, records.first().map_or(1, |record| record.sequence), urgent)?;
        *self.head.lock() = (sequence, hash);
        for (delivery, _) in fresh {
            self.remember(delivery);
        }
        self.since_checkpoint += records.len() as u64;
        self.first_unsigned.get_or_insert_with(Instant::now);
        for record in records {
            // A log without followers is no fault.
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
        let (sequence, hash) = *self.head.lock();
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
