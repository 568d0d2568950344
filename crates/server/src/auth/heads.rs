//! The audit log's last signed checkpoint, kept where somebody who writes the log anew does not reach.
//!
//! One copy is in the state, sealed, and only ever moves on: at each start the log must hold it. Others go to a file and to a webhook,
//! as the configuration says.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use sallyport_audit::log::{Break, Checkpoint, Head};
use sallyport_audit::{Code, Event};
use sallyport_sal::custody::SealingKey;
use sallyport_store::{Store, StoreError};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tracing::{error, warn};

use super::Inner;
use super::open::SELF;
use super::state::HeadRecord;
use crate::ServerError;
use crate::config::Webhook;

const LABEL: &str = "audit-head";
/// A webhook has so long to answer.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon it is tried again to take a checkpoint where it belongs.
const AGAIN: Duration = Duration::from_secs(30);
/// Of a webhook's answer, its first line is read.
const ANSWER_BYTES: u64 = 64;

fn read(seal: &SealingKey, record: &HeadRecord) -> Option<Checkpoint> {
    let sealed = BASE64.decode(record.sealed.as_bytes()).ok()?;
    let line = seal.unseal(LABEL, &sealed).ok()?;
    Checkpoint::parse(std::str::from_utf8(&line).ok()?)
}

/// The head that the state keeps; none before there was a checkpoint.
pub(super) async fn kept(
    store: &Store,
    seal: &SealingKey,
    directory: &Path,
    now: OffsetDateTime,
) -> Result<Option<Head>, ServerError> {
    let stored = store.get::<HeadRecord>(SELF, now).await.map_err(|error| ServerError::Authority {
        action: "read its state".to_owned(),
        source: error.into(),
    })?;
    let Some(stored) = stored else { return Ok(None) };
    match read(seal, &stored.value) {
        Some(checkpoint) => Ok(Some(checkpoint.head)),
        None => Err(ServerError::BadState {
            path: directory.join("state.db"),
            problem: "holds a checkpoint of the audit log that was not sealed with this seal key".to_owned(),
            fix: "restore the state from a backup".to_owned(),
        }),
    }
}

/// Says loudly that the log was not the one that was written.
pub(super) fn begun_anew(broken: &Break, now: OffsetDateTime) -> Event {
    error!(
        aside = %broken.aside.display(),
        last_record = broken.last,
        begins_behind = broken.beginning,
        "THE AUDIT LOG IS NOT THE ONE THAT WAS WRITTEN: {}. It was set aside, and a new one begins",
        broken.reason
    );
    Event::new(Code::AuditBegunAnew, now)
        .user("auth")
        .origin("auth")
        .message(broken.reason.clone())
        .field("aside", broken.aside.display().to_string())
        .field("last_record", broken.last)
        .field("begins_behind", broken.beginning)
}

impl Inner {
    /// The checkpoint that the state keeps.
    pub(super) async fn kept_head(&self) -> Result<Option<Checkpoint>, StoreError> {
        let stored = self.store.get::<HeadRecord>(SELF, OffsetDateTime::now_utc()).await?;
        Ok(stored.and_then(|stored| read(&self.seal, &stored.value)))
    }

    /// Keeps a checkpoint in the state, unless a later one is there.
    async fn keep_head(&self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let now = OffsetDateTime::now_utc();
        let failed = |detail: String| StoreError::Value { key: LABEL.to_owned(), detail };
        loop {
            let stored = self.store.get::<HeadRecord>(SELF, now).await?;
            let known = stored.as_ref().and_then(|stored| read(&self.seal, &stored.value));
            if known.is_some_and(|known| known.head.sequence >= checkpoint.head.sequence) {
                return Ok(());
            }
            let sealed = self.seal.seal(LABEL, checkpoint.to_line().as_bytes());
            let record =
                HeadRecord { sealed: BASE64.encode(&sealed.map_err(|error| failed(error.to_string()))?) };
            let written = match stored {
                None => self.store.create(SELF, &record, None, now).await.map(drop),
                Some(stored) => self.store.update(SELF, stored.revision, &record, None, now).await.map(drop),
            };
            match written {
                Err(StoreError::Conflict { .. } | StoreError::Exists { .. }) => {}
                other => return other,
            }
        }
    }

    /// Keeps the last checkpoint of this process.
    pub(super) async fn keep_last_head(&self) {
        let last = self.log.checkpoints().borrow().clone();
        if let Some(checkpoint) = last {
            self.carry(&checkpoint).await;
        }
    }

    /// Takes each checkpoint where it belongs, until the authority stops.
    pub(super) async fn carry_heads(self: Arc<Self>) {
        let mut checkpoints = self.log.checkpoints();
        checkpoints.mark_changed();
        let mut again = false;
        loop {
            tokio::select! {
                changed = checkpoints.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(AGAIN), if again => {}
                () = self.stop.cancelled() => return,
            }
            let last = checkpoints.borrow_and_update().clone();
            again = match last {
                Some(checkpoint) => tokio::select! {
                    done = self.carry(&checkpoint) => !done,
                    () = self.stop.cancelled() => return,
                },
                None => false,
            };
        }
    }

    /// Takes a checkpoint everywhere; whether it is there.
    async fn carry(&self, checkpoint: &Checkpoint) -> bool {
        let mut done = true;
        if let Err(error) = self.keep_head(checkpoint).await {
            error!(%error, "the checkpoint of the audit log could not be kept in the state");
            done = false;
        }
        if let Some(path) = self.config.audit.checkpoint_file.clone() {
            let line = format!("{}\n", checkpoint.to_line());
            let written = tokio::task::spawn_blocking(move || append(&path, &line)).await;
            if let Ok(Err(error)) = written {
                error!(%error, "the checkpoint of the audit log could not be written to its file");
                done = false;
            }
        }
        if let Some(webhook) = &self.config.audit.checkpoint_webhook {
            let body = json(self.config.cluster.as_str(), checkpoint);
            let posted = tokio::time::timeout(POST_TIMEOUT, post(webhook, &body))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = posted {
                warn!(%webhook, %error, "the checkpoint of the audit log could not be posted");
                metrics::counter!("sallyport_audit_checkpoints_unposted_total").increment(1);
                done = false;
            }
        }
        done
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

/// One request by HTTP/1.1 (RFC 9112) on a connection of its own; any answer of the class 2xx is good.
async fn post(webhook: &Webhook, body: &str) -> io::Result<()> {
    let address = &webhook.address;
    let mut stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        webhook.path,
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let line = answer.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(status) if line.starts_with("HTTP/1.") && status.starts_with('2') => Ok(()),
        _ => Err(io::Error::other(format!("the answer was {line:?}, not 2xx"))),
    }
}
