//! One look at the machine's processes for all who want one.
//!
//! A node that stops, or a lock, ends many sessions at once, and each of them looks for what it has left in all of `/proc`. Whoever
//! asks while such a look is under way may have changed something since it began, and gets the next one, with all others who have asked
//! by then.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::left::SESSION;
use crate::processes::Process;

/// A process as a look has found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) process: Process,
    /// Whose it is, and what stands in its [`SESSION`]; none where nobody has asked about that account.
    pub(super) names: Option<(u32, String)>,
}

/// Looks at the processes of this machine. Cheap to clone; clones share their looks.
#[derive(Debug, Clone, Default)]
pub(super) struct Sweeper(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    looks: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    asking: Vec<Asking>,
    /// Somebody looks, and goes on until nobody asks.
    looking: bool,
}

#[derive(Debug)]
struct Asking {
    /// Whose processes are asked about.
    owner: u32,
    answer: oneshot::Sender<Arc<[Seen]>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until nobody asks.
    fn serve(&self, look: impl Fn(&BTreeSet<u32>) -> Vec<Seen>) {
        loop {
            let asking = {
                let mut state = self.state();
                state.looking = !state.asking.is_empty();
                std::mem::take(&mut state.asking)
            };
            if asking.is_empty() {
                return;
            }
            self.looks.fetch_add(1, Ordering::Relaxed);
            let found: Arc<[Seen]> = look(&asking.iter().map(|one| one.owner).collect()).into();
            for one in asking {
                // One that has gone needs none.
                let _ = one.answer.send(Arc::clone(&found));
            }
        }
    }
}

impl Sweeper {
    /// What runs on this machine, as of a moment after this was called. Nothing where the runtime ends meanwhile.
    pub(super) async fn running(&self, owner: u32) -> Arc<[Seen]> {
        self.running_by(owner, running).await
    }

    async fn running_by<F>(&self, owner: u32, look: F) -> Arc<[Seen]>
    where
        F: Fn(&BTreeSet<u32>) -> Vec<Seen> + Send + 'static,
    {
        let (answer, found) = oneshot::channel();
        let begins = {
            let mut state = self.0.state();
            state.asking.push(Asking { owner, answer });
            !std::mem::replace(&mut state.looking, true)
        };
        if begins {
            let shared = Arc::clone(&self.0);
            tokio::task::spawn_blocking(move || shared.serve(look));
        }
        found.await.unwrap_or_else(|_| Arc::from([]))
    }

    /// How often it was looked.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.0.looks.load(Ordering::Relaxed)
    }
}

/// What runs, with the variables of those accounts' processes.
pub(super) fn running(owners: &BTreeSet<u32>) -> Vec<Seen> {
    let names = |process: &Process| {
        let owner = process.owner().filter(|owner| owners.contains(owner))?;
        Some((owner, process.variable(SESSION)?))
    };
    Process::running().map(|process| Seen { names: names(&process), process }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::mpsc;

    use super::*;

    /// What a test holds of its looks.
    struct Held {
        go: mpsc::Sender<()>,
        /// Of how many accounts each is asked, when it begins.
        begins: mpsc::Receiver<usize>,
    }

    /// Looks that wait to be let go, and find nothing.
    fn held() -> (impl Fn(&BTreeSet<u32>) -> Vec<Seen> + Send + Clone + 'static, Held) {
        let (go, gone) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let gone = Arc::new(Mutex::new(gone));
        let look = move |owners: &BTreeSet<u32>| {
            begun.send(owners.len()).unwrap();
            gone.lock().unwrap().recv().unwrap();
            Vec::new()
        };
        (look, Held { go, begins })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_look_serves_all_who_asked_before_it() {
        let sweeper = Sweeper::default();
        let (look, Held { go, begins }) = held();
        let first = tokio::spawn({
            let (sweeper, look) = (sweeper.clone(), look.clone());
            async move { sweeper.running_by(0, look).await }
        });
        assert_eq!(begins.recv().unwrap(), 1);
        // Too late for that one.
        let later = (0..300).map(|owner| {
            let (sweeper, look) = (sweeper.clone(), look.clone());
            async move { sweeper.running_by(owner % 3, look).await }
        });
        let later = tokio::spawn(futures::future::join_all(later.collect::<Vec<_>>()));
        while sweeper.0.state().asking.len() < 300 {
            tokio::task::yield_now().await;
        }
        go.send(()).unwrap();
        first.await.unwrap();
        assert_eq!(begins.recv().unwrap(), 3, "about the accounts of all");
        assert!(!later.is_finished(), "what was found before they asked is no answer");
        go.send(()).unwrap();
        later.await.unwrap();
        assert_eq!(sweeper.looks(), 2);
        // The next one begins anew.
        let next = tokio::spawn(async move { sweeper.running_by(0, look).await });
        begins.recv().unwrap();
        go.send(()).unwrap();
        next.await.unwrap();
    }
}
