//! Passwords are slow to hash on purpose; the hash of one login must not hold up others.

use std::time::Duration;

use sallyport_sal::password;
use tokio::sync::Semaphore;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::workers::Workers;

/// Failed logins of one user after which the account is closed.
pub(crate) const MOST_FAILURES: usize = 5;
/// within [`FAILURE_WINDOW`](crate::authority::gate::guesses::FAILURE_WINDOW), for this long.
pub(crate) const LOCKOUT: time::Duration = time::Duration::minutes(15);
/// Most hashes at a time, however many processors there are: each holds 19 MiB while it is computed, all of them some 300.
const MOST_THREADS: usize = 16;
/// Logins that may wait for a hash; more are told to come again.
const WAITING: usize = 64;
/// How long one waits at the most.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest and longest password. Length is what counts (NIST SP 800-63B §5.1.1.2).
pub(crate) const LENGTHS: std::ops::RangeInclusive<usize> = 10..=1024;

/// Hashes at a time: on half of the processors, so that under a flood of passwords the other half answers everything else.
pub(crate) fn threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.div_ceil(2).min(MOST_THREADS)
}

/// Hashes on threads of their own, half as many as the machine has processors and 16 at the most. They have the priority of all others:
/// with a tenth of their weight, a login beside other programs' work waited for longer than [`PATIENCE`].
#[derive(Debug)]
pub(crate) struct Pool {
    workers: Workers,
    running: Semaphore,
    waiting: Semaphore,
}

impl Pool {
    /// # Errors
    /// When the system gives no threads.
    pub(crate) fn new() -> std::io::Result<Self> {
        let threads = threads();
        let workers = Workers::new("password", threads, threads)?;
        Ok(Self { workers, running: Semaphore::new(threads), waiting: Semaphore::new(WAITING) })
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
        self.workers.run(work).await.map_err(|_| Status::internal("a password could not be checked"))
    }

    /// Thinks about a password that is to be set, which takes a while as a hash does.
    pub(crate) async fn consider<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.run(work).await
    }

    /// Whether a password is the stored one. Without a stored one it takes as long, and is wrong.
    pub(crate) async fn verify(
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

    /// The hash that is to replace a stored one, of which it is known that it is this password's: one of another kind than this
    /// process makes, or weaker. A login does not fail for want of it: the next one tries again.
    pub(crate) async fn renewed(&self, given: Zeroizing<String>, stored: &str) -> Option<String> {
        if !password::needs_rehash(stored) {
            return None;
        }
        let renewed = self.hash(given).await;
        renewed
            .inspect_err(|status| tracing::debug!(problem = status.message(), "a hash was not renewed"))
            .ok()
    }

    /// Keeps every thread, so that those who come wait.
    #[cfg(test)]
    pub(crate) async fn hold(&self) -> Result<tokio::sync::SemaphorePermit<'_>, tokio::sync::AcquireError> {
        self.running.acquire_many(u32::try_from(threads()).unwrap_or(u32::MAX)).await
    }

    /// How many wait, or are being served.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> usize {
        WAITING - self.waiting.available_permits()
    }

    pub(crate) async fn hash(&self, given: Zeroizing<String>) -> Result<String, Status> {
        self.run(move || password::hash(given.as_bytes()))
            .await?
            .map_err(|error| Status::internal(format!("the password could not be stored: {error}")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// What memory depends on is counted, of a thousand at once: those that are computed, and those that wait.
    #[tokio::test(flavor = "multi_thread")]
    async fn of_a_thousand_at_once_few_are_computed_few_wait_and_the_rest_are_sent_away() {
        let pool = Arc::new(Pool::new().unwrap());
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(parking_lot::Mutex::new(released));
        let mut asked = Vec::new();
        for _ in 0..1000 {
            let (pool, now, most) = (Arc::clone(&pool), Arc::clone(&now), Arc::clone(&most));
            let released = Arc::clone(&released);
            asked.push(tokio::spawn(async move {
                pool.consider(move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // None ends before all have asked.
                    let _ = released.lock().recv();
                    now.fetch_sub(1, Ordering::SeqCst);
                })
                .await
            }));
        }
        // Those that are sent away are so before any of the others has ended.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        while asked.iter().filter(|one| one.is_finished()).count() < 1000 - WAITING {
            assert!(tokio::time::Instant::now() < deadline, "some are neither served nor sent away");
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.inside(), WAITING);
        drop(release);
        let (mut done, mut busy) = (0, 0);
        for one in asked {
            match one.await.unwrap() {
                Ok(()) => done += 1,
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
                    busy += 1;
                }
            }
        }
        assert_eq!((done, busy), (WAITING, 1000 - WAITING));
        assert!(most.load(Ordering::SeqCst) <= threads(), "{most:?}");
        assert_eq!(pool.inside(), 0);
    }
}
