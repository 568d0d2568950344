//! What is open at a service, and its drain.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

/// What is open at a service: its connections, or its sessions. Clones are one.
pub struct Roster<T>(Arc<Inner<T>>);

struct Inner<T> {
    state: Mutex<State<T>>,
    left: Notify,
}

struct State<T> {
    entries: BTreeMap<u64, T>,
    next: u64,
    draining: bool,
}

/// How long a drain waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For what ends by itself.
    pub grace: Duration,
    /// For what was cut.
    pub cut: Duration,
}

/// Why something is not entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotEntered {
    /// The service is being drained.
    #[error("the service is being stopped")]
    Draining,
    /// It does not fit beside what is there.
    #[error("there are as many as there may be")]
    Full,
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        let state = State { entries: BTreeMap::new(), next: 0, draining: false };
        Self(Arc::new(Inner { state: Mutex::new(state), left: Notify::new() }))
    }
}

impl<T> Clone for Roster<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Roster<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster").field("open", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Inner<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

impl<T> State<T> {
    fn insert(&mut self, entry: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, entry);
        number
    }
}

impl<T: Clone> Roster<T> {
    /// Enters something that is open, for as long as the result lives; also while the service is drained.
    #[must_use]
    pub fn enter(&self, entry: T) -> Place<T> {
        let number = self.0.state().insert(entry.clone());
        Place { inner: Arc::clone(&self.0), number, entry }
    }

    /// Enters something that may be open if `fits` says so of what is there, for as long as the result lives.
    ///
    /// # Errors
    /// [`NotEntered`]; in the same moment as a drain begins, something is either entered and drained, or refused.
    pub fn enter_if(
        &self,
        entry: T,
        fits: impl FnOnce(&mut dyn Iterator<Item = &T>) -> bool,
    ) -> Result<Place<T>, NotEntered> {
        let mut state = self.0.state();
        if state.draining {
            return Err(NotEntered::Draining);
        }
        if !fits(&mut state.entries.values()) {
            return Err(NotEntered::Full);
        }
        let number = state.insert(entry.clone());
        drop(state);
        Ok(Place { inner: Arc::clone(&self.0), number, entry })
    }

    /// All that is open, the oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<T> {
        self.0.state().entries.values().cloned().collect()
    }

    /// The first that is wanted.
    pub fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.0.state().entries.values().find(|entry| wanted(entry)).cloned()
    }

    /// Begins nothing more by [`Roster::enter_if`], waits for what is open, cuts what is left after the grace, and waits for that and
    /// for `others`, which go on beyond it. Whether all has ended.
    pub async fn drain(
        &self,
        patience: Patience,
        cut: impl Fn(&T),
        others: impl Future<Output = ()>,
    ) -> bool {
        self.0.state().draining = true;
        if self.emptied(patience.grace).await > 0 {
            self.entries().iter().for_each(cut);
        }
        let over = async {
            self.empty().await;
            others.await;
        };
        timeout(patience.cut, over).await.is_ok()
    }
}

impl<T> Roster<T> {
    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.state().entries.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the service is being drained.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.state().draining
    }

    /// Waits until none is open, at most so long; gives how many are left.
    pub async fn emptied(&self, patience: Duration) -> usize {
        let _ = timeout(patience, self.empty()).await;
        self.len()
    }

    /// Waits until none is open.
    pub async fn empty(&self) {
        loop {
            let left = self.0.left.notified();
            tokio::pin!(left);
            // Before the look: what leaves after it is heard of.
            left.as_mut().enable();
            if self.is_empty() {
                return;
            }
            left.await;
        }
    }
}

/// Something open. When it is dropped, it is not any more.
pub struct Place<T> {
    inner: Arc<Inner<T>>,
    number: u64,
    entry: T,
}

impl<T> Place<T> {
    /// What was entered.
    #[must_use]
    pub fn entry(&self) -> &T {
        &self.entry
    }
}

impl<T> fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        let gone = self.inner.state().entries.remove(&self.number);
        drop(gone);
        self.inner.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::{Ending, Stop};

    const SOON: Patience = Patience { grace: Duration::from_secs(60), cut: Duration::from_secs(5) };

    #[tokio::test]
    async fn what_fits_is_entered_and_leaves_when_it_is_dropped() {
        let roster = Roster::default();
        let fits =
            |user| move |open: &mut dyn Iterator<Item = &&str>| open.filter(|one| **one == user).count() < 2;
        let held = [(); 2].map(|()| roster.enter_if("alice", fits("alice")).unwrap());
        assert_eq!(roster.enter_if("alice", fits("alice")).unwrap_err(), NotEntered::Full);
        let other = roster.enter_if("bob", fits("bob")).unwrap();
        assert_eq!((roster.len(), roster.find(|one| *one == "bob")), (3, Some("bob")));
        drop(held);
        assert_eq!((roster.entries(), *other.entry()), (vec!["bob"], "bob"));
        drop(other);
        roster.empty().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_then_cuts_then_gives_up() {
        let (roster, ending) = (Roster::<Ending>::default(), Ending::default());
        let place = roster.enter(ending.clone());
        // One that ends when it is cut.
        let session = tokio::spawn(async move {
            let stop = place.entry().ended().await;
            drop(place);
            stop
        });
        let cut = |ending: &Ending| {
            ending.end(Stop::Draining("the service is being stopped"));
        };
        assert!(roster.drain(SOON, cut, async {}).await);
        assert_eq!(session.await.unwrap().to_string(), "the service is being stopped");
        assert!(roster.is_draining() && roster.enter_if(ending.clone(), |_| true).is_err());
        // One that does not end although it is cut.
        let _stuck = roster.enter(ending);
        assert!(!roster.drain(SOON, cut, async {}).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_in_time_is_not_cut_and_what_goes_on_is_waited_for() {
        let roster = Roster::<Ending>::default();
        let (ending, began) = (Ending::default(), tokio::time::Instant::now());
        let place = roster.enter(ending.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            drop(place);
        });
        let others = tokio::time::sleep(Duration::from_secs(3));
        assert!(roster.drain(SOON, |_| panic!("it ends by itself"), others).await);
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        assert_eq!(ending.reason(), None);
        let never = std::future::pending();
        assert!(!roster.drain(SOON, |_| {}, never).await);
        let _stays = roster.enter(ending);
        assert_eq!(roster.emptied(Duration::from_secs(1)).await, 1);
    }
}
