//! How often strangers, and members, may ask and be wrong.

use std::net::IpAddr;

use parking_lot::Mutex;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::authority::gate::on_behalf::OnBehalf;
use crate::places::{Bounded, Place, places};

/// Failures count for so long.
pub(crate) const FAILURE_WINDOW: time::Duration = time::Duration::minutes(15);

/// Failures from one place within the window before it has to wait.
const MOST_FROM_PLACE: usize = 60;
/// Calls without a certificate, and refused ones with one, that a place may make in a minute. Each may be on record, and the
/// record must not let a stranger fill a disk.
const CALLS_OF_PLACE: usize = 600;
/// The same of one login, from wherever.
const CALLS_OF_LOGIN: usize = 600;
/// Places and logins remembered; past that, the one that was quiet for the longest goes.
const REMEMBERED: usize = 20_000;

/// Failures by place, and calls by place and by login.
#[derive(Debug)]
pub(crate) struct Guesses {
    failures: Mutex<Bounded<Place, Vec<i64>>>,
    calls: Mutex<Bounded<Who, Minute>>,
    /// What hosts call for clients, in a table of its own: no host's word about a client counts with the calls of clients themselves.
    pub(super) on_behalf: OnBehalf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who {
    Place(Place),
    Login(Uuid),
}

/// Calls in the present minute.
#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    minute: i64,
    calls: usize,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            failures: Mutex::new(Bounded::new(REMEMBERED)),
            calls: Mutex::new(Bounded::new(REMEMBERED)),
            on_behalf: OnBehalf::default(),
        }
    }
}

fn recent(times: &[i64], now: OffsetDateTime) -> usize {
    let since = (now - FAILURE_WINDOW).unix_timestamp();
    times.iter().filter(|time| **time > since).count()
}

impl Guesses {
    /// Counts a call from an address, and of a login where there is one; whether it is within the bounds of all of them.
    pub(crate) fn admits_call(&self, address: IpAddr, login: Option<Uuid>, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp() / 60;
        let places = places(address).map(|(place, times)| (Who::Place(place), CALLS_OF_PLACE * times));
        let login = login.map(|login| (Who::Login(login), CALLS_OF_LOGIN));
        let mut table = self.calls.lock();
        let mut admitted = true;
        for (who, most) in places.chain(login) {
            let (count, _) = table.touch(&who, Minute::default);
            if count.minute != minute {
                *count = Minute { minute, calls: 0 };
            }
            count.calls = count.calls.saturating_add(1);
            admitted &= count.calls <= most;
        }
        admitted
    }

    /// Counts a call of a login alone: of a host, many of which may share an address.
    pub(crate) fn admits_login(&self, login: Uuid, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp() / 60;
        let mut table = self.calls.lock();
        let (count, _) = table.touch(&Who::Login(login), Minute::default);
        if count.minute != minute {
            *count = Minute { minute, calls: 0 };
        }
        count.calls = count.calls.saturating_add(1);
        count.calls <= CALLS_OF_LOGIN
    }

    /// Whether an address, or the site around it, has failed too often.
    pub(crate) fn is_barred(&self, address: IpAddr, now: OffsetDateTime) -> bool {
        let table = self.failures.lock();
        places(address).any(|(place, times)| {
            table.get(&place).is_some_and(|failed| recent(failed, now) >= MOST_FROM_PLACE * times)
        })
    }

    /// Counts a failure from an address.
    pub(crate) fn note(&self, address: IpAddr, now: OffsetDateTime) {
        let since = (now - FAILURE_WINDOW).unix_timestamp();
        let mut table = self.failures.lock();
        for (place, times) in places(address) {
            let (failed, _) = table.touch(&place, Vec::new);
            failed.retain(|time| *time > since);
            if failed.len() < MOST_FROM_PLACE * times {
                failed.push(now.unix_timestamp());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::WIDER;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn start() -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::hours(1)
    }

    #[test]
    fn a_stranger_may_call_so_often_in_a_minute() {
        let guesses = Guesses::default();
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let now = start();
        for _ in 0..CALLS_OF_PLACE {
            assert!(guesses.admits_call(one, None, now));
        }
        assert!(!guesses.admits_call(one, None, now));
        assert!(guesses.admits_call(other, None, now));
        assert!(guesses.admits_call(one, None, now + time::Duration::minutes(1)));
    }

    #[test]
    fn a_login_has_one_budget_from_wherever_it_calls() {
        let guesses = Guesses::default();
        let (login, now) = (Uuid::new_v4(), start());
        for number in 0..CALLS_OF_LOGIN {
            let from = ip(&format!("192.0.{}.{}", number / 250, number % 250));
            assert!(guesses.admits_call(from, Some(login), now));
        }
        assert!(!guesses.admits_call(ip("198.51.100.1"), Some(login), now));
        assert!(!guesses.admits_login(login, now));
        assert!(guesses.admits_call(ip("198.51.100.1"), Some(Uuid::new_v4()), now));
    }

    #[test]
    fn attacks_from_many_addresses_of_one_site_are_one_attack() {
        let guesses = Guesses::default();
        let now = start();
        // Each guess from another address of a /64.
        for number in 0..MOST_FROM_PLACE {
            let from = ip(&format!("2001:db8:1:2::{number:x}"));
            assert!(!guesses.is_barred(from, now), "{number}");
            guesses.note(from, now);
        }
        assert!(guesses.is_barred(ip("2001:db8:1:2:ffff::1"), now));
        assert!(!guesses.is_barred(ip("2001:db8:1:3::1"), now), "the neighbours are not it");
        // Each from another /64 of a /48.
        for number in 0..MOST_FROM_PLACE * WIDER {
            guesses.note(ip(&format!("2001:db8:2:{number:x}::1")), now);
        }
        assert!(guesses.is_barred(ip("2001:db8:2:ffff::1"), now));
        assert!(!guesses.is_barred(ip("2001:db8:3::1"), now));
        assert!(!guesses.is_barred(ip("2001:db8:2:ffff::1"), now + FAILURE_WINDOW));
    }

    #[test]
    fn a_full_table_forgets_the_quietest_and_not_all() {
        let guesses = Guesses::default();
        let (now, guesser) = (start(), ip("192.0.2.1"));
        for _ in 0..MOST_FROM_PLACE {
            guesses.note(guesser, now);
        }
        for number in 0..u32::try_from(REMEMBERED * 2).unwrap() {
            guesses.note(IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number)), now);
            if number % 1000 == 0 {
                guesses.note(guesser, now);
            }
        }
        assert!(guesses.is_barred(guesser, now));
        assert!(guesses.failures.lock().len() <= REMEMBERED);
    }
}
