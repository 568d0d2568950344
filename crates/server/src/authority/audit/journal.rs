//! The audit log as the authority writes it: a change is answered when its event is on disk, and what a caller can cause as
//! often as it likes is counted.

use std::sync::Arc;
use std::time::Duration;

use sallyport_audit::log::{AuditLog, LogError};
use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{error, info, warn};

use crate::authority::audit::disk_reserve::DiskReserve;
use crate::authority::audit::refusals::{EACH, Refusals, Who};
use crate::authority::caller::Caller;
use crate::tasks::Tasks;

/// How often the disk is looked at. Uploads look, too.
const LOOK: Duration = Duration::from_secs(2);

/// How soon an event that could not be written is tried again.
const EMIT_AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Calls of a method that only reads, by one login, that are on record one by one in a minute.
const READS: u64 = 120;

/// Writes the audit log.
#[derive(Debug)]
pub(crate) struct Journal {
    log: AuditLog,
    reserve: Arc<DiskReserve>,
    refusals: Refusals,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Journal {
    pub(crate) fn new(
        log: AuditLog,
        reserve: Arc<DiskReserve>,
        stop: CancellationToken,
        tasks: Tasks,
    ) -> Arc<Self> {
        Arc::new(Self { log, reserve, refusals: Refusals::default(), stop, tasks })
    }

    /// The log itself, to be read, and for events that no call waits for.
    pub(crate) fn log(&self) -> &AuditLog {
        &self.log
    }

    /// Signs the log's end, behind a last event.
    pub(crate) async fn close(&self, last: Event) -> Result<(), LogError> {
        let mut events = self.refusals.due(OffsetDateTime::now_utc(), true);
        events.push(last);
        self.log.append(events).await?;
        self.log.close().await
    }

    /// Writes events; the caller learns of a success only when they are on disk.
    pub(crate) async fn record(&self, events: Vec<Event>) -> Result<(), Status> {
        self.log.append(events).await.map_err(|error| self.unwritten(&error))
    }

    /// [`Self::record`] of what locks, ends or removes, which must be possible also when the disk is full.
    pub(crate) async fn record_urgent(&self, events: Vec<Event>) -> Result<(), Status> {
        self.log.append_urgent(events).await.map_err(|error| self.unwritten(&error))
    }

    fn unwritten(&self, error: &LogError) -> Status {
        self.reserve.unwritten(error);
        match error {
            LogError::Full { .. } => Status::resource_exhausted(
                "the authority's disk is full, and it does nothing that is not on record: make room on it. Locks, ends of sessions and deletions still work",
            ),
            LogError::Io { .. } | LogError::Broken(_) | LogError::Closed => Status::unavailable(
                "the authority cannot write its audit log and does nothing that is not on record; its log says why",
            ),
        }
    }

    /// Puts on record what a caller can cause as often as it likes: the first of a kind as they are, the rest of the minute as a
    /// count. `what` tells kinds of one code apart.
    pub(crate) async fn note_caused(&self, caller: &Caller, event: Event, what: &str) -> Result<(), Status> {
        self.note_caused_times(event, Who::of(caller), what, EACH, 1).await
    }

    /// [`Self::note_caused`] of something that `who` did so many `times`, of which `each` a minute are written as they are.
    pub(crate) async fn note_caused_times(
        &self,
        event: Event,
        who: Who,
        what: &str,
        each: u64,
        times: u64,
    ) -> Result<(), Status> {
        let events = self.refusals.take(event, who, what, each, times);
        if events.is_empty() {
            return Ok(());
        }
        let written = self.record(events.clone()).await;
        if written.is_err() {
            self.refusals.give_back(events);
        }
        written
    }

    /// Writes what was only counted, once its minute is over.
    pub(crate) async fn say_counted(&self) {
        let events = self.refusals.due(OffsetDateTime::now_utc(), false);
        if !events.is_empty() && self.log.append(events.clone()).await.is_err() {
            self.refusals.give_back(events);
        }
    }

    /// Notes a call that only reads.
    pub(crate) async fn called(
        &self,
        caller: &Caller,
        method: &'static str,
        what: &str,
    ) -> Result<(), Status> {
        let event = caller.event(Code::ApiCalled).field("method", method).message(what);
        match caller {
            // The operator's scripts are on record one by one.
            Caller::LocalAdmin => self.record(vec![event]).await,
            _ => self.note_caused_times(event, Who::of(caller), method, READS, 1).await,
        }
    }

    /// Writes an event of this process to the log, without waiting. When the log cannot be written it is tried again
    /// until the authority stops; such events are few.
    pub(crate) fn emit(self: &Arc<Self>, event: sallyport_audit::Event) {
        let journal = Arc::clone(self);
        self.tasks.spawn(async move {
            while let Err(error) = journal.log.append(vec![event.clone()]).await {
                journal.reserve.unwritten(&error);
                tokio::select! {
                    () = tokio::time::sleep(EMIT_AGAIN) => {}
                    () = journal.stop.cancelled() => {
                        tracing::error!(%error, code = %event.code, message = event.message, "an audit event is lost");
                        return;
                    }
                }
            }
        });
    }

    /// Looks at the disk until the authority stops, and puts on record what becomes of it.
    pub(crate) async fn watch_reserve(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut told = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            let looking = Arc::clone(&self);
            let Ok(problem) = tokio::task::spawn_blocking(move || looking.reserve.look(0)).await else {
                continue;
            };
            self.resume_log().await;
            self.say_counted().await;
            if problem.is_some() == told {
                continue;
            }
            let event = |code| Event::new(code, OffsetDateTime::now_utc()).user("auth").origin("auth");
            let event = match &problem {
                Some(problem) => {
                    error!(path = %self.reserve.directory().display(), "{problem}");
                    event(Code::DiskShort).message(problem.as_str())
                }
                None => {
                    info!(path = %self.reserve.directory().display(), "the authority's disk has room again");
                    event(Code::DiskRoom)
                }
            };
            // What could not be said is said at the next look.
            if self.record(vec![event]).await.is_ok() {
                told = problem.is_some();
            }
        }
    }

    /// Puts the first events of this process on record. A full disk keeps no authority from starting: without an authority no
    /// administrator can lock an attacker out. These events then take of the room that is kept for what cannot wait, and wait
    /// where that is used up, too.
    pub(crate) async fn record_start(&self, events: Vec<Event>) -> Result<(), LogError> {
        let full = match self.log.append(events.clone()).await {
            Err(error @ LogError::Full { .. }) => error,
            other => return other,
        };
        warn!("the disk is full: until there is room on it only locks, ends of sessions and deletions work");
        self.reserve.unwritten(&full);
        if self.log.append_urgent(events.clone()).await.is_err() {
            *self.reserve.owed() = events;
        }
        Ok(())
    }

    /// Says how long the audit log could not be written, as soon as it can be.
    async fn resume_log(&self) {
        let Some((problem, since)) = self.reserve.unwritable().clone() else { return };
        let event = Event::new(Code::AuditResumed, OffsetDateTime::now_utc())
            .user("auth")
            .origin("auth")
            .field("since", since.to_string())
            .message(problem);
        let mut events = self.reserve.owed().clone();
        events.push(event);
        if self.log.append(events).await.is_ok() {
            self.reserve.owed().clear();
            *self.reserve.unwritable() = None;
            info!("the audit log can be written again");
        }
    }
}
