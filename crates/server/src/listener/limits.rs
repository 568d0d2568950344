//! How many connections may be open: in all, from one place, and of one user.
//!
//! A connection counts for its address until it is known who is at its other end, and from then on for that user: what one
//! user has takes nothing from others behind the same address, and their machines' agents come in beside them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;
use parking_lot::Mutex;
use sallyport_access::UserName;

use crate::places::{Bounded, Place, WIDER};

/// Handshakes of one place that may come to nothing in a minute; further connections have to wait for the next one.
const FAULTS: usize = 300;
const MINUTE: Duration = Duration::from_secs(60);
/// Places at fault that are remembered.
const REMEMBERED: usize = 20_000;
/// Connections of one user past the bound that are told so at a time. More are closed without a word.
const TOLD: usize = 16;

/// Why a connection was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The listener has as many as it may have.
    Total,
    /// This address has as many as one may have, or the network around it.
    Address,
    /// Too many handshakes from this address, or the network around it, came to nothing.
    Faults,
}

impl Full {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Address => "address",
            Self::Faults => "faults",
        }
    }
}

/// Failed handshakes, by place: the client did not prove who it is, in TLS, SSH or PostgreSQL's way in.
#[derive(Debug, Clone)]
pub(crate) struct Faults(Arc<Mutex<Bounded<Place, (Instant, usize)>>>);

impl Default for Faults {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Bounded::new(REMEMBERED))))
    }
}

impl Faults {
    /// Counts one. This machine's own programs, such as those that look whether the port is open, are not held to account.
    pub(crate) fn note(&self, address: IpAddr, now: Instant) {
        if address.to_canonical().is_loopback() {
            return;
        }
        let mut table = self.0.lock();
        for (place, _) in places(address) {
            let (found, _) = table.touch(&place, || (now, 0));
            if now.saturating_duration_since(found.0) >= MINUTE {
                *found = (now, 0);
            }
            found.1 = found.1.saturating_add(1);
        }
    }

    fn is_barred(&self, address: IpAddr, now: Instant) -> bool {
        let table = self.0.lock();
        places(address).any(|(place, times)| {
            table.get(&place).is_some_and(|(since, count)| {
                *count >= FAULTS * times && now.saturating_duration_since(*since) < MINUTE
            })
        })
    }
}

/// The places of an address, with how much each may as a multiple of one place's part.
fn places(address: IpAddr) -> impl Iterator<Item = (Place, usize)> {
    std::iter::once((Place::of(address), 1)).chain(Place::around(address).map(|around| (around, WIDER)))
}

/// A user has as many connections as one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded {
    /// The bound.
    pub(crate) bound: usize,
    /// Whether the user may be told on this connection; it counts for as long as it is open.
    pub(crate) tell: bool,
    /// How many there were since the last time that it was put on record, where it is time to do so again.
    pub(crate) record: Option<usize>,
}

impl Crowded {
    /// What the user reads.
    pub(crate) fn message(self) -> String {
        format!(
            "you have {} connections to this proxy, as many as one user may have (proxy.limits.connections_per_user)",
            self.bound
        )
    }
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    /// Only places that have a connection: never more than twice the total.
    by_place: HashMap<Place, usize>,
    /// Only users who have one.
    by_user: HashMap<UserName, Theirs>,
}

/// Connections of one user.
#[derive(Debug, Default)]
struct Theirs {
    open: usize,
    /// Those too many that are not on record yet, and when the last one was.
    unrecorded: usize,
    recorded: Option<Instant>,
}

impl Theirs {
    /// Counts one too many.
    fn crowd(&mut self, now: Instant) -> Option<usize> {
        self.unrecorded += 1;
        let is_time = self.recorded.is_none_or(|last| now.saturating_duration_since(last) >= MINUTE);
        is_time.then(|| {
            self.recorded = Some(now);
            std::mem::take(&mut self.unrecorded)
        })
    }
}

impl Counts {
    fn leave_places(&mut self, address: IpAddr) {
        for (place, _) in places(address) {
            if let Some(here) = self.by_place.get_mut(&place) {
                *here = here.saturating_sub(1);
                if *here == 0 {
                    self.by_place.remove(&place);
                }
            }
        }
    }

    fn leave_user(&mut self, user: &UserName) {
        if let Some(theirs) = self.by_user.get_mut(user) {
            theirs.open = theirs.open.saturating_sub(1);
            if theirs.open == 0 {
                self.by_user.remove(user);
            }
        }
    }
}

/// Counts open connections.
#[derive(Debug, Clone)]
pub(crate) struct Limiter {
    counts: Arc<Mutex<Counts>>,
    faults: Faults,
    total: usize,
    per_address: usize,
    per_user: usize,
}

impl Limiter {
    pub(crate) fn new(total: usize, per_address: usize, per_user: usize) -> Self {
        Self { counts: Arc::default(), faults: Faults::default(), total, per_address, per_user }
    }

    /// Where handshakes that come to nothing are counted.
    pub(crate) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Connections of a user.
    #[cfg(test)]
    pub(crate) fn of_user(&self, user: &str) -> usize {
        let counts = self.counts.lock();
        counts.by_user.iter().find(|(name, _)| name.as_str() == user).map_or(0, |(_, theirs)| theirs.open)
    }

    /// Takes a slot, given back when the [`Slot`] is dropped.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<Slot, Full> {
        if self.faults.is_barred(address, Instant::now()) {
            return Err(Full::Faults);
        }
        let mut counts = self.counts.lock();
        if counts.total >= self.total {
            return Err(Full::Total);
        }
        for (place, times) in places(address) {
            let here = counts.by_place.get(&place).copied().unwrap_or(0);
            if here >= self.per_address.saturating_mul(times) {
                return Err(Full::Address);
            }
        }
        for (place, _) in places(address) {
            *counts.by_place.entry(place).or_insert(0) += 1;
        }
        counts.total += 1;
        let whose = Mutex::new(Whose::Address(address));
        Ok(Slot { counts: Arc::clone(&self.counts), whose, per_user: self.per_user })
    }
}

/// For whom a connection counts beside the total.
#[derive(Debug)]
enum Whose {
    /// The client has not proven who it is.
    Address(IpAddr),
    /// With what was said to that.
    User(UserName, Result<(), Crowded>),
    /// A host has a bound of its own for its tunnels.
    Host,
}

/// One admitted connection.
#[derive(Debug)]
pub(crate) struct Slot {
    counts: Arc<Mutex<Counts>>,
    whose: Mutex<Whose>,
    per_user: usize,
}

impl Slot {
    /// This user is at the other end: the connection counts for the user from now on and no longer for its address, also
    /// where it is one too many.
    pub(crate) fn prove(&self, user: &UserName) -> Result<(), Crowded> {
        let mut whose = self.whose.lock();
        let mut counts = self.counts.lock();
        let address = match *whose {
            Whose::Address(address) => address,
            Whose::User(_, said) => return said,
            Whose::Host => return Ok(()),
        };
        counts.leave_places(address);
        let theirs = counts.by_user.entry(user.clone()).or_default();
        let before = theirs.open;
        theirs.open += 1;
        let said = match before < self.per_user {
            true => Ok(()),
            false => {
                counter!("sallyport_connections_refused_total", "reason" => "user").increment(1);
                let tell = before < self.per_user.saturating_add(TOLD);
                Err(Crowded { bound: self.per_user, tell, record: theirs.crowd(Instant::now()) })
            }
        };
        *whose = Whose::User(user.clone(), said);
        said
    }

    /// A host whose tunnel is served is at the other end: the connection counts no longer for its address.
    pub(crate) fn prove_host(&self) {
        let mut whose = self.whose.lock();
        if let Whose::Address(address) = *whose {
            self.counts.lock().leave_places(address);
            *whose = Whose::Host;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let whose = self.whose.get_mut();
        let mut counts = self.counts.lock();
        counts.total = counts.total.saturating_sub(1);
        match whose {
            Whose::Address(address) => counts.leave_places(*address),
            Whose::User(user, _) => counts.leave_user(user),
            Whose::Host => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn slots_are_bounded_and_come_back() {
        let limiter = Limiter::new(3, 2, 2);
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let two: IpAddr = "192.0.2.2".parse().unwrap();
        let first = limiter.admit(one).unwrap();
        let _second = limiter.admit(one).unwrap();
        assert_eq!(limiter.admit(one).unwrap_err(), Full::Address);
        let _third = limiter.admit(two).unwrap();
        assert_eq!(limiter.admit(two).unwrap_err(), Full::Total);
        drop(first);
        assert!(limiter.admit(one).is_ok());
    }

    #[test]
    fn nothing_is_remembered_of_addresses_that_left() {
        let limiter = Limiter::new(10, 10, 10);
        drop(limiter.admit("192.0.2.1".parse().unwrap()).unwrap());
        drop(limiter.admit(ip("2001:db8::1")).unwrap());
        let proven = limiter.admit("192.0.2.1".parse().unwrap()).unwrap();
        proven.prove(&UserName::new("alice").unwrap()).unwrap();
        drop(proven);
        let counts = limiter.counts.lock();
        assert!(counts.by_place.is_empty() && counts.by_user.is_empty());
    }

    #[test]
    fn who_is_proven_counts_for_oneself_and_no_longer_for_the_address() {
        let limiter = Limiter::new(1_000, 3, 5);
        let (office, alice) = (ip("192.0.2.1"), UserName::new("alice").unwrap());
        let prove = |user: &UserName| {
            let slot = limiter.admit(office).unwrap();
            let proven = slot.prove(user);
            (slot, proven)
        };
        let mut hers: Vec<_> = (0..5).map(|_| prove(&alice)).collect();
        assert!(hers.iter().all(|(_, proven)| proven.is_ok()));
        // A few are told that they are too many, and those that follow are not; none of them is in the way of others.
        hers.extend((0..TOLD + 1).map(|_| prove(&alice)));
        let (last, told) = (hers.pop().unwrap(), hers.split_off(5));
        let crowded = |proven: &Result<(), Crowded>| proven.unwrap_err();
        assert!(told.iter().all(|(_, proven)| crowded(proven).tell && crowded(proven).bound == 5));
        assert_eq!(last.1, Err(Crowded { bound: 5, tell: false, record: None }));
        // Once a minute it is put on record, with how many there were.
        let recorded: Vec<_> = told.iter().map(|(_, proven)| crowded(proven).record).collect();
        assert_eq!((recorded[0], recorded[1..].iter().flatten().count()), (Some(1), 0));
        assert!(prove(&UserName::new("bob").unwrap()).1.is_ok());
        drop((last, told));
        assert!(prove(&alice).1.is_err());
        hers.pop();
        assert!(prove(&alice).1.is_ok());
        // Strangers have the address's part, and tunnels of hosts none of it.
        let tunnels: Vec<_> =
            (0..9).map(|_| limiter.admit(office).unwrap()).inspect(Slot::prove_host).collect();
        let strangers: Vec<_> = (0..3).map(|_| limiter.admit(office).unwrap()).collect();
        assert_eq!(limiter.admit(office).unwrap_err(), Full::Address);
        drop((tunnels, strangers));
        assert!(limiter.admit(office).is_ok());
    }

    #[test]
    fn a_site_of_ipv6_does_not_take_the_whole_listener() {
        let limiter = Limiter::new(1_000, 10, 10);
        let mut slots = Vec::new();
        // Each from a subscriber of its own.
        let refused = loop {
            match limiter.admit(ip(&format!("2001:db8:1:{:x}::1", slots.len()))) {
                Ok(slot) => slots.push(slot),
                Err(full) => break full,
            }
        };
        assert_eq!((slots.len(), refused), (10 * WIDER, Full::Address));
        assert!(limiter.admit(ip("2001:db8:2::1")).is_ok());
        slots.pop();
        assert!(limiter.admit(ip("2001:db8:1:ffff::1")).is_ok());
    }

    #[test]
    fn handshakes_that_come_to_nothing_have_a_bound() {
        let limiter = Limiter::new(1_000, 1_000, 10);
        let (faults, now) = (limiter.faults(), Instant::now());
        for number in 0..FAULTS {
            assert!(limiter.admit(ip("2001:db8:1:2:ffff::1")).is_ok());
            faults.note(ip(&format!("2001:db8:1:2::{number:x}")), now);
            faults.note(ip("127.0.0.1"), now);
        }
        assert_eq!(limiter.admit(ip("2001:db8:1:2:ffff::1")).unwrap_err(), Full::Faults);
        assert!(limiter.admit(ip("2001:db8:1:3::1")).is_ok());
        assert!(limiter.admit(ip("127.0.0.1")).is_ok());
        assert!(!faults.is_barred(ip("2001:db8:1:2::1"), now + MINUTE));
    }

    #[test]
    fn a_user_with_too_many_is_on_record_once_a_minute() {
        let (mut theirs, now) = (Theirs::default(), Instant::now());
        let said: Vec<_> = (0..4).map(|_| theirs.crowd(now)).collect();
        assert_eq!(said, [Some(1), None, None, None]);
        assert_eq!(theirs.crowd(now + MINUTE), Some(4));
    }
}
