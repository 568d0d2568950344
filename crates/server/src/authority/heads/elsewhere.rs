//! The places beside the state where checkpoints are taken, each by a task of its own, and how they stand.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use sallyport_audit::log::Checkpoint;
use sallyport_audit::{Code, Event};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tracing::{info, warn};

use super::super::Inner;
use super::send;
use crate::backoff::{Backoff, chance};
use crate::config::{AuditSection, Bucket, Webhook};

/// What was not taken is tried again after this, and after twice as long each time up to the longest. Only ever the newest
/// checkpoint waits: it stands for all before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// After so many failures in a row, some seconds, it is an event.
const TOLD_AFTER: u32 = 3;
/// When the authority stops, the last checkpoint has so long to get everywhere.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Target {
    File(PathBuf),
    Webhook(Webhook),
    Bucket(Bucket),
}

/// One place, and how it stands.
#[derive(Debug)]
pub(in crate::authority) struct Place {
    target: Target,
    standing: Mutex<Standing>,
}

#[derive(Debug, Default)]
struct Standing {
    /// The record of the last checkpoint that is there, and when it got there.
    taken: Option<(u64, OffsetDateTime)>,
    failures: u32,
    /// The first failure of those in a row, and what the last one says.
    failing: Option<(OffsetDateTime, String)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::File(path) => write!(f, "{}", path.display()),
            Target::Webhook(webhook) => write!(f, "{}", webhook.endpoint),
            Target::Bucket(bucket) => write!(f, "{}", bucket.endpoint),
        }
    }
}

impl Place {
    /// All that the configuration names.
    pub(in crate::authority) fn all(config: &AuditSection) -> Vec<Arc<Self>> {
        let targets = [
            config.checkpoint_file.clone().map(Target::File),
            config.checkpoint_webhook.clone().map(Target::Webhook),
            config.checkpoint_bucket.clone().map(Target::Bucket),
        ];
        let place = |target| Arc::new(Self { target, standing: Mutex::default() });
        targets.into_iter().flatten().map(place).collect()
    }

    fn kind(&self) -> &'static str {
        match self.target {
            Target::File(_) => "file",
            Target::Webhook(_) => "webhook",
            Target::Bucket(_) => "bucket",
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `admin status` says of it.
    pub(in crate::authority) fn status(&self) -> v1::CheckpointPlace {
        let standing = self.standing();
        v1::CheckpointPlace {
            kind: self.kind().to_owned(),
            place: self.to_string(),
            taken: standing.taken.map(|(record, _)| record).unwrap_or_default(),
            taken_at: standing.taken.map(|(_, at)| convert::time_to_proto(at)),
            failing_since: standing.failing.as_ref().map(|(since, _)| convert::time_to_proto(*since)),
            problem: standing.failing.as_ref().map(|(_, problem)| problem.clone()).unwrap_or_default(),
        }
    }

    async fn take(&self, cluster: &str, checkpoint: &Checkpoint) -> io::Result<()> {
        match &self.target {
            Target::File(path) => {
                let (path, line) = (path.clone(), format!("{}\n", checkpoint.to_line()));
                tokio::task::spawn_blocking(move || append(&path, &line)).await.map_err(io::Error::other)?
            }
            Target::Webhook(webhook) => send::post(webhook, json(cluster, checkpoint)).await,
            Target::Bucket(bucket) => send::store(bucket, cluster, checkpoint).await,
        }
    }

    /// Notes what became of a checkpoint; gives the event of it, where it is one.
    fn note(&self, checkpoint: &Checkpoint, done: &io::Result<()>) -> Option<Event> {
        let now = OffsetDateTime::now_utc();
        let event = |code| {
            let event = Event::new(code, now).user("auth").origin("auth");
            event.field("place", self.to_string()).field("record", checkpoint.head.sequence)
        };
        let mut standing = self.standing();
        match done {
            Ok(()) => {
                standing.taken = Some((checkpoint.head.sequence, now));
                let told = standing.failures >= TOLD_AFTER;
                standing.failures = 0;
                let (since, problem) = standing.failing.take().filter(|_| told)?;
                info!(place = %self, "checkpoints of the audit log are taken there again");
                Some(event(Code::CheckpointTaken).field("since", since.to_string()).message(problem))
            }
            Err(error) => {
                metrics::counter!("sallyport_audit_checkpoints_unposted_total", "place" => self.kind())
                    .increment(1);
                standing.failures = standing.failures.saturating_add(1);
                let since = standing.failing.as_ref().map_or(now, |(since, _)| *since);
                standing.failing = Some((since, error.to_string()));
                if standing.failures != TOLD_AFTER {
                    return None;
                }
                warn!(place = %self, %error, "checkpoints of the audit log are not taken there; it is tried again");
                Some(event(Code::CheckpointNotTaken).message(error.to_string()))
            }
        }
    }
}

impl Inner {
    /// Takes each checkpoint to a place, until the authority stops.
    pub(in crate::authority) async fn carry_elsewhere(self: Arc<Self>, place: Arc<Place>) {
        let mut checkpoints = self.log.checkpoints();
        checkpoints.mark_changed();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut pause = None;
        loop {
            let next = async {
                match pause {
                    Some(pause) => {
                        tokio::time::sleep(pause).await;
                        true
                    }
                    None => checkpoints.changed().await.is_ok(),
                }
            };
            tokio::select! {
                go_on = next => if !go_on { return },
                () = self.stop.cancelled() => return,
            }
            let Some(checkpoint) = checkpoints.borrow_and_update().clone() else { continue };
            let done = tokio::select! {
                done = place.take(self.config.cluster.as_str(), &checkpoint) => done,
                () = self.stop.cancelled() => return,
            };
            let event = place.note(&checkpoint, &done);
            pause = match done {
                Ok(()) => {
                    backoff.reset();
                    None
                }
                Err(_) => Some(backoff.pause(chance())),
            };
            if let Some(event) = event
                && let Err(error) = self.log.append(vec![event]).await
            {
                warn!(%error, "what becomes of checkpoints could not be put on record");
            }
        }
    }

    /// Takes the last checkpoint of this process everywhere, as far as that goes.
    pub(super) async fn take_elsewhere(&self, checkpoint: &Checkpoint) {
        let taking = self.elsewhere.iter().map(|place| async move {
            let done =
                tokio::time::timeout(LAST_PATIENCE, place.take(self.config.cluster.as_str(), checkpoint))
                    .await;
            let done = done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = &done {
                warn!(%place, %error, "the last checkpoint of the audit log was not taken there");
            }
            place.note(checkpoint, &done);
        });
        futures::future::join_all(taking).await;
    }
}

/// Appends a line that the file does not end in already.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let before = std::fs::read_to_string(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(String::new()),
        _ => Err(error),
    })?;
    if before.ends_with(line) {
        return Ok(());
    }
    let mut file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

fn json(cluster: &str, checkpoint: &Checkpoint) -> String {
    serde_json::json!({
        "cluster": cluster,
        "sequence": checkpoint.head.sequence,
        "hash": HEXLOWER.encode(&checkpoint.head.hash),
        "time": checkpoint.time,
        "signature": BASE64.encode(&checkpoint.signature),
        "checkpoint": checkpoint.to_line(),
    })
    .to_string()
}
