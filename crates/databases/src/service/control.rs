//! What ends a session from outside: a lock, a role that is changed, a limit of time, an administrator, a recording that
//! fails.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sallyport_access::Identity;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::asked::Wanted;
use super::record::Record;
use super::shared::{STOPPING, Shared};

/// Longest sleep: deadlines further away are looked at again then.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// When the client last said something.
#[derive(Debug)]
pub(crate) struct Activity {
    began: Instant,
    /// Milliseconds since then.
    last: AtomicU64,
    /// The client waits for an answer.
    busy: AtomicBool,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0), busy: AtomicBool::new(false) }
    }

    /// Now.
    pub(crate) fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Whether the server owes the client an answer: as long as it does, the client is not idle.
    pub(crate) fn busy(&self, busy: bool) {
        if self.busy.swap(busy, Ordering::Relaxed) && !busy {
            self.note();
        }
    }

    /// Since the session began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn last(&self) -> Instant {
        if self.busy.load(Ordering::Relaxed) {
            return Instant::now();
        }
        self.began + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// What is watched of one session.
pub(crate) struct Control<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) identity: &'a Identity,
    pub(crate) wanted: &'a Wanted,
    pub(crate) record: &'a Record,
    pub(crate) activity: &'a Activity,
    pub(crate) stop: watch::Receiver<Option<String>>,
}

impl Control<'_> {
    /// Waits until the session has to end, and says why.
    pub(crate) async fn ends(self) -> String {
        let mut stop = self.stop.clone();
        let stopped = async move {
            let found = stop.wait_for(Option::is_some).await.map(|why| why.clone());
            found.ok().flatten().unwrap_or_default()
        };
        let mut stopped = std::pin::pin!(stopped);
        let mut renewing = std::pin::pin!(self.renews());
        let mut changes = self.shared.settings.directory.changes();
        loop {
            if let Some(why) = self.decided_otherwise() {
                return why;
            }
            let (at, why) = self.deadline();
            tokio::select! {
                why = &mut stopped => return why,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return STOPPING.to_owned();
                    }
                }
                why = self.record.broken() => return why,
                never = &mut renewing => match never {},
                () = sleep_until(at) => {
                    if let Some(why) = why && self.deadline().0 <= Instant::now() {
                        return why;
                    }
                }
            }
        }
    }

    /// Keeps the credentials good with which the session's process at the database is terminated, should it outlive the session.
    async fn renews(&self) -> Infallible {
        let permit = &self.wanted.permit;
        loop {
            // What an earlier session has left may be near its end. Past the user's there are none to be had.
            if OffsetDateTime::now_utc() < permit.valid_until()
                && let Err(error) = self.shared.settings.credentials.renew(self.wanted).await
            {
                tracing::debug!(%error, database = %permit.database(), "a session's credentials are not renewed");
            }
            tokio::time::sleep(self.shared.pace.renews).await;
        }
    }

    /// The refusal of a decision that was another one when the session began.
    fn decided_otherwise(&self) -> Option<String> {
        let permit = &self.wanted.permit;
        let now = OffsetDateTime::now_utc();
        // A session that may outlive its certificate is decided upon as if that were still good.
        let last = permit.valid_until() - time::Duration::seconds(1);
        let now = if permit.limits().disconnect_expired_cert { now } else { now.min(last) };
        let directory = &self.shared.settings.directory;
        let Some(database) = directory.database(permit.database()) else {
            return Some(format!("this agent serves {} no longer", permit.database()));
        };
        let decided = directory.decide(self.identity, &database, permit.account(), now);
        decided.err().map(|refusal| refusal.public_message())
    }

    /// The first limit of time that the session comes to; without one, when to look again.
    fn deadline(&self) -> (Instant, Option<String>) {
        let limits = self.wanted.permit.limits();
        let mut first: (Instant, Option<String>) = (Instant::now() + LONGEST_SLEEP, None);
        let mut limit = |at: Instant, why: String| {
            if at < first.0 {
                first = (at, Some(why));
            }
        };
        if let Some(longest) = limits.max_session_duration {
            limit(
                self.activity.began + longest,
                format!("the session has lasted {}, which is as long as it may", words(longest)),
            );
        }
        if let Some(idle) = limits.client_idle_timeout {
            limit(self.activity.last() + idle, format!("the client was silent for {}", words(idle)));
        }
        if limits.disconnect_expired_cert {
            let left = self.wanted.permit.valid_until() - OffsetDateTime::now_utc();
            let left = Duration::try_from(left).unwrap_or_default();
            limit(
                Instant::now() + left,
                "your certificate has expired; log in again: sallyport login".to_owned(),
            );
        }
        first
    }
}

/// A time as people say it.
pub(super) fn words(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 3600 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}
