//! How much memory the bytes that wait in tunnels may take: a bound for each host within one for the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bound, and what is held of it. Clones are the same one; what several tunnels of a host hold is added up by giving
/// each a clone.
///
/// A part may hold no more than is still free in the whole. So the parts cannot fill the whole between them: the nearer it
/// comes to its bound, the less the greediest may keep, and a part that holds little goes on beside any number of them
/// (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998).
#[derive(Debug, Clone)]
pub struct Memory(Arc<Account>);

#[derive(Debug)]
struct Account {
    held: AtomicU64,
    most: u64,
    whole: Option<Memory>,
}

impl Memory {
    /// A bound of `most` bytes.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self(Arc::new(Account { held: AtomicU64::new(0), most, whole: None }))
    }

    /// A part of this one with a bound of its own. What it holds is held by the whole, too.
    #[must_use]
    pub fn part(&self, most: u64) -> Self {
        Self(Arc::new(Account { held: AtomicU64::new(0), most, whole: Some(self.clone()) }))
    }

    /// Bytes held now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Bytes that may be held now.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        let free = self.0.whole.as_ref().map(|whole| whole.0.most.saturating_sub(whole.held()));
        free.map_or(self.0.most, |free| free.min(self.0.most))
    }

    /// Whether more is held than may be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.held() > self.allowed()
    }

    /// Whether half of what may be held is.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.held() > self.allowed() / 2
    }

    pub(super) fn take(&self, bytes: u64) {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.take(bytes);
        }
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.0.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greedy_get_less_as_the_whole_fills_and_the_modest_go_on() {
        let whole = Memory::new(1_000);
        let (first, second, modest) = (whole.part(600), whole.part(600), whole.part(600));
        first.take(500);
        assert!(!first.is_over() && first.is_scarce());
        second.take(300);
        assert!(first.is_over() && second.is_over(), "200 are free");
        modest.take(100);
        assert!(!modest.is_over());
        first.give_back(500);
        assert!(!second.is_over());
        assert_eq!((whole.held(), first.held(), second.held()), (400, 0, 300));
    }
}
