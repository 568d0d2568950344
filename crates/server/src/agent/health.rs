//! Whether the resources that this agent serves answer, of every kind that agents serve. A kind says what to ask ([`Served`]); when it
//! is asked, how long it may take and what is told is the same for all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_access::Kind;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::backoff::chance;

/// How long each may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The first pause after something was found that is not well.
const SOON: Duration = Duration::from_secs(5);
/// How many are asked at a time. What waits for its turn makes the age of what was found: docs/apps.md has the bound.
const AT_ONCE: usize = 64;
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
pub(crate) trait Served: Clone + Send + 'static {
    fn name(&self) -> Name;

    /// Whether it has the same document: one that was replaced is asked after at once.
    fn is_same(&self, other: &Self) -> bool;

    /// Asks, within [`PATIENCE`]; gives what is wrong, for people.
    fn ask(&self) -> BoxFuture<'static, Result<(), Unwell>>;
}

/// Asks again and again until `stop`: what `served` gives, each in its own `interval`, and what is served anew at once. What was found
/// of each is told as it comes.
pub(crate) async fn run<R: Served>(
    served: impl Fn() -> Vec<R> + Send,
    interval: Duration,
    mut changes: watch::Receiver<u64>,
    found: watch::Sender<Found>,
    stop: CancellationToken,
) {
    let forever = async {
        let mut checks = Checks::new(interval, found);
        checks.serve(served(), Duration::ZERO);
        loop {
            checks.ask();
            let due = checks.due();
            tokio::select! {
                Some(answered) = checks.asking.join_next() => checks.take(answered),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    checks.serve(served(), SPREAD);
                }
            }
        }
    };
    tokio::select! {
        () = forever => {}
        () = stop.cancelled() => {}
    }
}

/// One resource, and when it is asked.
struct Check<R> {
    resource: R,
    due: Instant,
    pause: Duration,
}

/// What an agent asks.
struct Checks<R> {
    interval: Duration,
    checks: BTreeMap<Name, Check<R>>,
    /// In the order in which they are asked.
    queue: BTreeSet<(Instant, Name)>,
    asking: JoinSet<(R, Result<(), Unwell>)>,
    found: watch::Sender<Found>,
    /// As it was served last.
    last: Vec<R>,
}

impl<R: Served> Checks<R> {
    fn new(interval: Duration, found: watch::Sender<Found>) -> Self {
        let (checks, queue, asking) = (BTreeMap::new(), BTreeSet::new(), JoinSet::new());
        Self { interval, checks, queue, asking, found, last: Vec::new() }
    }

    /// Takes what is served now. What is new or has another document is asked within `spread`; for the others nothing changes.
    fn serve(&mut self, served: Vec<R>, spread: Duration) {
        let is_same = |(one, other): (&R, &R)| one.is_same(other);
        if self.last.len() == served.len() && self.last.iter().zip(&served).all(is_same) {
            return;
        }
        let due = Instant::now() + spread.mul_f64(chance());
        let mut before = std::mem::take(&mut self.checks);
        for resource in &served {
            let name = resource.name();
            let check = match before.remove(&name) {
                Some(check) if check.resource.is_same(resource) => check,
                replaced => {
                    if let Some(replaced) = replaced {
                        self.queue.remove(&(replaced.due, name.clone()));
                    }
                    self.queue.insert((due, name.clone()));
                    Check { resource: resource.clone(), due, pause: SOON.min(self.interval) }
                }
            };
            self.checks.insert(name, check);
        }
        for (name, gone) in before {
            self.queue.remove(&(gone.due, name));
        }
        self.last = served;
        let checks = &self.checks;
        self.found.send_if_modified(|found| {
            let all = found.len();
            found.retain(|name, _| checks.contains_key(name));
            found.len() < all
        });
    }

    /// Begins to ask what is due.
    fn ask(&mut self) {
        let now = Instant::now();
        while self.asking.len() < AT_ONCE
            && self.queue.first().is_some_and(|(due, _)| *due <= now)
            && let Some((_, name)) = self.queue.pop_first()
        {
            let Some(check) = self.checks.get_mut(&name) else { continue };
            let resource = check.resource.clone();
            // Where asking gives nothing at all, not even that it took too long.
            check.due = now + PATIENCE * 2 + self.interval;
            self.queue.insert((check.due, name));
            self.asking.spawn(async move {
                let answer = resource.ask().await;
                (resource, answer)
            });
        }
    }

    /// When the next is to be asked, if there is room for it.
    fn due(&self) -> Option<Instant> {
        let next = self.queue.first().filter(|_| self.asking.len() < AT_ONCE);
        next.map(|(due, _)| *due)
    }

    /// Takes an answer.
    fn take(&mut self, answered: Result<(R, Result<(), Unwell>), JoinError>) {
        let Ok((resource, answer)) = answered else { return };
        let name = resource.name();
        // An answer for a document that is served no more says nothing.
        let Some(check) = self.checks.get_mut(&name).filter(|check| check.resource.is_same(&resource)) else {
            return;
        };
        let problem = answer.err().map(|unwell| unwell.to_string());
        let is_well = problem.is_none();
        let has_changed = tell(&self.found, &name, problem);
        check.pause = next(check.pause, self.interval, is_well, has_changed);
        self.queue.remove(&(check.due, name.clone()));
        let share = LEAST_SHARE + (1.0 - LEAST_SHARE) * chance();
        check.due = Instant::now() + check.pause.mul_f64(share);
        self.queue.insert((check.due, name));
    }
}

/// Puts what was found of one in the place of what was found before; says whether it is well where it was not, or the other way round.
/// Another text alone is no news: it is told with the next heartbeat.
fn tell(found: &watch::Sender<Found>, name: &Name, problem: Option<String>) -> bool {
    found.send_if_modified(|found| {
        let before = found.get(name);
        let was_well = before.map(Option::is_none);
        let has_changed = was_well != Some(problem.is_none());
        let (kind, of) = (name.0.row().document, &name.1);
        match &problem {
            Some(problem) if has_changed => warn!(kind, name = of, problem, "a resource does not answer"),
            None if was_well == Some(false) => info!(kind, name = of, "a resource answers again"),
            _ => {}
        }
        found.insert(name.clone(), problem);
        has_changed
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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

    #[test]
    fn another_text_is_told_and_is_no_news() {
        let (found, mut told) = watch::channel(Found::new());
        let name = (Kind::App, "one".to_owned());
        let mut say = |problem: &str, news: bool| {
            let problem = Some(problem.to_owned()).filter(|problem| !problem.is_empty());
            assert_eq!(tell(&found, &name, problem.clone()), news, "{problem:?}");
            assert_eq!(told.has_changed().unwrap(), news, "{problem:?}");
            assert_eq!(told.borrow_and_update()[&name], problem);
        };
        say("refused", true);
        say("silent", false);
        say("refused", false);
        say("", true);
        say("", false);
        say("silent", true);
    }

    const MINUTE: Duration = Duration::from_secs(60);

    /// What a resource answers: nothing for [`PATIENCE`], or its text in turn.
    enum Answers {
        Late,
        Texts(&'static [&'static str]),
    }

    /// What is served, and when what of it was asked.
    #[derive(Clone, Default)]
    struct World {
        served: Arc<Mutex<Vec<Resource>>>,
        asked: Arc<Mutex<Vec<(String, Duration)>>>,
    }

    /// Its document is the answers.
    #[derive(Clone)]
    struct Resource {
        name: String,
        answers: Arc<Answers>,
        began: Instant,
        asked: Arc<Mutex<Vec<(String, Duration)>>>,
    }

    impl Served for Resource {
        fn name(&self) -> Name {
            (Kind::App, self.name.clone())
        }

        fn is_same(&self, other: &Self) -> bool {
            self.name == other.name && Arc::ptr_eq(&self.answers, &other.answers)
        }

        fn ask(&self) -> BoxFuture<'static, Result<(), Unwell>> {
            let this = self.clone();
            Box::pin(async move {
                let times = {
                    let mut asked = this.asked.lock();
                    asked.push((this.name.clone(), this.began.elapsed()));
                    asked.iter().filter(|(name, _)| *name == this.name).count()
                };
                match &*this.answers {
                    Answers::Late => {
                        tokio::time::sleep(PATIENCE).await;
                        Err("silent".into())
                    }
                    Answers::Texts(texts) => match texts[(times - 1) % texts.len()] {
                        "" => Ok(()),
                        text => Err(text.into()),
                    },
                }
            })
        }
    }

    impl World {
        fn serve(&self, name: &str, answers: Answers) {
            let (name, answers, asked) = (name.to_owned(), Arc::new(answers), Arc::clone(&self.asked));
            let mut served = self.served.lock();
            served.retain(|resource| resource.name != name);
            served.push(Resource { name, answers, began: Instant::now(), asked });
        }

        fn run(&self) -> (watch::Sender<u64>, watch::Receiver<Found>) {
            let (found, told) = watch::channel(Found::new());
            let (changed, changes) = watch::channel(0);
            let served = Arc::clone(&self.served);
            // It ends with the sender of changes.
            tokio::spawn(run(
                move || served.lock().clone(),
                MINUTE,
                changes,
                found,
                CancellationToken::new(),
            ));
            (changed, told)
        }

        /// When one was asked.
        fn asked(&self, of: &str) -> Vec<Duration> {
            let asked = self.asked.lock();
            asked.iter().filter(|(name, _)| name == of).map(|(_, at)| *at).collect()
        }
    }

    fn name(name: &str) -> Name {
        (Kind::App, name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_served_is_asked_at_intervals_and_a_change_of_something_else_asks_nothing() {
        let world = World::default();
        world.serve("one", Answers::Texts(&[""]));
        let (changed, mut told) = world.run();
        told.changed().await.unwrap();
        assert_eq!(told.borrow_and_update().get(&name("one")), Some(&None));
        // Whatever else changes in the cluster, no target is asked for it.
        for number in 1..100 {
            changed.send(number).unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(world.asked("one").len(), 1);
        // Another one is asked at once, and it alone; what is wrong with it is told.
        let began = Instant::now();
        world.serve("two", Answers::Texts(&["10.0.0.7:80 refused the connection", ""]));
        changed.send(100).unwrap();
        told.changed().await.unwrap();
        let problem = told.borrow_and_update().get(&name("two")).cloned().unwrap();
        assert_eq!(problem.as_deref(), Some("10.0.0.7:80 refused the connection"));
        assert!(began.elapsed() <= SPREAD);
        // It is asked again soon, and that it is well is told.
        told.changed().await.unwrap();
        assert_eq!(told.borrow_and_update().get(&name("two")), Some(&None));
        assert!(began.elapsed() <= SPREAD + SOON && world.asked("one").len() == 1);
        tokio::time::sleep(MINUTE).await;
        let asked = world.asked("one");
        let pause = asked[1] - asked[0];
        assert!(asked.len() == 2 && pause >= MINUTE.mul_f64(LEAST_SHARE) && pause <= MINUTE, "{asked:?}");
        // One with another document is asked at once, and what was found before stands until then.
        let began = Instant::now();
        world.serve("one", Answers::Texts(&["its name is not known"]));
        changed.send(101).unwrap();
        told.wait_for(|found| found[&name("one")].is_some()).await.unwrap();
        assert!(began.elapsed() <= SPREAD);
        // What is not served any more is not told of, and not asked.
        world.served.lock().clear();
        changed.send(102).unwrap();
        told.wait_for(Found::is_empty).await.unwrap();
        let asked = world.asked.lock().len();
        tokio::time::sleep(3 * MINUTE).await;
        assert_eq!(world.asked.lock().len(), asked);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_comes_and_goes_hurries_no_other() {
        let world = World::default();
        world.serve("down", Answers::Texts(&["refused", "silent"]));
        world.serve("flaps", Answers::Texts(&["refused", ""]));
        let (_changed, _told) = world.run();
        tokio::time::sleep(5 * MINUTE).await;
        let asked = world.asked("down");
        let pauses: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (pause, most) in pauses.iter().zip([5, 10, 20, 40, 60]) {
            let most = Duration::from_secs(most);
            assert!(*pause >= most.mul_f64(LEAST_SHARE) && *pause <= most, "{pauses:?}");
        }
        assert!(pauses.len() >= 5);
        // In its turn it is asked soon after each time that it was found down.
        assert!(world.asked("flaps").len() >= 8, "{:?}", world.asked("flaps"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_told_as_it_comes_however_many_are_silent() {
        let world = World::default();
        world.serve("well", Answers::Texts(&[""]));
        let silent = 10 * AT_ONCE;
        for number in 0..silent {
            world.serve(&format!("silent-{number}"), Answers::Late);
        }
        let (_changed, mut told) = world.run();
        let began = Instant::now();
        // By name it is asked last.
        told.wait_for(|found| found.len() == AT_ONCE).await.unwrap();
        assert!(began.elapsed() <= PATIENCE + Duration::from_secs(1), "{:?}", began.elapsed());
        told.wait_for(|found| found.get(&name("well")) == Some(&None)).await.unwrap();
        assert!(began.elapsed() <= PATIENCE * 11);
        // No finding is older than the interval and the time of a turn for those that are silent.
        tokio::time::sleep(10 * MINUTE).await;
        let turn = PATIENCE * u32::try_from(silent.div_ceil(AT_ONCE)).unwrap();
        let asked = world.asked("well");
        let longest = asked.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest <= MINUTE + turn, "{longest:?}");
    }
}
