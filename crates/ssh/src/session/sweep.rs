//! One look at the machine's processes for all who want one.
//!
//! A node that stops, or a lock, ends many sessions at once, and each of them looks for its processes in all of
//! `/proc`. A session that asks while such a look is under way may have changed something since it began, and gets the
//! next one, with all others that have asked by then.
//!
//! What stands in a process's environment is read apart, for each account by itself and for a bounded time: the process decides
//! where that is, and can keep the reader waiting (a page of a file system of its own).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::processes::Process;

/// The variable by which a session's programs know which session they are in.
pub(crate) const SESSION: &str = "SALLYPORT_SESSION";
/// How long an account's environments may take to be read.
const NAMES_PATIENCE: Duration = Duration::from_secs(1);

type Running = Arc<[Process]>;
type Named = Arc<[(Process, String)]>;

/// Looks at the processes of this machine. Cheap to clone; clones share their looks.
#[derive(Debug, Clone, Default)]
pub(super) struct Sweeper {
    running: Arc<Looks<Running>>,
    named: Arc<Mutex<HashMap<u32, Arc<Looks<Named>>>>>,
}

#[derive(Debug)]
struct Looks<T> {
    state: Mutex<State<T>>,
    begun: AtomicU64,
}

#[derive(Debug)]
struct State<T> {
    asking: Vec<oneshot::Sender<T>>,
    /// A thread looks, and goes on until no session asks.
    looking: bool,
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { asking: Vec::new(), looking: false }), begun: AtomicU64::new(0) }
    }
}

/// Lets those go that wait for a look which has failed.
struct Failing<'l, T>(Option<&'l Looks<T>>);

impl<T> Drop for Failing<'_, T> {
    fn drop(&mut self) {
        if let Some(looks) = self.0 {
            let mut state = looks.state();
            state.looking = false;
            state.asking.clear();
        }
    }
}

impl<T: Clone + Send + 'static> Looks<T> {
    /// What a look finds that begins after this was called; none where it fails.
    async fn ask<F>(self: &Arc<Self>, look: F) -> Option<T>
    where
        F: Fn() -> T + Send + 'static,
    {
        let (answer, found) = oneshot::channel();
        let begins = {
            let mut state = self.state();
            // Those that have waited long enough.
            state.asking.retain(|one| !one.is_closed());
            state.asking.push(answer);
            !std::mem::replace(&mut state.looking, true)
        };
        if begins {
            let looks = Arc::clone(self);
            // No thread of the runtime's, which would wait at its end for one that is kept waiting.
            let thread = std::thread::Builder::new().name("processes".to_owned());
            if let Err(error) = thread.spawn(move || looks.serve(look)) {
                tracing::warn!(%error, "cannot look for what sessions have left");
                drop(Failing(Some(self.as_ref())));
            }
        }
        found.await.ok()
    }

    /// Looks until no session asks.
    fn serve(&self, look: impl Fn() -> T) {
        // Dropped last where a look fails: a session that hears of that may ask at once for another.
        let mut asking;
        let mut failing = Failing(Some(self));
        loop {
            asking = {
                let mut state = self.state();
                state.looking = !state.asking.is_empty();
                std::mem::take(&mut state.asking)
            };
            if asking.is_empty() {
                failing.0 = None;
                return;
            }
            self.begun.fetch_add(1, Ordering::Relaxed);
            let found = look();
            for one in asking {
                // One that has gone needs none.
                let _ = one.send(found.clone());
            }
        }
    }
}

impl<T> Looks<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

impl Sweeper {
    /// What runs on this machine, as of a moment after this was called; none where that cannot be learned.
    pub(super) async fn running(&self) -> Option<Running> {
        self.running.ask(|| Process::running().collect()).await
    }

    /// Those of an account that have a [`SESSION`], with that; nothing where it cannot be learned in time.
    pub(super) async fn named(&self, owner: u32) -> Named {
        self.named_by(owner, move || {
            let own = Process::running().filter(|process| process.owner() == Some(owner));
            own.filter_map(|process| Some((process, process.variable(SESSION)?))).collect()
        })
        .await
    }

    async fn named_by<F>(&self, owner: u32, look: F) -> Named
    where
        F: Fn() -> Named + Send + 'static,
    {
        let looks = {
            let mut named = self.named.lock();
            Arc::clone(named.entry(owner).or_default())
        };
        timeout(NAMES_PATIENCE, looks.ask(look)).await.ok().flatten().unwrap_or_default()
    }

    /// How often it was looked at all processes.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        let named = self.named.lock();
        let named = named.values().map(|looks| looks.begun.load(Ordering::Relaxed)).sum::<u64>();
        self.running.begun.load(Ordering::Relaxed) + named
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use std::sync::mpsc;

    use super::*;

    /// What a test holds of its looks.
    struct Held {
        go: mpsc::Sender<()>,
        begins: mpsc::Receiver<()>,
    }

    /// Looks that wait to be let go, and find nothing.
    fn held<T: Default>() -> (impl Fn() -> T + Send + Clone + 'static, Held) {
        let (go, gone) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let gone = Arc::new(Mutex::new(gone));
        let look = move || {
            begun.send(()).unwrap();
            let _ = gone.lock().recv();
            T::default()
        };
        (look, Held { go, begins })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_look_serves_all_who_asked_before_it() {
        let looks = Arc::new(Looks::<Running>::default());
        let (look, Held { go, begins }) = held();
        let ask = || {
            let (looks, look) = (looks.clone(), look.clone());
            async move { looks.ask(look).await }
        };
        let first = tokio::spawn(ask());
        begins.recv().unwrap();
        // Too late for that one.
        let later = tokio::spawn(futures::future::join_all((0..300).map(|_| ask()).collect::<Vec<_>>()));
        while looks.state().asking.len() < 300 {
            tokio::task::yield_now().await;
        }
        go.send(()).unwrap();
        first.await.unwrap().unwrap();
        begins.recv().unwrap();
        assert!(!later.is_finished(), "what was found before they asked is no answer");
        go.send(()).unwrap();
        assert!(later.await.unwrap().iter().all(Option::is_some));
        assert_eq!(looks.begun.load(Ordering::Relaxed), 2);
        // The next one begins anew.
        let next = tokio::spawn(ask());
        begins.recv().unwrap();
        go.send(()).unwrap();
        next.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_account_that_keeps_its_reader_waiting_delays_no_other() {
        let sweeper = Sweeper::default();
        let (look, Held { go, begins }) = held();
        let waits = tokio::spawn({
            let sweeper = sweeper.clone();
            async move { sweeper.named_by(1, look).await }
        });
        begins.recv().unwrap();
        assert!(sweeper.running().await.is_some_and(|running| !running.is_empty()));
        let own = nix::unistd::getpid().as_raw();
        let found: Named = Process::running()
            .filter(|one| one.pid.as_raw_pid() == own)
            .map(|one| (one, String::new()))
            .collect();
        let others = found.clone();
        assert_eq!(sweeper.named_by(2, move || others.clone()).await, found);
        assert!(waits.await.unwrap().is_empty(), "it is waited for so long, and no longer");
        drop(go);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_look_that_fails_is_no_answer_and_the_next_one_is_one() {
        let looks = Arc::new(Looks::<Running>::default());
        assert_eq!(looks.ask(|| panic!("the test's own")).await, None);
        assert_eq!(looks.ask(Running::default).await, Some(Running::default()));
    }
}
