//! Recordings on their way to the authority, while they are made and after.
//!
//! Each recording is a file in the spool that only grows. The authority says how much of it it has, and takes the
//! rest; so an interruption, of the network, of this process or of the authority, costs nothing but time. A file is
//! removed when the authority has all of it and its session writes to it no more.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use metrics::{counter, gauge};
use sallyport_access::SessionId;
use sallyport_audit::recording::Recorders;
use sallyport_wire::v1::{RecordingOffsetRequest, UploadRecordingRequest};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::backoff::Backoff;
use crate::member::authority_client::AuthorityClient;

/// How often live recordings are looked at: what is on the authority is what survives the loss of the node.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// One message of an upload.
const CHUNK_BYTES: usize = 128 * 1024;
/// Uploads at a time; more only compete for the same link.
const PARALLEL: usize = 8;
/// One call carries at most this much, so that a long recording gives way to others.
const CALL_BYTES: u64 = 16 * 1024 * 1024;
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// When the authority is away, one recording asks for all of them, at these intervals.
const LONGEST_ABSENCE: Duration = Duration::from_secs(5);
/// The suffix of recordings in the spool.
pub(crate) const SUFFIX: &str = "rec";

/// Uploads everything in the spool.
#[derive(Debug, Clone)]
pub(crate) struct Uploader {
    recorders: Recorders,
    client: AuthorityClient,
    /// What the spool may hold; past it no recording begins.
    limit_bytes: u64,
    /// How often the spool was looked at, and how many finished recordings wait.
    waiting: watch::Sender<(u64, usize)>,
    full: Arc<AtomicBool>,
}

/// Whether the authority takes anything at all. While it does not, thousands of recordings that each try again would
/// cost more than the sessions do.
#[derive(Debug)]
struct Absence {
    since_failure: bool,
    backoff: Backoff,
    not_before: Instant,
}

impl Absence {
    fn new() -> Self {
        Self {
            since_failure: false,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_ABSENCE),
            not_before: Instant::now(),
        }
    }

    /// How many uploads may begin now, with so many under way.
    fn admits(&self, busy: usize, now: Instant) -> usize {
        match self.since_failure {
            false => usize::MAX,
            true if self.not_before > now => 0,
            true => 1_usize.saturating_sub(busy),
        }
    }

    fn note(&mut self, outcome: &Outcome, now: Instant) {
        match outcome {
            Outcome::Progress(_) | Outcome::Done => {
                self.since_failure = false;
                self.backoff.reset();
            }
            Outcome::Failed(status) if concerns_all(status) => {
                // Those that were under way together count as one.
                if !self.since_failure || self.not_before <= now {
                    self.not_before = now + self.backoff.pause(crate::backoff::chance());
                }
                self.since_failure = true;
            }
            Outcome::Failed(_) => {}
        }
    }
}

/// Whether a failure is the authority's, and not that of one recording.
fn concerns_all(status: &Status) -> bool {
    use tonic::Code::{Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable, Unknown};
    matches!(status.code(), Cancelled | DeadlineExceeded | ResourceExhausted | Unavailable | Unknown)
}

/// What is known of one file between looks.
#[derive(Debug)]
struct Known {
    /// What the authority has.
    offset: Option<u64>,
    backoff: Backoff,
    not_before: Instant,
    /// A call was made for it.
    tried: bool,
    /// A call is under way.
    busy: bool,
}

struct Task {
    session: SessionId,
    path: PathBuf,
    offset: Option<u64>,
    /// How much of the file is on disk for good; none once its session writes no more, and all of it is.
    written: Option<u64>,
}

enum Outcome {
    /// The authority has this much.
    Progress(u64),
    /// It has everything, and the file is gone.
    Done,
    /// Later.
    Failed(Status),
}

impl Uploader {
    pub(crate) fn new(recorders: Recorders, limit_bytes: u64, client: AuthorityClient) -> Self {
        let full = recorders.full();
        Self { recorders, client, limit_bytes, waiting: watch::channel((0, 0)).0, full }
    }

    /// Notes how much the spool holds.
    fn weigh(&self, bytes: u64) {
        gauge!("sallyport_recording_spool_bytes").set(bytes as f64);
        let full = bytes > self.limit_bytes;
        if full != self.full.swap(full, Ordering::Relaxed) {
            if full {
                error!(
                    mib = bytes >> 20,
                    limit_mib = self.limit_bytes >> 20,
                    "the recording spool is full: no recording begins until the authority has taken some; is it reachable?"
                );
            } else {
                info!("the recording spool has room again");
            }
        }
    }

    /// Waits until the authority has everything of finished sessions, at most for `patience`.
    pub(crate) async fn drained(&self, patience: Duration) -> bool {
        let mut waiting = self.waiting.subscribe();
        let result = tokio::time::timeout(patience, async {
            // The count must come from a look that began after this call.
            let after = waiting.borrow().0 + 2;
            waiting.wait_for(|(looks, waiting)| *looks >= after && *waiting == 0).await.map(|_| ())
        });
        matches!(result.await, Ok(Ok(())))
    }

    /// Runs until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let span = info_span!("recording.upload");
        tokio::select! {
            () = self.forever().instrument(span) => {}
            () = stop.cancelled() => {}
        }
    }

    async fn forever(&self) {
        let mut known: HashMap<SessionId, Known> = HashMap::new();
        let mut absence = Absence::new();
        let mut uploads = JoinSet::new();
        let permits = Arc::new(Semaphore::new(PARALLEL));
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looks = 0;
        loop {
            tokio::select! {
                _ = look.tick() => {
                    self.look(&mut known, &absence, &mut uploads, &permits).await;
                    looks += 1;
                }
                // A session waits for the authority to have its beginning, or more of it.
                () = self.recorders.wanted() => self.look(&mut known, &absence, &mut uploads, &permits).await,
                Some(joined) = uploads.join_next() => {
                    if let Ok((session, outcome)) = joined {
                        // An administrator has to act on this one; other failures pass by themselves.
                        if let Outcome::Failed(status) = &outcome
                            && status.code() == tonic::Code::ResourceExhausted
                            && !absence.since_failure
                        {
                            warn!(message = status.message(), "recordings wait for the authority");
                        }
                        absence.note(&outcome, Instant::now());
                        self.note(&mut known, session, outcome);
                    }
                }
            }
            let waiting = known.keys().filter(|session| self.recorders.written(session).is_none()).count();
            gauge!("sallyport_recordings_waiting").set(waiting as f64);
            self.waiting.send_replace((looks, waiting));
        }
    }

    /// Begins to upload what is new. A call that stands still holds up its own recording only.
    async fn look(
        &self,
        known: &mut HashMap<SessionId, Known>,
        absence: &Absence,
        uploads: &mut JoinSet<(SessionId, Outcome)>,
        permits: &Arc<Semaphore>,
    ) {
        let files = match self.list().await {
            Ok(files) => files,
            Err(error) => {
                let directory = self.recorders.directory().display();
                return error!(%error, %directory, "the recording spool cannot be read");
            }
        };
        self.weigh(files.iter().map(|(_, _, bytes)| *bytes).sum());
        let present: HashSet<SessionId> = files.iter().map(|(session, ..)| *session).collect();
        known.retain(|session, entry| entry.busy || present.contains(session));
        let mut admitted = absence.admits(uploads.len(), Instant::now());
        for (session, path, _) in files {
            let entry = known.entry(session).or_insert_with(|| Known {
                offset: None,
                backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
                not_before: Instant::now(),
                tried: false,
                busy: false,
            });
            if entry.busy || entry.not_before > Instant::now() {
                continue;
            }
            // Asked before the file is read: what is written after this moment is for the next look.
            let written = self.recorders.written(&session);
            if entry.offset.is_some() && entry.offset == written {
                continue;
            }
            // One that is new may find out that the authority is back: its session may wait for it.
            if admitted == 0 && entry.tried {
                continue;
            }
            admitted = admitted.saturating_sub(1);
            entry.tried = true;
            entry.busy = true;
            let task = Task { session, path, offset: entry.offset, written };
            let (client, permits) = (self.client.clone(), Arc::clone(permits));
            uploads.spawn(async move {
                let _permit = permits.acquire_owned().await;
                let outcome = upload(&client, &task).await.unwrap_or_else(Outcome::Failed);
                (task.session, outcome)
            });
        }
    }

    fn note(&self, known: &mut HashMap<SessionId, Known>, session: SessionId, outcome: Outcome) {
        let Some(entry) = known.get_mut(&session) else { return };
        entry.busy = false;
        match outcome {
            Outcome::Progress(offset) => {
                entry.offset = Some(offset);
                entry.backoff.reset();
                self.recorders.stored(&session, offset);
            }
            Outcome::Done => {
                known.remove(&session);
            }
            Outcome::Failed(status) => {
                entry.offset = None;
                if !concerns_all(&status) {
                    entry.not_before = Instant::now() + entry.backoff.pause(crate::backoff::chance());
                }
                debug!(%session, message = status.message(), "a recording waits for the authority");
            }
        }
    }

    async fn list(&self) -> io::Result<Vec<(SessionId, PathBuf, u64)>> {
        let directory = self.recorders.directory().to_owned();
        // In one go: a task for each file would cost more than the files.
        let listed = tokio::task::spawn_blocking(move || {
            let mut files = Vec::new();
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let path = entry.path();
                if let Some(session) = session_of(&path) {
                    // It may have been removed in this moment.
                    let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
                    files.push((session, path, bytes));
                }
            }
            // Oldest first: ids are time-ordered.
            files.sort();
            Ok(files)
        });
        listed.await.map_err(io::Error::other)?
    }
}

fn session_of(path: &Path) -> Option<SessionId> {
    if path.extension()? != SUFFIX {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}

async fn upload(client: &AuthorityClient, task: &Task) -> Result<Outcome, Status> {
    let mut fleet = client.fleet();
    let local = |error: io::Error| Status::internal(format!("{}: {error}", task.path.display()));
    let offset = match task.offset {
        Some(offset) => offset,
        None => {
            let ask = fleet.recording_offset(RecordingOffsetRequest { session_id: task.session.to_string() });
            let answer = tokio::time::timeout(CALL_TIMEOUT, ask)
                .await
                .map_err(|_| Status::deadline_exceeded("no answer about the recording"))??
                .into_inner();
            if answer.complete {
                if task.written.is_none() {
                    remove(&task.path).await;
                    return Ok(Outcome::Done);
                }
                return Ok(Outcome::Progress(answer.offset));
            }
            answer.offset
        }
    };
    let finished = task.written.is_none();
    let length = match task.written {
        Some(written) => written,
        None => tokio::fs::metadata(&task.path).await.map_err(local)?.len(),
    };
    if offset > length {
        // Only a node that lost its disk, or was restored from a backup, can be behind.
        warn!(session = %task.session, offset, length, "the authority has more of a recording than this node");
        if finished {
            remove(&task.path).await;
            return Ok(Outcome::Done);
        }
        return Ok(Outcome::Progress(offset));
    }
    if offset == length && !finished {
        return Ok(Outcome::Progress(offset));
    }
    let until = length.min(offset.saturating_add(CALL_BYTES));
    let complete = finished && until == length;
    let (messages, stream) = mpsc::channel(4);
    let feed = feed(task, offset, until, complete, messages);
    let call = fleet.upload_recording(ReceiverStream::new(stream));
    let (fed, answer) = tokio::time::timeout(CALL_TIMEOUT, async { tokio::join!(feed, call) })
        .await
        .map_err(|_| Status::deadline_exceeded("the upload of a recording stood still"))?;
    let outcome = if answer.is_ok() { "ok" } else { "error" };
    counter!("sallyport_authority_calls_total", "method" => "UploadRecording", "result" => outcome)
        .increment(1);
    let reached = answer?.into_inner().offset;
    fed.map_err(local)?;
    counter!("sallyport_recording_bytes_total").increment(reached.saturating_sub(offset));
    if complete && reached >= length {
        info!(session = %task.session, bytes = length, "recording uploaded");
        remove(&task.path).await;
        return Ok(Outcome::Done);
    }
    Ok(Outcome::Progress(reached))
}

async fn remove(path: &Path) {
    if let Err(error) = tokio::fs::remove_file(path).await {
        warn!(%error, path = %path.display(), "an uploaded recording was not removed");
    }
}

/// Does what may wait for a disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The next bytes of a file, exactly so many, read to where they go on from: a recording passes here as fast as its session.
fn read(file: &File, wanted: usize) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(wanted);
    file.take(wanted as u64).read_to_end(&mut chunk)?;
    if chunk.len() < wanted { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(chunk) }
}

/// Sends the part `from..until` of the file.
async fn feed(
    task: &Task,
    from: u64,
    until: u64,
    complete: bool,
    messages: mpsc::Sender<UploadRecordingRequest>,
) -> io::Result<()> {
    let path = task.path.clone();
    let file = blocking(move || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        Ok(file)
    });
    let file = Arc::new(file.await?);
    let session_id = task.session.to_string();
    let mut offset = from;
    loop {
        let left = usize::try_from(until.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (file, wanted) = (Arc::clone(&file), left.min(CHUNK_BYTES));
        let chunk = blocking(move || read(&file, wanted)).await?;
        let next = offset + chunk.len() as u64;
        let last = next == until;
        let message = UploadRecordingRequest {
            session_id: session_id.clone(),
            offset,
            data: Bytes::from(chunk),
            complete: complete && last,
        };
        if messages.send(message).await.is_err() || last {
            // When the other side stopped listening, its answer says why.
            return Ok(());
        }
        offset = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_the_authority_is_away_one_recording_asks_for_all() {
        let begin = Instant::now();
        let mut absence = Absence::new();
        assert_eq!(absence.admits(3, begin), usize::MAX);
        let away = Outcome::Failed(Status::unavailable("connection refused"));
        let mut asked = 0;
        for tenths in 0..6_000 {
            let now = begin + Duration::from_millis(100 * tenths);
            if absence.admits(0, now) > 0 {
                assert!(asked == 0 || (absence.admits(0, now), absence.admits(1, now)) == (1, 0));
                asked += 1;
                // Two that were under way count as one.
                absence.note(&away, now);
                absence.note(&away, now);
            }
        }
        assert!((600 / 5..600 / 2).contains(&asked), "{asked} in ten minutes");
        // What is wrong with one recording holds up none of the others.
        let mut absence = Absence::new();
        absence.note(&Outcome::Failed(Status::failed_precondition("closed")), begin);
        assert_eq!(absence.admits(0, begin), usize::MAX);
        absence.note(&away, begin);
        absence.note(&Outcome::Done, begin);
        assert_eq!(absence.admits(0, begin), usize::MAX);
    }

    #[test]
    fn only_recordings_are_taken_for_recordings() {
        let id = SessionId::new();
        assert_eq!(session_of(Path::new(&format!("/x/{id}.rec"))), Some(id));
        for other in ["/x/notes.rec", "/x/lost+found"] {
            assert_eq!(session_of(Path::new(other)), None);
        }
        assert_eq!(session_of(Path::new(&format!("/x/{id}.tmp"))), None);
    }
}
