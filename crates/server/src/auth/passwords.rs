//! Passwords are slow on purpose; nobody's hash may hold up anybody else, and nobody may guess.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sallyport_sal::password;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tonic::Status;
use zeroize::Zeroizing;

/// Failed logins of one user after which the account is closed,
pub(super) const MOST_FAILURES: usize = 5;
/// within this time,
pub(super) const FAILURE_WINDOW: time::Duration = time::Duration::minutes(15);
/// for this long.
pub(super) const LOCKOUT: time::Duration = time::Duration::minutes(15);
/// Failed logins from one address within the window before it has to wait.
const MOST_FROM_ADDRESS: usize = 60;
/// Calls without a certificate that one address may make in a minute. Each is on record, and the record must not be
/// something that a stranger can fill a disk with.
const STRANGERS_CALLS: u32 = 600;
/// Names and addresses remembered; past that the oldest go.
const REMEMBERED: usize = 20_000;
/// Logins that may wait for a hash; more are told to come again.
const WAITING: usize = 64;
/// How long one waits at the most.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest and longest password. Length is what counts (NIST SP 800-63B §5.1.1.2).
pub(super) const LENGTHS: std::ops::RangeInclusive<usize> = 10..=1024;

/// Hashes on a bounded number of blocking threads.
#[derive(Debug)]
pub(super) struct Pool {
    running: Semaphore,
    waiting: Semaphore,
}

impl Pool {
    pub(super) fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { running: Semaphore::new(threads), waiting: Semaphore::new(WAITING) }
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        let busy = || {
            Status::resource_exhausted("too many people log in at this moment; try again in a few seconds")
        };
        let _place = self.waiting.try_acquire().map_err(|_| busy())?;
        let _thread = tokio::time::timeout(PATIENCE, self.running.acquire())
            .await
            .map_err(|_| busy())?
            .map_err(|_| Status::unavailable("the authority is shutting down"))?;
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| Status::internal("a password could not be checked"))
    }

    /// Whether a password is the stored one. Without a stored one it takes as long, and is wrong.
    pub(super) async fn verify(
        &self,
        given: Zeroizing<String>,
        stored: Option<String>,
    ) -> Result<bool, Status> {
        self.run(move || match stored {
            Some(stored) => password::verify(given.as_bytes(), &stored).unwrap_or(false),
            None => password::dummy_verify(given.as_bytes()),
        })
        .await
    }

    pub(super) async fn hash(&self, given: Zeroizing<String>) -> Result<String, Status> {
        self.run(move || password::hash(given.as_bytes()))
            .await?
            .map_err(|error| Status::internal(format!("the password could not be stored: {error}")))
    }
}

/// Failed logins by address, and by names that nobody has: those must be closed as real ones are, or the difference
/// would tell which exist.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    addresses: Mutex<HashMap<IpAddr, Vec<i64>>>,
    names: Mutex<HashMap<String, Vec<i64>>>,
    /// Calls of each address in the present minute.
    strangers: Mutex<(i64, HashMap<IpAddr, u32>)>,
}

fn recent(times: &[i64], now: OffsetDateTime) -> usize {
    let since = (now - FAILURE_WINDOW).unix_timestamp();
    times.iter().filter(|time| **time > since).count()
}

fn note<K: std::hash::Hash + Eq + Clone>(map: &Mutex<HashMap<K, Vec<i64>>>, key: &K, now: OffsetDateTime) {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    if map.len() >= REMEMBERED && !map.contains_key(key) {
        map.retain(|_, times| recent(times, now) > 0);
        if map.len() >= REMEMBERED {
            map.clear();
        }
    }
    let times = map.entry(key.clone()).or_default();
    times.retain(|time| *time > (now - FAILURE_WINDOW).unix_timestamp());
    times.push(now.unix_timestamp());
}

impl Guesses {
    /// Counts a call without a certificate; whether it is still within the bound.
    pub(super) fn admits_stranger(&self, address: IpAddr, now: OffsetDateTime) -> bool {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let (minute, calls) = &mut *strangers;
        let current = now.unix_timestamp() / 60;
        if *minute != current {
            *minute = current;
            calls.clear();
        }
        if calls.len() >= REMEMBERED && !calls.contains_key(&address) {
            return false;
        }
        let count = calls.entry(address).or_default();
        *count = count.saturating_add(1);
        *count <= STRANGERS_CALLS
    }

    /// Whether an address has failed too often.
    pub(super) fn address_is_barred(&self, address: IpAddr, now: OffsetDateTime) -> bool {
        let map = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(&address).is_some_and(|times| recent(times, now) >= MOST_FROM_ADDRESS)
    }

    pub(super) fn note_address(&self, address: IpAddr, now: OffsetDateTime) {
        note(&self.addresses, &address, now);
    }

    /// When a name that nobody has is open again, if it is closed.
    pub(super) fn name_closed_until(&self, name: &str, now: OffsetDateTime) -> Option<i64> {
        let map = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let times = map.get(name)?;
        (recent(times, now) >= MOST_FAILURES)
            .then(|| times.last().map(|last| last + LOCKOUT.whole_seconds()))?
    }

    pub(super) fn note_name(&self, name: &str, now: OffsetDateTime) {
        note(&self.names, &name.to_owned(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_may_call_so_often_in_a_minute() {
        let guesses = Guesses::default();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::hours(1);
        for _ in 0..STRANGERS_CALLS {
            assert!(guesses.admits_stranger(one, now));
        }
        assert!(!guesses.admits_stranger(one, now));
        assert!(guesses.admits_stranger(other, now));
        assert!(guesses.admits_stranger(one, now + time::Duration::minutes(1)));
    }
}
