//! The destinations beside the state to which checkpoints are taken, and how they stand.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use data_encoding::{BASE64, HEXLOWER};
use parking_lot::{Mutex, MutexGuard};
use sallyport_audit::log::Checkpoint;
use sallyport_audit::{Code, Event};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tracing::{info, warn};

use super::send;
use crate::config::{AuditSection, Bucket, Webhook};
use std::io::Write as _;

/// After so many failures in a row, some seconds, it is an event.
const TOLD_AFTER: u32 = 3;

#[derive(Debug)]
enum Target {
    File(PathBuf),
    Webhook(Webhook),
    Bucket(Bucket),
}

/// One place, and how it stands.
#[derive(Debug)]
pub(crate) struct Destination {
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

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::File(path) => write!(f, "{}", path.display()),
            Target::Webhook(webhook) => write!(f, "{}", webhook.endpoint),
            Target::Bucket(bucket) => write!(f, "{}", bucket.endpoint),
        }
    }
}

impl Destination {
    /// All that the configuration names.
    pub(crate) fn all(config: &AuditSection) -> Vec<Arc<Self>> {
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
        self.standing.lock()
    }

    /// What `admin status` says of it.
    pub(crate) fn status(&self) -> v1::CheckpointPlace {
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

    pub(crate) async fn take(&self, cluster: &str, checkpoint: &Checkpoint) -> io::Result<()> {
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
    pub(crate) fn note(&self, checkpoint: &Checkpoint, done: &io::Result<()>) -> Option<Event> {
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
