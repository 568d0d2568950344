//! The audit log's last signed checkpoint, kept where an attacker who writes the log anew does not reach.
//!
//! One copy is in the state, sealed, and only ever moves on: at each start the log must hold it. Others go to a file, a webhook and
//! an object store, as the configuration says.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use sallyport_audit::log::{Break, Checkpoint, Head};
use sallyport_audit::{Code, Event};
use sallyport_sal::custody::SealingKey;
use sallyport_store::{Store, StoreError};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::ServerError;
use crate::authority::audit::destinations::Destination;
use crate::authority::audit::journal::Journal;
use crate::authority::config::AuthConfig;
use crate::authority::records::HeadRecord;
use crate::authority::storage::SELF;
use crate::backoff::{Backoff, chance};
use crate::tasks::Tasks;

/// What was not taken is tried again after this, and after twice as long each time up to the longest. Only ever the newest
/// checkpoint waits: it stands for all before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// When the authority stops, the last checkpoint has so long to get everywhere.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

const LABEL: &str = "audit-head";
/// How soon it is tried again to keep a checkpoint in the state.
const AGAIN: Duration = Duration::from_secs(30);

fn read(seal: &SealingKey, record: &HeadRecord) -> Option<Checkpoint> {
    let sealed = BASE64.decode(record.sealed.as_bytes()).ok()?;
    let line = seal.unseal(LABEL, &sealed).ok()?;
    Checkpoint::parse(std::str::from_utf8(&line).ok()?)
}

/// The head that the state keeps; none before there was a checkpoint.
pub(crate) async fn kept(
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
pub(crate) fn begun_anew(broken: &Break, now: OffsetDateTime) -> Event {
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

/// Keeps the log's checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    store: Store,
    seal: Arc<SealingKey>,
    journal: Arc<Journal>,
    destinations: Vec<Arc<Destination>>,
    config: Arc<AuthConfig>,
    stop: CancellationToken,
}

impl Checkpoints {
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        seal: &Arc<SealingKey>,
        journal: &Arc<Journal>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            seal: Arc::clone(seal),
            journal: Arc::clone(journal),
            destinations: Destination::all(&config.audit),
            config: Arc::clone(config),
            stop: stop.clone(),
        })
    }

    /// How each destination stands, for `admin status`.
    pub(crate) fn status(&self) -> Vec<v1::CheckpointPlace> {
        self.destinations.iter().map(|destination| destination.status()).collect()
    }

    /// Carries each checkpoint to the state and to every destination, until the authority stops.
    pub(crate) fn carry(self: &Arc<Self>, tasks: &Tasks) {
        tasks.spawn(Arc::clone(self).carry_heads());
        for destination in &self.destinations {
            tasks.spawn(Arc::clone(self).carry_elsewhere(Arc::clone(destination)));
        }
    }

    /// The checkpoint that the state keeps.
    pub(crate) async fn kept_head(&self) -> Result<Option<Checkpoint>, StoreError> {
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

    /// Keeps the last checkpoint of this process, here and everywhere else.
    pub(crate) async fn keep_last_head(&self) {
        let last = self.journal.log().checkpoints().borrow().clone();
        if let Some(checkpoint) = last {
            self.kept(&checkpoint).await;
            self.take_elsewhere(&checkpoint).await;
        }
    }

    /// Keeps each checkpoint in the state, until the authority stops.
    pub(crate) async fn carry_heads(self: Arc<Self>) {
        let mut checkpoints = self.journal.log().checkpoints();
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
                    done = self.kept(&checkpoint) => !done,
                    () = self.stop.cancelled() => return,
                },
                None => false,
            };
        }
    }

    /// Keeps a checkpoint in the state; whether it is there.
    async fn kept(&self, checkpoint: &Checkpoint) -> bool {
        match self.keep_head(checkpoint).await {
            Ok(()) => true,
            Err(error) => {
                error!(%error, "the checkpoint of the audit log could not be kept in the state");
                false
            }
        }
    }

    /// Takes each checkpoint to a place, until the authority stops.
    pub(crate) async fn carry_elsewhere(self: Arc<Self>, place: Arc<Destination>) {
        let mut checkpoints = self.journal.log().checkpoints();
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
                && let Err(error) = self.journal.log().append(vec![event]).await
            {
                warn!(%error, "what becomes of checkpoints could not be put on record");
            }
        }
    }

    /// Takes the last checkpoint of this process everywhere, as far as that goes.
    pub(crate) async fn take_elsewhere(&self, checkpoint: &Checkpoint) {
        let taking = self.destinations.iter().map(|place| async move {
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
