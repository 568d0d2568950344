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
/// Logins that may wait for a hash; more are told to come again.
const WAITING: usize = 64;
/// How long one waits at the most.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest and longest password. Length is what counts (NIST SP 800-63B §5.1.1.2).
pub(crate) const LENGTHS: std::ops::RangeInclusive<usize> = 10..=1024;

/// Hashes on threads of their own, so many as the machine has processors.
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
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
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
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        self.running.acquire_many(u32::try_from(all).unwrap_or(u32::MAX)).await
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
