//! The tickets that a server has given by which early data may come: each good once, and no longer than the certificate
//! behind it. Nodes have them for their users, proxies for those who come by QUIC.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sallyport_sal::tls::rustls::server::StoresServerSessions;
use time::OffsetDateTime;

/// About 2 KiB each.
const MOST: usize = 4096;

/// A server's tickets, in memory alone: one that was started anew knows none. What changes whom to believe or what is
/// locked needs another one of these ([`Tickets::renewed`]), so that the next client proves everything again.
#[derive(Default)]
pub struct Tickets {
    kept: Mutex<Kept>,
    taken: Arc<Mutex<Taken>>,
}

/// The names of tickets that were brought, the last few thousand: what was said early with one of them may have been done.
#[derive(Default)]
struct Taken {
    keys: HashSet<Vec<u8>>,
    order: VecDeque<Vec<u8>>,
}

impl Taken {
    /// Whether this is the first time that it is brought.
    fn add(&mut self, key: &[u8]) -> bool {
        if !self.keys.insert(key.to_vec()) {
            return false;
        }
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.order.push_back(key.to_vec());
        true
    }
}

#[derive(Default)]
struct Kept {
    by_key: HashMap<Vec<u8>, Entry>,
    /// Oldest first. One that was taken is here until its turn.
    order: VecDeque<Vec<u8>>,
}

struct Entry {
    value: Vec<u8>,
    until: OffsetDateTime,
    /// Where it was given to, where it is good from nowhere else.
    place: Option<IpAddr>,
}

impl Tickets {
    /// Others, with none to be used yet. What was brought to these stays known.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { kept: Mutex::default(), taken: Arc::clone(&self.taken) }
    }

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

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    fn put(&self, key: Vec<u8>, entry: Entry) {
        let mut kept = self.kept();
        while kept.order.len() >= MOST {
            if let Some(oldest) = kept.order.pop_front() {
                kept.by_key.remove(&oldest);
            }
        }
        kept.order.push_back(key.clone());
        kept.by_key.insert(key, entry);
    }

    /// Takes one out, and says whether it was brought before. One that comes too late, or from another place, is gone as
    /// well.
    fn take(&self, key: &[u8], now: OffsetDateTime, place: Option<IpAddr>) -> (Option<Entry>, bool) {
        let found = self.kept().by_key.remove(key).filter(|entry| now < entry.until && entry.place == place);
        let mut taken = self.taken.lock();
        // One that was never given, or was forgotten, does nothing and takes no room from those that did.
        let before = if found.is_some() { !taken.add(key) } else { taken.keys.contains(key) };
        (found, before)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("kept", &self.len()).finish()
    }
}

/// The tickets as one connection sees them: what it gives out counts only once its certificate was judged.
pub struct Counter {
    tickets: Arc<Tickets>,
    now: OffsetDateTime,
    place: Option<IpAddr>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    given: Given,
    /// The end of the ticket that was taken.
    taken: Option<OffsetDateTime>,
    /// One was brought that is not good.
    refused: bool,
    /// One was brought that was brought before.
    again: bool,
}

enum Given {
    /// How long they are good has not been said yet.
    Waiting(Vec<(Vec<u8>, Vec<u8>)>),
    Until(OffsetDateTime),
}

impl Default for Given {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

impl Counter {
    /// For a connection that begins now.
    #[must_use]
    pub fn new(tickets: Arc<Tickets>, now: OffsetDateTime) -> Self {
        Self { tickets, now, place: None, state: Mutex::default() }
    }

    /// The same where the client has not shown yet that it is where it says. Tickets that this connection gives are good
    /// from this address alone, and so are those that it takes: their handshake has shown that it is there.
    #[must_use]
    pub fn at(tickets: Arc<Tickets>, now: OffsetDateTime, place: IpAddr) -> Self {
        Self { place: Some(place), ..Self::new(tickets, now) }
    }

    fn give(&self, key: Vec<u8>, value: Vec<u8>, until: OffsetDateTime) {
        self.tickets.put(key, Entry { value, until, place: self.place });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What this connection gives out is good until then, and no longer than what it came with: however often a client comes
    /// back, a time comes when it proves itself in full.
    pub fn admit(&self, until: OffsetDateTime) {
        let mut state = self.state();
        let until = state.taken.map_or(until, |taken| taken.min(until));
        if let Given::Waiting(waiting) = std::mem::replace(&mut state.given, Given::Until(until)) {
            for (key, value) in waiting {
                self.give(key, value, until);
            }
        }
    }

    /// Whether a ticket was brought that is not, or no longer, good.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        self.state().refused
    }

    /// Whether a ticket was brought that was brought before: what was said early with it may have been done then.
    #[must_use]
    pub fn has_seen_before(&self) -> bool {
        self.state().again
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("tickets", &self.tickets).finish_non_exhaustive()
    }
}

impl StoresServerSessions for Counter {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        match &mut self.state().given {
            Given::Waiting(waiting) => waiting.push((key, value)),
            Given::Until(until) => self.give(key, value, *until),
        }
        true
    }

    /// A ticket that can be looked at without being used up could be used twice (RFC 8446 §8.1).
    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (taken, again) = self.tickets.take(key, self.now, self.place);
        let mut state = self.state();
        state.again |= again;
        match &taken {
            Some(entry) => state.taken = Some(entry.until),
            None => state.refused = true,
        }
        taken.map(|entry| entry.value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    fn entry(value: u8, until: OffsetDateTime) -> Entry {
        Entry { value: vec![value], until, place: None }
    }

    #[test]
    fn a_ticket_is_taken_once_and_in_time() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let tickets = Tickets::default();
        tickets.put(vec![1], entry(11, now + Duration::HOUR));
        tickets.put(vec![2], entry(22, now));
        let take = |key| tickets.take(&[key], now, None).0.map(|entry| entry.value);
        assert_eq!(take(1), Some(vec![11]));
        assert_eq!(take(1), None);
        assert_eq!(take(2), None);
        assert!(tickets.is_empty());
    }

    #[test]
    fn the_oldest_make_room() {
        let tickets = Tickets::default();
        let until = OffsetDateTime::UNIX_EPOCH + Duration::HOUR;
        for number in 0..=u32::try_from(MOST).unwrap_or(0) {
            tickets.put(number.to_be_bytes().to_vec(), entry(1, until));
        }
        assert_eq!(tickets.len(), MOST);
        assert!(tickets.take(&0_u32.to_be_bytes(), OffsetDateTime::UNIX_EPOCH, None).0.is_none());
        assert!(tickets.take(&1_u32.to_be_bytes(), OffsetDateTime::UNIX_EPOCH, None).0.is_some());
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

    #[test]
    fn who_comes_back_gets_no_tickets_that_outlive_the_one_that_it_came_with() {
        let tickets = Arc::new(Tickets::default());
        let now = OffsetDateTime::UNIX_EPOCH;
        tickets.put(vec![1], entry(11, now + Duration::MINUTE));
        let counter = Counter::new(Arc::clone(&tickets), now);
        assert_eq!(counter.take(&[1]), Some(vec![11]));
        assert!(!counter.has_refused());
        counter.admit(now + Duration::HOUR);
        counter.put(vec![2], vec![22]);
        let later = Counter::new(Arc::clone(&tickets), now + Duration::MINUTE);
        assert_eq!(later.take(&[2]), None);
        assert!(later.has_refused() && tickets.is_empty());
    }

    #[test]
    fn a_ticket_that_was_given_to_an_address_is_good_from_there_alone() {
        let tickets = Arc::new(Tickets::default());
        let now = OffsetDateTime::UNIX_EPOCH;
        let at = |last| Counter::at(Arc::clone(&tickets), now, IpAddr::from([192, 0, 2, last]));
        let give = || {
            let giving = at(1);
            giving.admit(now + Duration::HOUR);
            giving.put(vec![1], vec![11]);
        };
        give();
        assert_eq!(at(1).take(&[1]), Some(vec![11]));
        give();
        assert_eq!(at(2).take(&[1]), None);
        assert_eq!(at(1).take(&[1]), None, "it was taken");
        give();
        assert_eq!(Counter::new(Arc::clone(&tickets), now).take(&[1]), None);
    }

    #[test]
    fn a_ticket_that_was_brought_is_known_again_after_the_others_are_forgotten() {
        let tickets = Arc::new(Tickets::default());
        let now = OffsetDateTime::UNIX_EPOCH;
        let counter = |tickets: &Arc<Tickets>| Counter::new(Arc::clone(tickets), now);
        tickets.put(vec![1], entry(11, now + time::Duration::HOUR));
        let first = counter(&tickets);
        assert!(first.take(&[1]).is_some() && !first.has_seen_before());
        let renewed = Arc::new(tickets.renewed());
        for tickets in [&tickets, &renewed] {
            let again = counter(tickets);
            assert!(again.take(&[1]).is_none() && again.has_seen_before());
            // One that was never given is only unknown.
            let unknown = counter(tickets);
            assert!(unknown.take(&[2]).is_none() && !unknown.has_seen_before());
        }
        // What is remembered is bounded.
        for number in 0..=u32::try_from(MOST).unwrap() {
            let key = [&[9][..], &number.to_be_bytes()].concat();
            tickets.put(key.clone(), entry(0, now + time::Duration::HOUR));
            assert!(counter(&tickets).take(&key).is_some());
        }
        assert_eq!(tickets.taken.lock().keys.len(), MOST);
        assert!(!counter(&tickets).has_seen_before());
    }
}
