//! Audit events on their way to the authority: on disk until they are acknowledged.
//!
//! Emitting never waits. A thread of its own writes events to small segment files, so that a slow disk delays no
//! session; a task sends closed segments in order and removes each once the authority has it on disk. Sending one twice
//! is harmless, the authority knows events by id. Where the authority does not keep up, the writer stops closing segments by time
//! and fills them, so that few files wait and each event has its place on disk until the bound in bytes. When that bound is reached
//! or the disk is full, new events are dropped and counted, and an event says so in their place as soon as there is room: a gap in
//! the audit log is one that is said. So is what may have been lost with a process that was killed: the next one finds the spool open.

mod delivery;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

pub(crate) use delivery::MAY_NOT_REPORT;
use metrics::counter;
use sallyport_audit::{Code, Event, Sink};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use uuid::Uuid;

use crate::ServerError;
use crate::files;
use crate::member::authority_client::AuthorityClient;

/// Events that may wait for the disk.
const QUEUE_EVENTS: usize = 8_192;
/// A segment is closed after this time, so that events reach the authority soon.
const SEGMENT_TIME: Duration = Duration::from_millis(200);
/// Or at this size, which fits into one call.
const SEGMENT_BYTES: usize = 256 * 1024;
/// Closed segments that may wait for the authority before the writer closes them by size alone.
const CLOSED_SEGMENTS: usize = 1_024;
/// How soon it is tried again to say what was lost, where nothing else is to be written.
const SAY_AGAIN: Duration = Duration::from_secs(2);
const SUFFIX: &str = "jsonl";
/// Is there while a process may have events that are not in the spool yet.
const OPEN: &str = "open";

enum Command {
    Event(Box<Event>),
    /// Close the segment now.
    Flush,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicU64,
    dropped: AtomicU64,
}

/// Takes events from anywhere in the process.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    queue: SyncSender<Command>,
    waiting: Arc<Waiting>,
    /// Segments accepted and segments acknowledged.
    progress: watch::Receiver<Progress>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// Number of flushes answered by the writer.
    flushed: u64,
    /// Closed segments that the authority does not have yet.
    unsent: u64,
}

impl Sink for Spool {
    fn emit(&self, event: Event) {
        match self.queue.try_send(Command::Event(Box::new(event))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.waiting.drop_one(),
        }
    }
}

impl Waiting {
    fn drop_one(&self) {
        counter!("sallyport_events_dropped_total").increment(1);
        if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            error!("audit events are being lost: the spool is full, or its disk is full or stuck");
        }
    }
}

struct Segment {
    path: PathBuf,
    bytes: u64,
}

/// Starts the writer; gives the sink and the task that sends.
pub(crate) fn open(directory: &Path, limit_bytes: u64) -> Result<(Spool, Sender), ServerError> {
    open_bounded(directory, limit_bytes, CLOSED_SEGMENTS)
}

fn open_bounded(
    directory: &Path,
    limit_bytes: u64,
    closed_segments: usize,
) -> Result<(Spool, Sender), ServerError> {
    files::private_directory(directory)?;
    let failed = |source| ServerError::File { action: "read", path: directory.to_owned(), source };
    let mut leftovers = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            leftovers.push(Segment { path, bytes });
        }
    }
    // Names are time-ordered UUIDs.
    leftovers.sort_by(|left, right| left.path.cmp(&right.path));
    let unclosed = directory.join(OPEN).exists();
    let waiting = Arc::new(Waiting::default());
    let unsent = leftovers.len() as u64;
    waiting.bytes.fetch_add(leftovers.iter().map(|segment| segment.bytes).sum(), Ordering::Relaxed);
    let (progress, seen) = watch::channel(Progress { flushed: 0, unsent });
    // As many full segments as `limit_bytes` has room for, and one that is closed while it is not full.
    let full_segments = usize::try_from(limit_bytes / SEGMENT_BYTES as u64).unwrap_or(usize::MAX / 2) + 1;
    let capacity = full_segments.saturating_add(closed_segments).min(Semaphore::MAX_PERMITS);
    let (closed, segments) = mpsc::channel(capacity);
    let (queue, commands) = sync_channel(QUEUE_EVENTS);
    let writer = Writer {
        directory: directory.to_owned(),
        limit_bytes,
        waiting: Arc::clone(&waiting),
        closed,
        full_segments,
        progress: progress.clone(),
        unclosed: AtomicBool::new(unclosed),
    };
    writer.mark_open(true);
    std::thread::Builder::new().name("event-spool".to_owned()).spawn(move || writer.run(&commands)).map_err(
        |source| ServerError::File { action: "start the writer of", path: directory.to_owned(), source },
    )?;
    let sender =
        Sender { leftovers: leftovers.into_iter(), segments, waiting: Arc::clone(&waiting), progress };
    Ok((Spool { queue, waiting, progress: seen }, sender))
}

impl Spool {
    /// Waits until the authority has everything that was emitted before, at most for `patience`.
    pub(crate) async fn flush(&self, patience: Duration) -> bool {
        let before = self.progress.borrow().flushed;
        if self.queue.try_send(Command::Flush).is_err() {
            return false;
        }
        let mut progress = self.progress.clone();
        let done = progress.wait_for(|now| now.flushed > before && now.unsent == 0);
        matches!(tokio::time::timeout(patience, done).await, Ok(Ok(_)))
    }
}

struct Writer {
    directory: PathBuf,
    limit_bytes: u64,
    waiting: Arc<Waiting>,
    closed: mpsc::Sender<Segment>,
    /// Places in `closed` for segments that are full. There is always one, because together those have no more than `limit_bytes`.
    full_segments: usize,
    progress: watch::Sender<Progress>,
    /// The process before this one was killed, and that is not said yet.
    unclosed: AtomicBool,
}

struct Open {
    file: File,
    path: PathBuf,
    bytes: usize,
    /// Of these, the disk has confirmed so many.
    synced: usize,
    /// When it was begun, or last not closed for want of a place.
    since: Instant,
}

impl Open {
    fn sync(&mut self) {
        if self.synced == self.bytes {
            return;
        }
        match self.file.sync_data() {
            Ok(()) => self.synced = self.bytes,
            Err(error) => {
                warn!(%error, path = %self.path.display(), "audit events may not be on disk yet");
            }
        }
    }
}

impl Writer {
    /// Says to a process after this one whether this one may have had more events.
    fn mark_open(&self, open: bool) {
        let mark = self.directory.join(OPEN);
        let done = match open {
            true => {
                OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&mark).map(drop)
            }
            false => fs::remove_file(&mark),
        };
        if let Err(error) = done
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!(%error, path = %mark.display(), "a spool of events is not marked");
        }
    }

    fn run(&self, commands: &Receiver<Command>) {
        let mut open: Option<Open> = None;
        let mut ending = false;
        // Asked for, and not done.
        let mut flushes = 0;
        self.say_unclosed(&mut open);
        loop {
            let gap =
                self.waiting.dropped.load(Ordering::Relaxed) > 0 || self.unclosed.load(Ordering::Relaxed);
            let patience = match &open {
                Some(open) => SEGMENT_TIME.saturating_sub(open.since.elapsed()),
                None if gap => SAY_AGAIN,
                None => Duration::from_secs(3600),
            };
            match commands.recv_timeout(patience) {
                Ok(Command::Event(event)) => {
                    self.say_lost(&mut open);
                    self.keep(&mut open, &event);
                    // What comes at the very end is not waited for.
                    if ending || open.as_ref().is_some_and(|open| open.bytes >= SEGMENT_BYTES) {
                        self.close(&mut open);
                    }
                }
                Ok(Command::Flush) => {
                    self.close(&mut open);
                    self.mark_open(false);
                    ending = true;
                    flushes += 1;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.say_lost(&mut open);
                    self.close(&mut open);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.say_lost(&mut open);
                    self.close(&mut open);
                    self.mark_open(false);
                    return;
                }
            }
            if flushes > 0 && open.is_none() {
                self.progress.send_modify(|progress| progress.flushed += flushes);
                flushes = 0;
            }
        }
    }

    /// Writes an event, or counts it as lost.
    fn keep(&self, open: &mut Option<Open>, event: &Event) {
        match self.append(open, event) {
            Ok(true) => {}
            Ok(false) => self.waiting.drop_one(),
            Err(error) => {
                // The first of many; the count follows.
                if self.waiting.dropped.load(Ordering::Relaxed) == 0 {
                    error!(%error, directory = %self.directory.display(), "audit events cannot be written");
                }
                self.waiting.drop_one();
            }
        }
    }

    /// Says that a process before this one may have had more events, as soon as that can be written.
    fn say_unclosed(&self, open: &mut Option<Open>) {
        if !self.unclosed.load(Ordering::Relaxed) {
            return;
        }
        let event = Event::new(Code::AuditUnclosed, OffsetDateTime::now_utc())
            .message("the process before this one was ended without handing over its last events");
        if matches!(self.append(open, &event), Ok(true)) {
            self.unclosed.store(false, Ordering::Relaxed);
        }
    }

    /// Says how many events are missing, in their place, as soon as that can be written.
    fn say_lost(&self, open: &mut Option<Open>) {
        self.say_unclosed(open);
        let lost = self.waiting.dropped.load(Ordering::Relaxed);
        if lost == 0 {
            return;
        }
        let event = Event::new(Code::AuditLost, OffsetDateTime::now_utc())
            .message("the spool of events was full, or its disk")
            .field("lost", lost);
        if matches!(self.append(open, &event), Ok(true)) {
            self.waiting.dropped.fetch_sub(lost, Ordering::Relaxed);
            error!(lost, "audit events were lost; new ones are kept again");
        }
    }

    /// Writes an event where there is room for it.
    fn append(&self, open: &mut Option<Open>, event: &Event) -> io::Result<bool> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let bytes = self.waiting.bytes.load(Ordering::Relaxed);
        if bytes.saturating_add(line.len() as u64) > self.limit_bytes {
            return Ok(false);
        }
        let segment = match open.take() {
            Some(segment) => open.insert(segment),
            None => {
                let name = Uuid::now_v7().to_string();
                let path = self.directory.join(format!("{name}.{SUFFIX}"));
                let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
                open.insert(Open { file, path, bytes: 0, synced: 0, since: Instant::now() })
            }
        };
        if let Err(error) = segment.file.write_all(&line) {
            // Half a line would take the next one with it.
            let _ = segment.file.set_len(segment.bytes as u64);
            return Err(error);
        }
        segment.bytes += line.len();
        self.waiting.bytes.fetch_add(line.len() as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Hands a segment on. One that is not full stays open where too many wait: it takes the next events, too, and its turn comes
    /// when the authority has taken others.
    fn close(&self, open: &mut Option<Open>) {
        let Some(mut segment) = open.take() else { return };
        segment.sync();
        let kept_free = if segment.bytes >= SEGMENT_BYTES { 0 } else { self.full_segments };
        if self.closed.capacity() <= kept_free && !self.closed.is_closed() {
            segment.since = Instant::now();
            *open = Some(segment);
            return;
        }
        self.progress.send_modify(|progress| progress.unsent += 1);
        // The task that sends may be gone: then the file waits for the next process.
        let _ = self.closed.try_send(Segment { path: segment.path, bytes: segment.bytes as u64 });
    }
}

/// Sends segments to the authority.
pub(crate) struct Sender {
    /// Of processes before this one, the oldest first.
    leftovers: std::vec::IntoIter<Segment>,
    segments: mpsc::Receiver<Segment>,
    waiting: Arc<Waiting>,
    progress: watch::Sender<Progress>,
}

impl Sender {
    /// Sends until `stop`. What is not sent by then waits on disk for the next start.
    pub(crate) async fn run(mut self, client: AuthorityClient, stop: CancellationToken) {
        loop {
            let segment = tokio::select! {
                () = stop.cancelled() => return,
                segment = self.next() => segment,
            };
            let Some(segment) = segment else { return };
            tokio::select! {
                () = stop.cancelled() => return,
                () = delivery::send(&segment.path, &client) => {}
            }
            self.taken(&segment);
        }
    }

    async fn next(&mut self) -> Option<Segment> {
        match self.leftovers.next() {
            Some(segment) => Some(segment),
            None => self.segments.recv().await,
        }
    }

    /// The authority has a segment: there is room for new events again.
    fn taken(&self, segment: &Segment) {
        self.waiting.bytes.fetch_sub(segment.bytes, Ordering::Relaxed);
        self.progress.send_modify(|progress| progress.unsent = progress.unsent.saturating_sub(1));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_audit::Code;
    use time::OffsetDateTime;

    use super::delivery::read;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const LIMIT_BYTES: u64 = 8 * 1024;

    fn event(message: &str) -> Event {
        Event::new(Code::SessionStart, OffsetDateTime::UNIX_EPOCH).message(message)
    }

    async fn closed(sender: &mut Sender) -> Segment {
        tokio::time::timeout(PATIENCE, sender.next()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_process_that_is_killed_is_told_of_by_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        // What a process leaves behind that has no time to end.
        files::private_directory(&path).unwrap();
        fs::write(path.join(OPEN), "").unwrap();
        let (spool, mut sender) = open(&path, LIMIT_BYTES).unwrap();
        spool.emit(event("after"));
        let segment = closed(&mut sender).await;
        let mut kept = read(&segment.path).unwrap();
        while !kept.iter().any(|line| line.contains("\"after\"")) {
            kept.extend(read(&closed(&mut sender).await.path).unwrap());
        }
        assert!(kept[0].contains("\"audit.unclosed\""), "{kept:?}");
        assert!(path.join(OPEN).exists());
        // One that ends in order is not told of, whatever comes at its very end.
        let _ = spool.flush(Duration::ZERO).await;
        spool.emit(event("the last"));
        let segment = closed(&mut sender).await;
        assert!(read(&segment.path).unwrap()[0].contains("the last"));
        assert!(!path.join(OPEN).exists());
    }

    #[tokio::test]
    async fn an_overflow_costs_what_did_not_fit_and_nothing_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let (spool, mut sender) = open(&directory.path().join("events"), LIMIT_BYTES).unwrap();
        for round in 0..3 {
            for _ in 0..500 {
                spool.emit(event("one of many"));
            }
            let segment = closed(&mut sender).await;
            assert!(segment.bytes <= LIMIT_BYTES, "round {round}: {}", segment.bytes);
            assert!(sender.waiting.dropped.load(Ordering::Relaxed) > 0, "round {round}: nothing was lost");
            sender.taken(&segment);
            fs::remove_file(&segment.path).unwrap();

            spool.emit(event("after"));
            // What was lost may be said in a segment of its own.
            let mut kept = Vec::new();
            while !kept.iter().any(|line: &String| line.contains("\"after\"")) {
                let segment = closed(&mut sender).await;
                kept.extend(read(&segment.path).unwrap());
                sender.taken(&segment);
            }
            let place = |what: &str| kept.iter().position(|line| line.contains(what));
            let (said, after) = (place("\"audit.lost\""), place("\"after\""));
            assert!(said.is_some() && said < after, "round {round}: {kept:?}");
            assert_eq!(sender.waiting.dropped.load(Ordering::Relaxed), 0, "round {round}");
        }
    }
    /// Waits until so many whole events are on disk; gives the number of their files.
    async fn on_disk(directory: &Path, events: usize) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let files: Vec<_> = fs::read_dir(directory)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|extension| extension == SUFFIX))
                .collect();
            let lines: usize = files.iter().map(|path| read(path).unwrap().len()).sum();
            if lines >= events {
                return files.len();
            }
            assert!(Instant::now() < deadline, "{lines} of {events} events in {} files", files.len());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn segments_that_find_no_place_are_filled_and_nothing_of_them_is_lost() {
        const LIMIT_BYTES: u64 = 4 * SEGMENT_BYTES as u64;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let (spool, mut sender) = open_bounded(&path, LIMIT_BYTES, 2).unwrap();
        // From here on each event is closed at once, where there is a place.
        assert!(spool.flush(PATIENCE).await);
        for number in 0..100 {
            spool.emit(event(&format!("event {number} ")));
        }
        assert_eq!(on_disk(&path, 100).await, 3, "two closed segments, and one that stays open");

        // Full segments always find a place, so that none outgrows one call.
        let filler = "x".repeat(4 * 1024);
        for number in 100..300 {
            spool.emit(event(&format!("event {number} {filler}")));
        }
        on_disk(&path, 300).await;
        let asked = spool.clone();
        let flushed = tokio::spawn(async move { asked.flush(PATIENCE).await });
        // It is asked before the authority takes anything.
        tokio::task::yield_now().await;
        let mut kept = Vec::new();
        while kept.len() < 300 {
            let segment = closed(&mut sender).await;
            assert!(!flushed.is_finished(), "the authority has {} of 300", kept.len());
            assert!(segment.bytes < SEGMENT_BYTES as u64 + 8 * 1024, "{}", segment.bytes);
            kept.extend(read(&segment.path).unwrap());
            fs::remove_file(&segment.path).unwrap();
            sender.taken(&segment);
        }
        assert!(flushed.await.unwrap());
        assert_eq!(sender.waiting.dropped.load(Ordering::Relaxed), 0);
        for (number, line) in kept.iter().enumerate() {
            assert!(line.contains(&format!("\"event {number} ")), "{number}: {line:.200}");
        }
    }

    #[tokio::test]
    async fn what_a_process_leaves_is_sent_first_and_may_be_more_than_waits_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        files::private_directory(&path).unwrap();
        for number in 0..50 {
            let name = format!("{}.{SUFFIX}", Uuid::now_v7());
            fs::write(path.join(name), format!("{}\n", event(&format!("left {number}")).to_json())).unwrap();
        }
        let (spool, mut sender) = open_bounded(&path, LIMIT_BYTES * 8, 1).unwrap();
        spool.emit(event("new"));
        for number in 0..50 {
            let segment = closed(&mut sender).await;
            assert!(read(&segment.path).unwrap()[0].contains(&format!("\"left {number}\"")));
            sender.taken(&segment);
        }
        let segment = closed(&mut sender).await;
        assert!(read(&segment.path).unwrap()[0].contains("\"new\""));
        sender.taken(&segment);
        assert_eq!(sender.waiting.bytes.load(Ordering::Relaxed), 0);
        assert_eq!(*sender.progress.borrow(), Progress::default());
    }
}
