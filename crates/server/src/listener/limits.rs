//! How many connections may be open, in all and from one place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::places::{Bounded, Place, WIDER};

/// Handshakes of one place that may come to nothing in a minute; further connections have to wait for the next one.
const FAULTS: usize = 300;
const MINUTE: Duration = Duration::from_secs(60);
/// Places at fault that are remembered.
const REMEMBERED: usize = 20_000;

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

/// Handshakes that came to nothing, by place: nobody proved who they are, in TLS, SSH or PostgreSQL's way in.
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
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, _) in places(address) {
            let (found, _) = table.touch(&place, || (now, 0));
            if now.saturating_duration_since(found.0) >= MINUTE {
                *found = (now, 0);
            }
            found.1 = found.1.saturating_add(1);
        }
    }

    fn is_barred(&self, address: IpAddr, now: Instant) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    /// Only places that have a connection: never more than twice the total.
    by_place: HashMap<Place, usize>,
}

/// Counts open connections.
#[derive(Debug, Clone)]
pub(crate) struct Limiter {
    counts: Arc<Mutex<Counts>>,
    faults: Faults,
    total: usize,
    per_address: usize,
}

impl Limiter {
    pub(crate) fn new(total: usize, per_address: usize) -> Self {
        Self { counts: Arc::default(), faults: Faults::default(), total, per_address }
    }

    /// Where handshakes that come to nothing are counted.
    pub(crate) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Takes a slot, given back when the [`Slot`] is dropped.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<Slot, Full> {
        if self.faults.is_barred(address, Instant::now()) {
            return Err(Full::Faults);
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
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
        Ok(Slot { counts: Arc::clone(&self.counts), address })
    }
}

/// One admitted connection.
#[derive(Debug)]
pub(crate) struct Slot {
    counts: Arc<Mutex<Counts>>,
    address: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total = counts.total.saturating_sub(1);
        for (place, _) in places(self.address) {
            if let Some(here) = counts.by_place.get_mut(&place) {
                *here = here.saturating_sub(1);
                if *here == 0 {
                    counts.by_place.remove(&place);
                }
            }
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
        let limiter = Limiter::new(3, 2);
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
        let limiter = Limiter::new(10, 10);
        drop(limiter.admit("192.0.2.1".parse().unwrap()).unwrap());
        drop(limiter.admit(ip("2001:db8::1")).unwrap());
        assert!(limiter.counts.lock().unwrap().by_place.is_empty());
    }

    #[test]
    fn a_site_of_ipv6_does_not_take_the_whole_listener() {
        let limiter = Limiter::new(1_000, 10);
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
        let limiter = Limiter::new(1_000, 1_000);
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
}
