//! A session put together, for protocols that need no more than its bytes' ends.
//!
//! ```text
//! let session = Session::begin(&host, &permit, about, &identity, codes, how).await?;   // listed, counted, recorded
//! // dial
//! session.started(|event| event.field("address", address));
//! let end = tokio::select! {
//!     () = carry(client, upstream, &counts, session.activity()) => End::Done("the client closed the connection"),
//!     stop = session.stopped(&watched) => End::Stopped(stop),
//! };
//! session.end(end, counts).await;
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::{Identity, Limits, Permit, Resource, SessionId};
use sallyport_audit::recording::{Exit, Recorders, SessionMetadata};
use sallyport_audit::{Code, Event, Sink};
use time::OffsetDateTime;

use crate::about::About;
use crate::activity::Activity;
use crate::live::{LiveEntry, LiveSession, LiveSessions};
use crate::record::{How, Record, Unrecordable};
use crate::roster::{Patience, Place, Roster};
use crate::stop::{Ending, Stop};
use crate::watch::{self, Timed, Watched};

/// How long a drain waits for sessions that it has cut.
const CUT_PATIENCE: Duration = Duration::from_secs(5);

/// What the sessions of one kind on one host share. Clones are one.
#[derive(Clone)]
pub struct Host {
    sink: Arc<dyn Sink>,
    recorders: Recorders,
    live: LiveSessions,
    running: Roster<Ending>,
    at: &'static str,
    stopping: &'static str,
}

impl Host {
    /// A host without sessions of this kind. `live` lists them with those of other kinds; `at` is what an event of a refused session
    /// says that it was refused at, such as `agent`; `stopping` is what users read whose session a drain cuts.
    #[must_use]
    pub fn new(
        sink: Arc<dyn Sink>,
        recorders: Recorders,
        live: LiveSessions,
        at: &'static str,
        stopping: &'static str,
    ) -> Self {
        Self { sink, recorders, live, running: Roster::default(), at, stopping }
    }

    /// Sessions that run.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.running.len()
    }

    /// Begins no session any more, waits so long for those that run, and ends those that are left then. Whether all have ended
    /// within a bounded time.
    pub async fn drain(&self, grace: Duration) -> bool {
        let cut = |ending: &Ending| {
            ending.end(Stop::Draining(self.stopping));
        };
        self.running.drain(Patience { grace, cut: CUT_PATIENCE }, cut, async {}).await
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

/// The events of a kind's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codes {
    /// It begins.
    pub start: Code,
    /// It is over, however it ended.
    pub end: Code,
    /// It does not begin.
    pub refused: Code,
    /// It was ended before its time; [`Codes::end`] follows.
    pub cut: Code,
}

/// Why a session does not begin. Its text is what the client reads; an event has told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// Its host is being stopped, in these words.
    #[error("{0}")]
    Draining(&'static str),
    /// It has to be recorded, and cannot be.
    #[error("{0}")]
    Unrecordable(#[from] Unrecordable),
}

impl NotBegun {
    /// The word for it in events and metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Draining(_) => "draining",
            Self::Unrecordable(_) => "unrecordable",
        }
    }
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// In order, and how in words.
    Done(String),
    /// A peer or the way to it was lost, and how in words.
    Lost(String),
    /// It was ended before its time.
    Stopped(Stop),
}

/// What a session has carried, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// From the client.
    pub bytes_in: u64,
    /// To the client.
    pub bytes_out: u64,
}

/// One session. Dropped without [`Session::end`], it is off the list, and its recording reads as cut off.
pub struct Session {
    record: Record,
    codes: Codes,
    limits: Limits,
    valid_until: OffsetDateTime,
    rule: String,
    activity: Activity,
    ending: Ending,
    _listed: LiveEntry,
    place: Place<Ending>,
}

impl Session {
    /// Begins a session of `owner`, who may have it by the permit: counts it for the drain, begins its record and lists it.
    ///
    /// # Errors
    /// [`NotBegun`], told in an event already.
    pub async fn begin<R: Resource>(
        host: &Host,
        permit: &Permit<R>,
        about: About,
        owner: &Identity,
        codes: Codes,
        how: How,
    ) -> Result<Self, NotBegun> {
        let (limits, rule) = (permit.limits().clone(), permit.rule().to_owned());
        Box::pin(Self::begun(host, (limits, permit.valid_until(), rule), about, owner, codes, how)).await
    }

    async fn begun(
        host: &Host,
        (limits, valid_until, rule): (Limits, OffsetDateTime, String),
        about: About,
        owner: &Identity,
        codes: Codes,
        how: How,
    ) -> Result<Self, NotBegun> {
        let ending = Ending::default();
        let refused = |not: NotBegun| {
            let event = about.event(codes.refused.clone()).field("reason", not.reason()).field("at", host.at);
            host.sink.emit(event.message(not.to_string()));
            not
        };
        let place = host.running.enter_if(ending.clone(), |_| true);
        // Every session fits: only a drain keeps one out.
        let place = place.map_err(|_| refused(NotBegun::Draining(host.stopping)))?;
        let record = Record::begin(about.clone(), &host.recorders, how, Arc::clone(&host.sink)).await;
        let record = record.map_err(|unrecordable| refused(unrecordable.into()))?;
        let recording = if record.is_recorded() { record.place() } else { "off" };
        let session = LiveSession::new(record.about().clone(), owner, recording);
        let end = {
            let ending = ending.clone();
            move |reason: &str| {
                ending.end(Stop::Ended(reason.to_owned()));
            }
        };
        let listed = host.live.enter_to_end(session, Arc::new(end));
        let activity = Activity::new();
        Ok(Self { record, codes, limits, valid_until, rule, activity, ending, _listed: listed, place })
    }

    /// Tells that it begins, with what the kind says besides.
    pub fn started(&self, with: impl FnOnce(Event) -> Event) {
        let event = self.record.event(self.codes.start.clone()).field("rule", self.rule.as_str());
        self.record.emit(with(event));
    }

    /// Which session it is.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.about().session_id
    }

    /// Whose session it is.
    #[must_use]
    pub fn about(&self) -> &SessionMetadata {
        self.record.about()
    }

    /// Its recording, and its events besides those of its beginning and end.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Is told of what the client does, so that the session ends when it is idle.
    #[must_use]
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Ends it from another task of its kind; false when something has ended it already.
    pub fn stop(&self, stop: Stop) -> bool {
        self.place.entry().end(stop)
    }

    /// Waits until it has to end, and says why. `watched` answers for the decision; limits are the permit's.
    pub async fn stopped(&self, watched: &dyn Watched) -> Stop {
        let (limits, activity) = (&self.limits, &self.activity);
        let watched = Timed { decided: watched, limits, valid_until: self.valid_until, activity };
        watch::stopped(&watched, &self.ending, Some(&self.record)).await
    }

    /// Tells that it is over, and how; returns when its recording is on disk.
    pub async fn end(self, end: End, counts: Counts) {
        let (words, exit) = match end {
            End::Done(words) => (words, Exit::Status(0)),
            End::Lost(words) => (words.clone(), Exit::Cut(words)),
            End::Stopped(stop) => {
                let words = stop.to_string();
                self.record.emit(self.record.event(self.codes.cut.clone()).message(words.as_str()));
                (words.clone(), Exit::Cut(words))
            }
        };
        let event = self
            .record
            .event(self.codes.end.clone())
            .message(words)
            .field("duration_ms", u64::try_from(self.activity.elapsed().as_millis()).unwrap_or(u64::MAX))
            .field("bytes_in", counts.bytes_in)
            .field("bytes_out", counts.bytes_out);
        self.record.emit(event);
        self.record.finish(exit).await;
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("record", &self.record).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
