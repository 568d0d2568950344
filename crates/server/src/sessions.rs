//! What is open at a proxy, which a drain waits for, and what one user may have of it at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use parking_lot::Mutex;
use sallyport_access::{DatabaseName, UserName};
use sallyport_session::{Place, Roster};

/// How many there are of each, for bounds: a roster that is looked through for each session would cost the more the more are open.
#[derive(Debug)]
struct Counts<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> Counts<K> {
    /// One more, where there are not as many as there may be.
    fn add(&self, key: &K, most: usize) -> Result<(), TooMany> {
        let mut counts = self.0.lock();
        let mine = counts.entry(key.clone()).or_insert(0);
        if *mine >= most {
            return Err(TooMany { bound: most });
        }
        *mine += 1;
        Ok(())
    }

    /// One less.
    fn take(&self, key: &K) {
        let mut counts = self.0.lock();
        if let Some(mine) = counts.get_mut(key) {
            *mine = mine.saturating_sub(1);
            if *mine == 0 {
                counts.remove(key);
            }
        }
    }
}

#[derive(Debug)]
struct Inner {
    by_user: Counts<UserName>,
    /// Of those with databases.
    by_database: Counts<(UserName, DatabaseName)>,
    open: Roster<UserName>,
    per_user: usize,
}

/// The open sessions of a service.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    inner: Arc<Inner>,
}

/// The user has as many sessions as one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) bound: usize,
}

impl Sessions {
    pub(crate) fn new(per_user: usize) -> Self {
        let (by_user, by_database) = (Counts::default(), Counts::default());
        Self { inner: Arc::new(Inner { by_user, by_database, open: Roster::default(), per_user }) }
    }

    /// Counts one more session of `user` until the guard is dropped.
    pub(crate) fn begin(&self, user: &UserName) -> Result<SessionGuard, TooMany> {
        self.inner.by_user.add(user, self.inner.per_user)?;
        gauge!("sallyport_sessions_open").increment(1);
        Ok(SessionGuard { inner: Arc::clone(&self.inner), place: self.inner.open.enter(user.clone()) })
    }

    /// Counts one more session of `user` with this database, of which the roles allow so many, whichever agents they are with.
    pub(crate) fn begin_with_database(
        &self,
        user: &UserName,
        database: &DatabaseName,
        most: usize,
    ) -> Result<DatabaseGuard, TooMany> {
        let key = (user.clone(), database.clone());
        self.inner.by_database.add(&key, most)?;
        Ok(DatabaseGuard { inner: Arc::clone(&self.inner), key })
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.inner.open.len()
    }

    /// Waits until none is open, at most for `patience`; gives how many are left.
    pub(crate) async fn drained(&self, patience: Duration) -> usize {
        self.inner.open.emptied(patience).await
    }
}

/// One open session.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    inner: Arc<Inner>,
    place: Place<UserName>,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.inner.by_user.take(self.place.entry());
        gauge!("sallyport_sessions_open").decrement(1);
    }
}

/// One open session with a database.
#[derive(Debug)]
pub(crate) struct DatabaseGuard {
    inner: Arc<Inner>,
    key: (UserName, DatabaseName),
}

impl Drop for DatabaseGuard {
    fn drop(&mut self) {
        self.inner.by_database.take(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_with_a_database_are_bounded_by_what_the_roles_say() {
        let sessions = Sessions::new(10);
        let (alice, bob) = (UserName::new("alice").unwrap(), UserName::new("bob").unwrap());
        let (prod, stage) = (DatabaseName::new("prod").unwrap(), DatabaseName::new("stage").unwrap());
        let held = [0, 1].map(|_| sessions.begin_with_database(&alice, &prod, 2).unwrap());
        assert_eq!(sessions.begin_with_database(&alice, &prod, 2).unwrap_err(), TooMany { bound: 2 });
        assert!(sessions.begin_with_database(&alice, &stage, 2).is_ok());
        assert!(sessions.begin_with_database(&bob, &prod, 2).is_ok());
        // Roles may say otherwise by then.
        assert!(sessions.begin_with_database(&alice, &prod, 3).is_ok());
        drop(held);
        assert!(sessions.inner.by_database.0.lock().is_empty());
    }

    #[tokio::test]
    async fn sessions_are_counted_bounded_and_waited_for() {
        let sessions = Sessions::new(2);
        let alice = UserName::new("alice").unwrap();
        let one = sessions.begin(&alice).unwrap();
        let two = sessions.begin(&alice).unwrap();
        assert_eq!(sessions.begin(&alice).unwrap_err(), TooMany { bound: 2 });
        assert!(sessions.begin(&UserName::new("bob").unwrap()).is_ok());
        assert_eq!(sessions.drained(Duration::from_millis(10)).await, 2);
        let waiter = tokio::spawn({
            let sessions = sessions.clone();
            async move { sessions.drained(Duration::from_secs(5)).await }
        });
        drop((one, two));
        assert_eq!(waiter.await.unwrap(), 0);
        assert!(sessions.begin(&alice).is_ok());
    }
}
