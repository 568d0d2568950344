//! Keys made ahead of need.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{KeyAlgorithm, KeyPurpose, MemoryKey, SalError};

/// Keys made ahead of need, where making them is slow: RSA takes tens of milliseconds, and more the longer its modulus.
/// All other keys are made on the spot, in microseconds, and never pooled.
///
/// One thread of the lowest priority that the system has fills the pool, and only while there is something to fill. Who
/// needs a key never waits for that thread: [`KeyPool::take`] gives one that is ready, or makes one at once.
///
/// Keys that were not taken are wiped when the pool goes, or when it is told that they are not wanted any more.
pub struct KeyPool {
    shared: Arc<Shared>,
}

/// How many keys are kept ready for each purpose. At least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity(pub usize);

impl Default for Capacity {
    /// 8: a burst of logins or renewals of a small cluster, and about half a second of one core to fill for RSA-2048.
    fn default() -> Self {
        Self(8)
    }
}

/// Where a key came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It was ready.
    Pool,
    /// It was made when it was asked for.
    OnDemand,
}

/// A key for the caller.
#[derive(Debug)]
pub struct Taken {
    /// The key.
    pub key: MemoryKey,
    /// Where it came from.
    pub source: Source,
}

/// What the pool did for one purpose and type of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCount {
    /// What the keys are for.
    pub purpose: KeyPurpose,
    /// Their type.
    pub algorithm: KeyAlgorithm,
    /// Keys that are ready now.
    pub ready: usize,
    /// Keys that are kept ready; 0 for types that are quick to make, and for what is not wanted any more.
    pub capacity: usize,
    /// Keys taken that were ready.
    pub from_pool: u64,
    /// Keys made when they were asked for.
    pub on_demand: u64,
}

impl KeyPool {
    /// An empty pool, which makes nothing before [`KeyPool::keep`].
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        Self::making(capacity, MemoryKey::generate_for)
    }

    fn making(capacity: Capacity, make: Make) -> Self {
        Self {
            shared: Arc::new(Shared {
                capacity: capacity.0.max(1),
                make,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    /// Keeps keys of these types ready for these purposes from now on, and no others: keys of a purpose whose type
    /// changed, and of purposes that are not listed, are wiped. Types that are quick to make may be listed.
    pub fn keep(&self, wanted: &[(KeyPurpose, KeyAlgorithm)]) {
        let mut state = self.shared.lock();
        for shelf in &mut state.shelves {
            shelf.wanted = false;
        }
        for (purpose, algorithm) in wanted.iter().copied().filter(|(_, algorithm)| is_slow(*algorithm)) {
            let shelf = state.shelf(purpose, algorithm);
            (shelf.wanted, shelf.failed) = (true, false);
        }
        let dropped: Vec<_> = state
            .shelves
            .iter_mut()
            .filter(|shelf| !shelf.wanted)
            .map(|shelf| std::mem::take(&mut shelf.ready))
            .collect();
        self.start_filling(state);
        // Wiping is quick, but no caller has to wait for it.
        drop(dropped);
    }

    /// A key, ready or made at once. The second takes as long as it takes: tens of milliseconds for RSA-2048, on this
    /// thread.
    ///
    /// # Errors
    /// As [`MemoryKey::generate`].
    pub fn take(&self, purpose: KeyPurpose, algorithm: KeyAlgorithm) -> Result<Taken, SalError> {
        let mut state = self.shared.lock();
        let shelf = state.shelf(purpose, algorithm);
        if let Some(key) = shelf.ready.pop_front() {
            shelf.from_pool += 1;
            self.start_filling(state);
            return Ok(Taken { key, source: Source::Pool });
        }
        shelf.on_demand += 1;
        drop(state);
        Ok(Taken { key: MemoryKey::generate_for(purpose, algorithm)?, source: Source::OnDemand })
    }

    /// What the pool did, for every purpose and type of key that it was ever asked about.
    #[must_use]
    pub fn counts(&self) -> Vec<PoolCount> {
        let state = self.shared.lock();
        let capacity = |shelf: &Shelf| if shelf.wanted { self.shared.capacity } else { 0 };
        let count = |shelf: &Shelf| PoolCount {
            purpose: shelf.purpose,
            algorithm: shelf.algorithm,
            ready: shelf.ready.len(),
            capacity: capacity(shelf),
            from_pool: shelf.from_pool,
            on_demand: shelf.on_demand,
        };
        state.shelves.iter().map(count).collect()
    }

    fn start_filling(&self, mut state: MutexGuard<'_, State>) {
        if state.next(self.shared.capacity).is_none() {
            return;
        }
        if state.filling {
            self.shared.changed.notify_one();
            return;
        }
        let shared = Arc::clone(&self.shared);
        // Without a thread the pool stays empty, and keys are made when they are asked for.
        state.filling =
            thread::Builder::new().name("key-pool".to_owned()).spawn(move || fill(&shared)).is_ok();
    }
}

impl Default for KeyPool {
    fn default() -> Self {
        Self::new(Capacity::default())
    }
}

impl Drop for KeyPool {
    fn drop(&mut self) {
        // The thread may be in the middle of a key: it goes after that, and is not waited for.
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for KeyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPool").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Whether a key of this type is worth making ahead.
fn is_slow(algorithm: KeyAlgorithm) -> bool {
    algorithm.modulus_bits().is_some()
}

/// How a key is made ahead of need.
type Make = fn(KeyPurpose, KeyAlgorithm) -> Result<MemoryKey, SalError>;

struct Shared {
    capacity: usize,
    make: Make,
    state: Mutex<State>,
    /// There is something to fill, or nothing to live for.
    changed: Condvar,
}

impl Shared {
    /// Nothing panics while it holds this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[derive(Default)]
struct State {
    shelves: Vec<Shelf>,
    filling: bool,
    closed: bool,
}

/// The keys of one purpose and type.
struct Shelf {
    purpose: KeyPurpose,
    algorithm: KeyAlgorithm,
    wanted: bool,
    /// No source could make such a key; asking again and again would only burn time. Until the next `keep`.
    failed: bool,
    ready: VecDeque<MemoryKey>,
    from_pool: u64,
    on_demand: u64,
}

impl State {
    fn shelf(&mut self, purpose: KeyPurpose, algorithm: KeyAlgorithm) -> &mut Shelf {
        let of = |shelf: &Shelf| shelf.purpose == purpose && shelf.algorithm == algorithm;
        let at = self.shelves.iter().position(of).unwrap_or(self.shelves.len());
        if at == self.shelves.len() {
            self.shelves.push(Shelf {
                purpose,
                algorithm,
                wanted: false,
                failed: false,
                ready: VecDeque::new(),
                from_pool: 0,
                on_demand: 0,
            });
        }
        // It was found, or just put there.
        #[expect(clippy::indexing_slicing, reason = "the position is below the length")]
        &mut self.shelves[at]
    }

    /// What to make next: the emptiest shelf comes first, so that every purpose soon has a key.
    fn next(&self, capacity: usize) -> Option<(KeyPurpose, KeyAlgorithm)> {
        self.shelves
            .iter()
            .filter(|shelf| shelf.wanted && !shelf.failed && shelf.ready.len() < capacity)
            .min_by_key(|shelf| shelf.ready.len())
            .map(|shelf| (shelf.purpose, shelf.algorithm))
    }
}

/// The thread: makes what is missing, one key at a time, and sleeps when nothing is.
fn fill(shared: &Shared) {
    // On Linux a priority belongs to a thread; elsewhere this would slow the whole process down. Where it is not
    // allowed, the keys are made at the priority of everything else.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
    let mut state = shared.lock();
    while !state.closed {
        let Some((purpose, algorithm)) = state.next(shared.capacity) else {
            shared.changed.wait(&mut state);
            continue;
        };
        drop(state);
        let made = (shared.make)(purpose, algorithm);
        state = shared.lock();
        let shelf = state.shelf(purpose, algorithm);
        match made {
            // What was wanted a moment ago may not be any more: the key is wiped here.
            Ok(key) if shelf.wanted => shelf.ready.push_back(key),
            Ok(_) => {}
            Err(_) => shelf.failed = true,
        }
    }
}

/// The highest "nice" value.
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use std::cell::Cell;
    use std::sync::{LazyLock, Weak};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Signer;

    const SSH: (KeyPurpose, KeyAlgorithm) = (KeyPurpose::HostSsh, KeyAlgorithm::Rsa2048);
    const TLS: (KeyPurpose, KeyAlgorithm) = (KeyPurpose::HostTls, KeyAlgorithm::Rsa2048);

    /// A loaded machine may take its time over what has the lowest priority.
    fn soon(what: &str, mut done: impl FnMut() -> bool) {
        let started = Instant::now();
        while !done() {
            assert!(started.elapsed() < Duration::from_secs(120), "{what} did not come about");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes no key, which may take the thread of the lowest priority half a minute, but gives one of those that were made
    /// before; three that follow each other differ.
    fn ready(_: KeyPurpose, algorithm: KeyAlgorithm) -> Result<MemoryKey, SalError> {
        thread_local! {
            // Each pool has a thread of its own.
            static NEXT: Cell<usize> = const { Cell::new(0) };
        }
        let fitting: Vec<_> = READY.iter().filter(|key| key.algorithm() == algorithm).collect();
        let key = fitting[NEXT.replace(NEXT.get() + 1) % fitting.len()];
        MemoryKey::from_material(key.material().clone())
    }

    static READY: LazyLock<[MemoryKey; 4]> = LazyLock::new(|| {
        [KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa3072]
            .map(|algorithm| MemoryKey::generate(algorithm).unwrap())
    });

    /// A pool of such keys.
    fn pool_of_ready(capacity: usize) -> KeyPool {
        LazyLock::force(&READY);
        KeyPool::making(Capacity(capacity), ready)
    }

    fn count(pool: &KeyPool, (purpose, algorithm): (KeyPurpose, KeyAlgorithm)) -> PoolCount {
        let counts = pool.counts();
        *counts.iter().find(|count| (count.purpose, count.algorithm) == (purpose, algorithm)).unwrap()
    }

    #[test]
    fn slow_keys_are_ready_when_they_are_asked_for() {
        let pool = pool_of_ready(2);
        pool.keep(&[SSH, TLS]);
        soon("a full pool", || count(&pool, SSH).ready == 2 && count(&pool, TLS).ready == 2);
        let one = pool.take(SSH.0, SSH.1).unwrap();
        let two = pool.take(SSH.0, SSH.1).unwrap();
        assert_eq!((one.source, two.source), (Source::Pool, Source::Pool));
        assert_eq!(one.key.algorithm(), KeyAlgorithm::Rsa2048);
        assert_ne!(one.key.public_key(), two.key.public_key());
        let found = count(&pool, SSH);
        assert_eq!((found.capacity, found.from_pool, found.on_demand), (2, 2, 0));
        soon("a refilled pool", || count(&pool, SSH).ready == 2);
        assert_eq!(count(&pool, TLS).ready, 2);
    }

    #[test]
    fn an_empty_pool_makes_keys_at_once() {
        let pool = KeyPool::default();
        let taken = pool.take(SSH.0, SSH.1).unwrap();
        assert_eq!(taken.source, Source::OnDemand);
        let found = count(&pool, SSH);
        assert_eq!((found.ready, found.capacity, found.from_pool, found.on_demand), (0, 0, 0, 1));
    }

    #[test]
    fn quick_keys_are_never_kept() {
        let pool = KeyPool::default();
        let quick =
            [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384, KeyAlgorithm::MlDsa65];
        pool.keep(&quick.map(|algorithm| (KeyPurpose::UserSsh, algorithm)));
        assert!(!pool.shared.lock().filling);
        for algorithm in quick {
            let taken = pool.take(KeyPurpose::UserSsh, algorithm).unwrap();
            assert_eq!((taken.source, taken.key.algorithm()), (Source::OnDemand, algorithm));
            assert_eq!(count(&pool, (KeyPurpose::UserSsh, algorithm)).capacity, 0);
        }
        assert!(!pool.shared.lock().filling);
    }

    #[test]
    fn a_change_of_the_suite_drops_what_the_old_one_wanted() {
        let pool = pool_of_ready(1);
        pool.keep(&[SSH, TLS]);
        soon("a full pool", || count(&pool, SSH).ready == 1 && count(&pool, TLS).ready == 1);
        let longer = (SSH.0, KeyAlgorithm::Rsa3072);
        pool.keep(&[longer, (TLS.0, KeyAlgorithm::EcdsaP256)]);
        assert_eq!((count(&pool, SSH).ready, count(&pool, SSH).capacity), (0, 0));
        assert_eq!((count(&pool, TLS).ready, count(&pool, TLS).capacity), (0, 0));
        soon("keys of the new type", || count(&pool, longer).ready == 1);
        let taken = pool.take(longer.0, longer.1).unwrap();
        assert_eq!((taken.source, taken.key.algorithm()), (Source::Pool, KeyAlgorithm::Rsa3072));
        pool.keep(&[]);
        soon("an idle pool", || pool.counts().iter().all(|count| count.ready == 0 && count.capacity == 0));
    }

    #[test]
    fn what_nobody_can_make_is_tried_once() {
        let pool = KeyPool::default();
        let never = (KeyPurpose::HostSsh, KeyAlgorithm::Rsa1024);
        pool.keep(&[never]);
        soon("a try", || pool.shared.lock().shelves.iter().all(|shelf| shelf.failed));
        assert!(pool.take(never.0, never.1).is_err());
        assert_eq!(count(&pool, never).ready, 0);
    }

    #[test]
    fn the_thread_ends_with_the_pool() {
        let pool = KeyPool::default();
        pool.keep(&[SSH]);
        let shared: Weak<Shared> = Arc::downgrade(&pool.shared);
        drop(pool);
        soon("the end of the thread", || shared.upgrade().is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_filled_at_the_lowest_priority_and_nothing_else_is() {
        let pool = KeyPool::new(Capacity(1));
        pool.keep(&[SSH]);
        soon("a key", || count(&pool, SSH).ready == 1);
        // proc(5): the name is in parentheses; "nice" is the 19th field, the 17th after it.
        let nice = |stat: &str| -> i32 {
            let fields = stat.rsplit_once(')').unwrap().1;
            fields.split_whitespace().nth(16).unwrap().parse().unwrap()
        };
        let mut found = 0;
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let Ok(stat) = std::fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
            if stat.contains("(key-pool)") {
                found += 1;
                assert_eq!(nice(&stat), LOWEST_PRIORITY, "{stat}");
            }
        }
        assert!(found > 0);
        let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert_ne!(nice(&own), LOWEST_PRIORITY, "{own}");
    }
}
