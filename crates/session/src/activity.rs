//! When a client last did something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// When the client last did something, since a beginning.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    /// Milliseconds since then.
    last: AtomicU64,
    /// The client waits for an answer.
    busy: AtomicBool,
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

impl Activity {
    /// Begins now, which counts as something done.
    #[must_use]
    pub fn new() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0), busy: AtomicBool::new(false) }
    }

    /// The client has done something.
    pub fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Whether the client waits for an answer: as long as it does, it is not idle. Default false.
    pub fn busy(&self, busy: bool) {
        if self.busy.swap(busy, Ordering::Relaxed) && !busy {
            self.note();
        }
    }

    /// Since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Since the client last did something.
    #[must_use]
    pub fn idle(&self) -> Duration {
        if self.busy.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        self.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_an_answer_is_not_idle() {
        let (activity, second) = (Activity::new(), Duration::from_secs(1));
        advance(second).await;
        assert_eq!(activity.idle(), second);
        activity.note();
        assert_eq!(activity.idle(), Duration::ZERO);
        activity.busy(true);
        advance(second).await;
        assert_eq!(activity.idle(), Duration::ZERO);
        // The answer that it was waiting for has come.
        activity.busy(false);
        assert_eq!((activity.idle(), activity.elapsed()), (Duration::ZERO, second * 2));
        advance(second).await;
        activity.busy(false);
        assert_eq!(activity.idle(), second);
    }
}
