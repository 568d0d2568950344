//! Whether the resources that this agent serves answer, of every kind that agents serve. A kind says what to ask ([`Check`]); when it
//! is asked, how long it may take and what is told is the same for all.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_access::Kind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::backoff::chance;

/// How long each may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The first pause after something was found that is not well.
const SOON: Duration = Duration::from_secs(5);
/// How many are asked at a time.
const AT_ONCE: usize = 16;
/// All agents of a resource hear of a change in the same moment, and do not ask in the same.
const SPREAD: Duration = Duration::from_secs(1);
/// A pause is never less than this share of what it may be, for the same reason.
const LEAST_SHARE: f64 = 0.75;

/// A resource, by its kind and its name.
pub(crate) type Name = (Kind, String);

/// What was found: nothing wrong, or what is.
pub(crate) type Found = BTreeMap<Name, Option<String>>;

/// Why a resource does not answer: the error of its kind, whose text administrators and users read.
pub(crate) type Unwell = Box<dyn std::error::Error + Send + Sync>;

/// A resource that this agent serves, and how it is asked whether it answers.
pub(crate) struct Check {
    pub(crate) of: Name,
    /// The document: one that was replaced is asked after at once.
    pub(crate) document: Arc<dyn Any + Send + Sync>,
    /// Asks, within [`PATIENCE`]; gives what is wrong, for people.
    pub(crate) ask: BoxFuture<'static, Result<(), Unwell>>,
}

/// Asks again and again until `stop`: what `served` gives, each `interval`, and when something else is served.
pub(crate) async fn run(
    served: impl Fn() -> Vec<Check> + Send,
    interval: Duration,
    mut changes: watch::Receiver<u64>,
    found: watch::Sender<Found>,
    stop: CancellationToken,
) {
    let forever = async {
        let mut pause = SOON.min(interval);
        let mut last = served();
        loop {
            let asked = documents(&last);
            let now = look(last).await;
            let is_well = now.values().all(Option::is_none);
            let has_changed = tell(&found, now);
            pause = next(pause, interval, is_well, has_changed);
            let due = Instant::now() + pause.mul_f64(LEAST_SHARE + (1.0 - LEAST_SHARE) * chance());
            last = loop {
                tokio::select! {
                    () = sleep_until(due) => break served(),
                    changed = changes.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        let now = served();
                        if !same(&asked, &documents(&now)) {
                            sleep(SPREAD.mul_f64(chance())).await;
                            break now;
                        }
                    }
                }
            };
        }
    };
    tokio::select! {
        () = forever => {}
        () = stop.cancelled() => {}
    }
}

type Documents = Vec<(Name, Arc<dyn Any + Send + Sync>)>;

fn documents(checks: &[Check]) -> Documents {
    checks.iter().map(|check| (check.of.clone(), Arc::clone(&check.document))).collect()
}

fn same(one: &Documents, other: &Documents) -> bool {
    let same = |((name, document), (other, beside)): (&(Name, Arc<_>), &(Name, Arc<_>))| {
        name == other && Arc::ptr_eq(document, beside)
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Puts what was found in the place of what was found before; says whether it differs.
fn tell(found: &watch::Sender<Found>, now: Found) -> bool {
    found.send_if_modified(|found| {
        for ((kind, name), problem) in &now {
            let before = found.get(&(*kind, name.clone()));
            match problem {
                Some(problem) if before != Some(&Some(problem.clone())) => {
                    warn!(kind = kind.row().document, name, problem, "a resource does not answer");
                }
                None if matches!(before, Some(Some(_))) => {
                    info!(kind = kind.row().document, name, "a resource answers again");
                }
                _ => {}
            }
        }
        let changed = *found != now;
        *found = now;
        changed
    })
}

/// How long to wait: what is not well is asked again soon, and less and less often while it stays so.
fn next(pause: Duration, interval: Duration, is_well: bool, has_changed: bool) -> Duration {
    match (is_well, has_changed) {
        (true, _) => interval,
        (false, true) => SOON.min(interval),
        (false, false) => pause.saturating_mul(2).min(interval),
    }
}

async fn look(checks: Vec<Check>) -> Found {
    let mut waiting = checks.into_iter();
    let mut asking = JoinSet::new();
    let mut found = Found::new();
    loop {
        while asking.len() < AT_ONCE
            && let Some(Check { of, ask, .. }) = waiting.next()
        {
            asking.spawn(async move { (of, ask.await.err().map(|unwell| unwell.to_string())) });
        }
        match asking.join_next().await {
            Some(Ok((of, problem))) => drop(found.insert(of, problem)),
            Some(Err(_)) => {}
            None => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn what_is_not_well_is_asked_again_soon_and_not_for_ever() {
        let minute = Duration::from_secs(60);
        let mut pause = next(minute, minute, false, true);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            pauses.push(pause.as_secs());
            pause = next(pause, minute, false, false);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
        assert_eq!(next(SOON, minute, true, true), minute);
        let second = Duration::from_secs(1);
        assert_eq!(next(second, second, false, true), second);
    }

    /// A resource, and what it answers; the answer stands for its document, too.
    type Answers = Vec<(&'static str, Arc<String>)>;

    /// Resources that answer as the test says.
    #[derive(Clone, Default)]
    struct Served(Arc<Mutex<Answers>>);

    impl Served {
        fn checks(&self, asked: &watch::Sender<usize>) -> Vec<Check> {
            let check = |(name, answer): &(&'static str, Arc<String>)| {
                let (answer, asked) = (Arc::clone(answer), asked.clone());
                let document: Arc<dyn Any + Send + Sync> = Arc::<String>::clone(&answer);
                let ask = Box::pin(async move {
                    asked.send_modify(|asked| *asked += 1);
                    if answer.is_empty() { Ok(()) } else { Err(answer.as_str().into()) }
                });
                Check { of: (Kind::App, (*name).to_owned()), document, ask }
            };
            self.0.lock().iter().map(check).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_served_is_asked_at_intervals_and_a_change_of_something_else_asks_nothing() {
        let minute = Duration::from_secs(60);
        let (asked, mut count) = watch::channel(0);
        let (found, mut told) = watch::channel(Found::new());
        let (changed, changes) = watch::channel(0);
        let (served, stop) = (Served::default(), CancellationToken::new());
        served.0.lock().push(("one", Arc::default()));
        let looking = served.clone();
        let running = tokio::spawn(run(move || looking.checks(&asked), minute, changes, found, stop.clone()));
        told.changed().await.unwrap();
        assert_eq!(told.borrow_and_update().get(&(Kind::App, "one".to_owned())), Some(&None));
        let began = Instant::now();
        // Whatever else changes in the cluster, no target is asked for it.
        for number in 1..100 {
            changed.send(number).unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(*count.borrow(), 1);
        count.wait_for(|count| *count == 2).await.unwrap();
        let pause = began.elapsed();
        assert!(pause >= minute.mul_f64(LEAST_SHARE) && pause <= minute, "{pause:?}");
        // Another one is asked at once, and what is wrong with it is told.
        let (began, name) = (Instant::now(), (Kind::App, "two".to_owned()));
        served.0.lock().push(("two", Arc::new("10.0.0.7:80 refused the connection".to_owned())));
        changed.send(100).unwrap();
        told.changed().await.unwrap();
        let problem = told.borrow_and_update().get(&name).cloned().unwrap();
        assert_eq!(problem.as_deref(), Some("10.0.0.7:80 refused the connection"));
        assert!(began.elapsed() <= SPREAD);
        // It is asked again soon, and that it is well is told.
        served.0.lock()[1].1 = Arc::default();
        told.changed().await.unwrap();
        assert_eq!(told.borrow_and_update().get(&name), Some(&None));
        assert!(began.elapsed() <= SPREAD + SOON);
        // What is not served any more is not told of.
        served.0.lock().clear();
        changed.send(101).unwrap();
        told.changed().await.unwrap();
        assert!(told.borrow().is_empty());
        stop.cancel();
        running.await.unwrap();
    }
}
