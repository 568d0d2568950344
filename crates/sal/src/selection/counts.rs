//! Counters that many threads add to at every operation.
//!
//! One number for all threads is a cache line that moves from core to core with each operation: a fifth more for an operation of
//! 100 ns on two cores that both count. So each thread adds to one of several sets, and reading sums them up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What was asked of one source.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Use {
    /// The name of a primitive, or of an [`Aside`](crate::uses::Aside).
    pub primitive: String,
    /// The name of a provider, or of another library.
    pub provider: &'static str,
    /// How often.
    pub times: u64,
    /// Whether it was in the FIPS module, and approved there: X25519 is the library's and not the module's to approve. None is where
    /// this build has no module.
    pub in_module: bool,
}

/// Sets of counters. Threads past as many share one, each with another one of them.
const SETS: usize = 8;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SET: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SETS;
}

/// So many numbers.
pub(super) struct Counts {
    sets: [Box<[AtomicU64]>; SETS],
}

impl Counts {
    /// All of them zero.
    pub(super) fn new(length: usize) -> Self {
        Self { sets: std::array::from_fn(|_| (0..length).map(|_| AtomicU64::new(0)).collect()) }
    }

    /// Adds one to the number at this place.
    #[inline]
    pub(super) fn add(&self, at: usize) {
        // A thread that ends has no set of its own any more.
        let set = SET.try_with(|set| *set).unwrap_or_default();
        if let Some(count) = self.sets.get(set).and_then(|set| set.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number at this place. What is added meanwhile may be missing.
    pub(super) fn at(&self, at: usize) -> u64 {
        self.sets.iter().filter_map(|set| set.get(at)).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_thread_adds_is_summed_up() {
        let counts = Counts::new(3);
        std::thread::scope(|scope| {
            for _ in 0..2 * SETS {
                scope.spawn(|| (0..1_000).for_each(|_| counts.add(1)));
            }
        });
        counts.add(3);
        assert_eq!([0, 1, 2, 3].map(|at| counts.at(at)), [0, 2_000 * SETS as u64, 0, 0]);
        let used = |set: &[AtomicU64]| set.iter().any(|count| count.load(Ordering::Relaxed) > 0);
        assert!(counts.sets.iter().filter(|set| used(set)).count() > 1, "more than one set is used");
    }
}
