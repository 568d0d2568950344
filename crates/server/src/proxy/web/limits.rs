//! How many calls pages may make: at a time, and in a minute from one place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::answer::Refused;
use crate::places::{Bounded, Place, WIDER};

/// Calls of one place in a minute. A login takes three, and an office behind one address has some dozens in its busiest minute.
pub(in crate::proxy) const IN_A_MINUTE: usize = 240;
/// Calls of one place at a time.
pub(super) const AT_A_TIME: usize = 16;
/// Calls of all places at a time: each holds a body of 160 KiB at the most.
const IN_ALL: usize = 256;
/// Places whose calls are counted.
const REMEMBERED: usize = 20_000;
const MINUTE: Duration = Duration::from_secs(60);

/// How many calls there may be.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct Bounds {
    /// Of one place in a minute,
    pub(in crate::proxy) in_a_minute: usize,
    /// of one place at a time,
    pub(in crate::proxy) at_a_time: usize,
    /// and of all places at a time.
    pub(in crate::proxy) in_all: usize,
}

#[derive(Debug)]
struct Counts {
    bounds: Bounds,
    /// When the minute of a place began, and its calls since.
    minutes: Bounded<Place, (Instant, usize)>,
    /// Calls under way. Only places that have some.
    under_way: HashMap<Place, usize>,
    total: usize,
}

/// Counts the calls of pages.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct Limits(Arc<Mutex<Counts>>);

impl Default for Limits {
    fn default() -> Self {
        Self::of(Bounds { in_a_minute: IN_A_MINUTE, at_a_time: AT_A_TIME, in_all: IN_ALL })
    }
}

/// A call that is under way.
#[derive(Debug)]
pub(in crate::proxy) struct UnderWay {
    counts: Arc<Mutex<Counts>>,
    places: Vec<Place>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.total -= 1;
        for place in &self.places {
            if let Some(open) = counts.under_way.get_mut(place) {
                *open -= 1;
                if *open == 0 {
                    counts.under_way.remove(place);
                }
            }
        }
    }
}

impl Limits {
    pub(in crate::proxy) fn of(bounds: Bounds) -> Self {
        let minutes = Bounded::new(REMEMBERED);
        Self(Arc::new(Mutex::new(Counts { bounds, minutes, under_way: HashMap::new(), total: 0 })))
    }

    /// Lets a call in, or says how long its place has to wait.
    pub(in crate::proxy) fn admit(&self, address: IpAddr, now: Instant) -> Result<UnderWay, Refused> {
        let mut counts = self.0.lock();
        let Bounds { in_a_minute, at_a_time, in_all } = counts.bounds;
        let places: Vec<(Place, usize)> = std::iter::once((Place::of(address), 1))
            .chain(Place::around(address).map(|around| (around, WIDER)))
            .collect();
        if counts.total >= in_all {
            return Err(Refused::Crowded(Duration::from_secs(1)));
        }
        for (place, times) in &places {
            if counts.under_way.get(place).is_some_and(|open| *open >= at_a_time * times) {
                return Err(Refused::Crowded(Duration::from_secs(1)));
            }
            let (minute, _) = counts.minutes.touch(place, || (now, 0));
            if now.saturating_duration_since(minute.0) >= MINUTE {
                *minute = (now, 0);
            }
            if minute.1 >= in_a_minute * times {
                return Err(Refused::Crowded(MINUTE.saturating_sub(now.saturating_duration_since(minute.0))));
            }
            minute.1 += 1;
        }
        counts.total += 1;
        let places: Vec<Place> = places.into_iter().map(|(place, _)| place).collect();
        for place in &places {
            *counts.under_way.entry(*place).or_default() += 1;
        }
        Ok(UnderWay { counts: Arc::clone(&self.0), places })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_place_waits_for_the_next_minute_and_another_does_not() {
        let (limits, now) = (Limits::default(), Instant::now());
        for _ in 0..IN_A_MINUTE {
            limits.admit(ip("192.0.2.1"), now).unwrap();
        }
        let later = now + Duration::from_secs(50);
        let Err(Refused::Crowded(wait)) = limits.admit(ip("192.0.2.1"), later) else { panic!() };
        assert_eq!(wait, Duration::from_secs(10));
        limits.admit(ip("192.0.2.2"), later).unwrap();
        limits.admit(ip("192.0.2.1"), now + MINUTE).unwrap();
    }

    #[test]
    fn a_subscriber_of_ipv6_has_no_more_by_having_many_addresses() {
        let (limits, now) = (Limits::default(), Instant::now());
        for number in 0..IN_A_MINUTE {
            limits.admit(ip(&format!("2001:db8:1:2::{number:x}")), now).unwrap();
        }
        limits.admit(ip("2001:db8:1:2:ffff::1"), now).unwrap_err();
        // Nor has a site by having many networks.
        let mut admitted = 0;
        for number in 0..(WIDER * IN_A_MINUTE) {
            admitted +=
                usize::from(limits.admit(ip(&format!("2001:db8:1:{:x}::1", number + 16)), now).is_ok());
        }
        assert!(admitted < WIDER * IN_A_MINUTE, "{admitted}");
        limits.admit(ip("2001:db8:2::1"), now).unwrap();
    }

    #[test]
    fn calls_that_are_under_way_are_bounded_and_make_room_when_they_end() {
        let (limits, now) = (Limits::default(), Instant::now());
        let held: Vec<UnderWay> =
            (0..AT_A_TIME).map(|_| limits.admit(ip("192.0.2.1"), now).unwrap()).collect();
        limits.admit(ip("192.0.2.1"), now).unwrap_err();
        limits.admit(ip("192.0.2.2"), now).unwrap();
        drop(held);
        limits.admit(ip("192.0.2.1"), now).unwrap();
        let mut all = Vec::new();
        for number in 0..IN_ALL {
            all.push(limits.admit(ip(&format!("198.51.{}.{}", number / 200, number % 200)), now).unwrap());
        }
        limits.admit(ip("203.0.113.1"), now).unwrap_err();
        drop(all);
        let counts = limits.0.lock();
        assert_eq!((counts.total, counts.under_way.len()), (0, 0));
    }
}
