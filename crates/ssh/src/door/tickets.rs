//! The tickets that a node has given: each good once, and no longer than the certificate behind it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use sallyport_sal::tls::rustls::server::StoresServerSessions;
use time::OffsetDateTime;

/// About 2 KiB each.
const MOST: usize = 4096;

/// A node's tickets, in memory alone: a node that was started anew knows none. What changes whom to believe or what is
/// locked needs another one of these, so that whoever comes next proves everything again.
#[derive(Default)]
pub struct Tickets(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_key: HashMap<Vec<u8>, Entry>,
    /// Oldest first. One that was taken is here until its turn.
    order: VecDeque<Vec<u8>>,
}

struct Entry {
    value: Vec<u8>,
    until: OffsetDateTime,
}

impl Tickets {
    /// How many can still be used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept().by_key.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>, until: OffsetDateTime) {
        let mut kept = self.kept();
        while kept.order.len() >= MOST {
            if let Some(oldest) = kept.order.pop_front() {
                kept.by_key.remove(&oldest);
            }
        }
        kept.order.push_back(key.clone());
        kept.by_key.insert(key, Entry { value, until });
    }

    fn take(&self, key: &[u8], now: OffsetDateTime) -> Option<Vec<u8>> {
        let entry = self.kept().by_key.remove(key)?;
        (now < entry.until).then_some(entry.value)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("kept", &self.len()).finish()
    }
}

/// The tickets as one connection sees them: what it gives out counts only once its certificate was judged.
pub(super) struct Counter {
    tickets: Arc<Tickets>,
    now: OffsetDateTime,
    given: Mutex<Given>,
}

enum Given {
    /// Nobody has said yet how long they are good.
    Waiting(Vec<(Vec<u8>, Vec<u8>)>),
    Until(OffsetDateTime),
}

impl Counter {
    pub(super) fn new(tickets: Arc<Tickets>, now: OffsetDateTime) -> Self {
        Self { tickets, now, given: Mutex::new(Given::Waiting(Vec::new())) }
    }

    /// What this connection gives out is good until then.
    pub(super) fn admit(&self, until: OffsetDateTime) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Given::Waiting(waiting) = std::mem::replace(&mut *given, Given::Until(until)) {
            for (key, value) in waiting {
                self.tickets.put(key, value, until);
            }
        }
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("tickets", &self.tickets).finish_non_exhaustive()
    }
}

impl StoresServerSessions for Counter {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *given {
            Given::Waiting(waiting) => waiting.push((key, value)),
            Given::Until(until) => self.tickets.put(key, value, *until),
        }
        true
    }

    /// A ticket that can be looked at without being used up could be used twice (RFC 8446 §8.1).
    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.tickets.take(key, self.now)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    #[test]
    fn a_ticket_is_taken_once_and_in_time() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let tickets = Tickets::default();
        tickets.put(vec![1], vec![11], now + Duration::HOUR);
        tickets.put(vec![2], vec![22], now);
        assert_eq!(tickets.take(&[1], now), Some(vec![11]));
        assert_eq!(tickets.take(&[1], now), None);
        assert_eq!(tickets.take(&[2], now), None);
        assert!(tickets.is_empty());
    }

    #[test]
    fn the_oldest_make_room() {
        let tickets = Tickets::default();
        let until = OffsetDateTime::UNIX_EPOCH + Duration::HOUR;
        for number in 0..=u32::try_from(MOST).unwrap_or(0) {
            tickets.put(number.to_be_bytes().to_vec(), vec![1], until);
        }
        assert_eq!(tickets.len(), MOST);
        assert_eq!(tickets.take(&0_u32.to_be_bytes(), OffsetDateTime::UNIX_EPOCH), None);
        assert!(tickets.take(&1_u32.to_be_bytes(), OffsetDateTime::UNIX_EPOCH).is_some());
    }

    #[test]
    fn what_was_given_before_the_judgement_counts_after_it() {
        let tickets = Arc::new(Tickets::default());
        let now = OffsetDateTime::UNIX_EPOCH;
        let counter = Counter::new(Arc::clone(&tickets), now);
        assert!(counter.put(vec![1], vec![11]));
        assert!(tickets.is_empty());
        counter.admit(now + Duration::HOUR);
        assert!(counter.put(vec![2], vec![22]));
        assert_eq!(tickets.len(), 2);
        assert_eq!(counter.get(&[1]), None);
        assert_eq!(counter.take(&[1]), Some(vec![11]));
        drop(Counter::new(Arc::clone(&tickets), now));
        assert_eq!(tickets.len(), 1);
    }
}
