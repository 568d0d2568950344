//! How many connections may be open, in all and from one place.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a connection was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The listener has as many as it may have.
    Total,
    /// This address has as many as one may have.
    Address,
}

impl Full {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Address => "address",
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_place: HashMap<IpAddr, usize>,
}

/// Counts open connections.
#[derive(Debug, Clone)]
pub(crate) struct Limiter {
    counts: Arc<Mutex<Counts>>,
    total: usize,
    per_address: usize,
}

impl Limiter {
    pub(crate) fn new(total: usize, per_address: usize) -> Self {
        Self { counts: Arc::default(), total, per_address }
    }

    /// Takes a slot, given back when the [`Slot`] is dropped.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<Slot, Full> {
        let place = place(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= self.total {
            return Err(Full::Total);
        }
        let here = counts.by_place.entry(place).or_insert(0);
        if *here >= self.per_address {
            return Err(Full::Address);
        }
        *here += 1;
        counts.total += 1;
        Ok(Slot { counts: Arc::clone(&self.counts), place })
    }
}

/// One admitted connection.
#[derive(Debug)]
pub(crate) struct Slot {
    counts: Arc<Mutex<Counts>>,
    place: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total = counts.total.saturating_sub(1);
        if let Some(here) = counts.by_place.get_mut(&self.place) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                counts.by_place.remove(&self.place);
            }
        }
    }
}

/// One subscriber gets a /64 of IPv6, so that is what counts as one address there (RFC 6177 §2).
fn place(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(limiter.counts.lock().unwrap().by_place.is_empty());
    }

    #[test]
    fn an_ipv6_subscriber_is_one_place() {
        let parse = |text: &str| place(text.parse().unwrap());
        assert_eq!(parse("2001:db8:1:2:3:4:5:6"), parse("2001:db8:1:2::1"));
        assert_ne!(parse("2001:db8:1:2::1"), parse("2001:db8:1:3::1"));
        assert_eq!(parse("::ffff:192.0.2.1"), parse("192.0.2.1"));
    }
}
