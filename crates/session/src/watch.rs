//! Waits until a session has to end: by a decision that is another one now, a limit, its recording, an administrator, or a drain.

use std::time::Duration;

use sallyport_access::Limits;
use time::OffsetDateTime;
use tokio::sync::watch::Receiver;
use tokio::time::sleep;

use crate::activity::Activity;
use crate::limits::{self, Limit, Moment, Verdict};
use crate::record::Record;
use crate::stop::{Denied, Ending, Stop};

/// What is watched over, and answers whether it may go on. It answers from memory: nothing is waited for.
pub trait Watched: Send + Sync {
    /// A counter that changes whenever a decision may have: roles, locks, or what the session is with.
    fn changes(&self) -> Receiver<u64>;

    /// Why it may not go on by the roles and locks of now; asked at the beginning, and at each change.
    fn denied(&self, now: OffsetDateTime) -> Option<Denied>;

    /// What its limits say; `warned` says whether its user was told that the end is near. Default: it has none.
    fn verdict(&self, warned: bool) -> Verdict {
        let _ = warned;
        Verdict::UNLIMITED
    }

    /// Tells its user, without waiting, that it ends after so long. Default: the user is not told.
    fn warn(&self, left: Duration, limit: Limit) {
        let _ = (left, limit);
    }
}

/// What is watched over within the limits of a permit. Its user is told of the end alone.
pub struct Timed<'a> {
    /// What answers for the decision.
    pub decided: &'a dyn Watched,
    /// The permit's.
    pub limits: &'a Limits,
    /// The end of the certificate behind the permit.
    pub valid_until: OffsetDateTime,
    /// The client's, since the session began.
    pub activity: &'a Activity,
}

impl Watched for Timed<'_> {
    fn changes(&self) -> Receiver<u64> {
        self.decided.changes()
    }

    fn denied(&self, now: OffsetDateTime) -> Option<Denied> {
        self.decided.denied(limits::decided_as_of(self.limits, self.valid_until, now))
    }

    fn verdict(&self, _: bool) -> Verdict {
        let moment = Moment {
            lasted: self.activity.elapsed(),
            idle: self.activity.idle(),
            now: OffsetDateTime::now_utc(),
            warned: true,
        };
        limits::judge(self.limits, self.valid_until, moment)
    }
}

/// Waits until a session has to end, and says why: whatever comes first of what `watched` answers, `ending`, and its recording.
/// It subscribes to changes before it asks for the first time, so that none falls in between.
pub async fn stopped(watched: &dyn Watched, ending: &Ending, record: Option<&Record>) -> Stop {
    let broken = async {
        match record {
            Some(record) => record.broken().await,
            None => std::future::pending().await,
        }
    };
    let ended = ending.ended();
    tokio::pin!(broken, ended);
    let mut changes = watched.changes();
    let (mut changed, mut more, mut warned) = (true, true, false);
    loop {
        if std::mem::take(&mut changed)
            && let Some(denied) = watched.denied(OffsetDateTime::now_utc())
        {
            return Stop::Denied(denied);
        }
        let ask_again = match watched.verdict(warned) {
            Verdict::Over(limit) => return Stop::Limit(limit),
            Verdict::Warn(left, limit) => {
                warned = true;
                watched.warn(left, limit);
                continue;
            }
            Verdict::Fine(ask_again) => ask_again,
        };
        tokio::select! {
            stop = &mut ended => return stop,
            unrecordable = &mut broken => return unrecordable.into(),
            // Nothing changes any more when what counts is gone; the rest is watched on.
            counted = changes.changed(), if more => {
                more = counted.is_ok();
                changed = more;
            }
            () = sleep(ask_again) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;
    use tokio::sync::watch;

    use super::*;

    /// Answers as the test says.
    struct Answers {
        changes: watch::Sender<u64>,
        refused: AtomicBool,
        asked: Mutex<Vec<OffsetDateTime>>,
    }

    impl Answers {
        fn new() -> Self {
            let refused = AtomicBool::new(false);
            Self { changes: watch::channel(0).0, refused, asked: Mutex::default() }
        }

        fn refuse(&self) {
            self.refused.store(true, Ordering::Relaxed);
            self.changes.send_modify(|count| *count += 1);
        }
    }

    impl Watched for Answers {
        fn changes(&self) -> Receiver<u64> {
            self.changes.subscribe()
        }

        fn denied(&self, now: OffsetDateTime) -> Option<Denied> {
            self.asked.lock().push(now);
            self.refused.load(Ordering::Relaxed).then(|| Denied::new("alice is locked"))
        }
    }

    fn timed<'a>(decided: &'a Answers, limits: &'a Limits, activity: &'a Activity) -> Timed<'a> {
        let valid_until = OffsetDateTime::now_utc() - time::Duration::HOUR;
        Timed { decided, limits, valid_until, activity }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_decision_ends_it_and_one_that_changes_nothing_does_not() {
        let (answers, ending) = (Answers::new(), Ending::default());
        let watching = stopped(&answers, &ending, None);
        tokio::pin!(watching);
        let asked = async |times: usize| {
            while answers.asked.lock().len() < times {
                tokio::task::yield_now().await;
            }
        };
        let told = async {
            asked(1).await;
            answers.changes.send_modify(|count| *count += 1);
            // The watch asks, and goes on.
            asked(2).await;
            answers.refuse();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            stop = &mut watching => assert_eq!(stop, Stop::Denied(Denied::new("alice is locked"))),
            () = told => unreachable!(),
        }
        // One that comes late is asked for at once.
        assert!(matches!(stopped(&answers, &ending, None).await, Stop::Denied(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_it_from_outside_is_heard() {
        let (answers, ending) = (Answers::new(), Ending::default());
        ending.end(Stop::Ended("maintenance".to_owned()));
        assert_eq!(stopped(&answers, &ending, None).await.to_string(), "maintenance");
        drop(answers);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_unless_the_client_waits() {
        let (answers, ending, activity) = (Answers::new(), Ending::default(), Activity::new());
        let limit = Duration::from_secs(300);
        let limits = Limits { client_idle_timeout: Some(limit), ..Limits::default() };
        let watched = timed(&answers, &limits, &activity);
        activity.busy(true);
        let busy = tokio::time::timeout(Duration::from_secs(4000), stopped(&watched, &ending, None)).await;
        assert!(busy.is_err(), "{busy:?}");
        activity.busy(false);
        let (stop, idle) = (stopped(&watched, &ending, None).await, activity.idle());
        assert_eq!(stop, Stop::Limit(Limit::Idle(limit)));
        assert!(idle >= limit && idle < limit + Duration::from_secs(1), "{idle:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_outlives_its_certificate_is_decided_about_as_of_its_end() {
        let (answers, ending, activity) = (Answers::new(), Ending::default(), Activity::new());
        let limits = Limits { max_session_duration: Some(Duration::from_secs(10)), ..Limits::default() };
        let watched = timed(&answers, &limits, &activity);
        let stop = stopped(&watched, &ending, None).await;
        assert_eq!(stop.to_string(), "the session has lasted 10 s, which is as long as it may");
        let asked = answers.asked.lock().clone();
        assert!(!asked.is_empty() && asked.iter().all(|as_of| *as_of < watched.valid_until), "{asked:?}");
        let strict = Limits { disconnect_expired_cert: true, ..Limits::default() };
        let watched = timed(&answers, &strict, &activity);
        assert_eq!(stopped(&watched, &ending, None).await, Stop::Limit(Limit::Certificate));
    }

    /// Warned once, and then ended.
    struct Warned(Activity, Mutex<Vec<(Duration, Limit)>>);

    impl Watched for Warned {
        fn changes(&self) -> Receiver<u64> {
            watch::channel(0).1
        }

        fn denied(&self, _: OffsetDateTime) -> Option<Denied> {
            None
        }

        fn verdict(&self, warned: bool) -> Verdict {
            let limits = Limits { max_session_duration: Some(Duration::from_secs(600)), ..Limits::default() };
            let now = OffsetDateTime::UNIX_EPOCH;
            let moment = Moment { lasted: self.0.elapsed(), idle: Duration::ZERO, now, warned };
            limits::judge(&limits, now, moment)
        }

        fn warn(&self, left: Duration, limit: Limit) {
            self.1.lock().push((left, limit));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn its_user_is_warned_once_and_it_ends_although_nothing_counts_changes() {
        let (watched, longest) = (Warned(Activity::new(), Mutex::default()), Duration::from_secs(600));
        let stop = stopped(&watched, &Ending::default(), None).await;
        assert_eq!(stop, Stop::Limit(Limit::Lasted(longest)));
        assert_eq!(*watched.1.lock(), [(Duration::from_secs(60), Limit::Lasted(longest))]);
    }
}
