//! How often strangers, and members, may ask and be wrong.

use std::net::IpAddr;

use parking_lot::Mutex;
use sallyport_access::HostId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::places::{Bounded, Place, WIDER};

/// Failures count for so long.
pub(crate) const FAILURE_WINDOW: time::Duration = time::Duration::minutes(15);

/// Failures from one place within the window before it has to wait.
const MOST_FROM_PLACE: usize = 60;
/// Calls without a certificate, and refused ones with one, that a place may make in a minute. Each may be on record, and the
/// record must not let a stranger fill a disk.
const CALLS_OF_PLACE: usize = 600;
/// The same of one login, from wherever.
const CALLS_OF_LOGIN: usize = 600;
/// The calls that a proxy may make in a minute for the browsers at its pages, wherever it says that they are, and for users whose clients
/// cannot ask for a second factor.
const CALLS_OF_PAGES: usize = 6_000;
/// Of those, the calls for the clients of one login: a few for each connection, and a twentieth of all, so that no login takes what the
/// others of its proxy need. They are not the login's own calls, so that a proxy takes none of these,
const CALLS_FOR_LOGIN: usize = 300;
/// and for the clients of one place, where several logins may be.
const CALLS_FOR_PLACE: usize = 1_200;
/// Certificates of users that do not count, and that proxies and agents have shown of the clients of one place: past that no more is verified
/// from there in the minute, so that a flood of them costs a look into a table each, and takes no more of what its proxy may call. A client
/// whose certificate has just ended shows one or two.
const BAD_OF_PLACE: usize = 120;
/// Places and logins remembered; past that, the one that was quiet for the longest goes.
const REMEMBERED: usize = 20_000;

/// Failures by place, and calls by place and by login.
#[derive(Debug)]
pub(crate) struct Guesses {
    failures: Mutex<Bounded<Place, Vec<i64>>>,
    calls: Mutex<Bounded<Who, Minute>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who {
    Place(Place),
    Login(Uuid),
    /// The pages of a proxy.
    Pages(HostId),
    /// The clients of a login that proxies call for,
    ForLogin(Uuid),
    /// and those of a place.
    ForPlace(Place),
    /// The certificates of a place that do not count.
    Bad(Place),
}

/// Calls in the present minute.
#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    minute: i64,
    calls: usize,
}

impl Default for Guesses {
    fn default() -> Self {
        Self { failures: Mutex::new(Bounded::new(REMEMBERED)), calls: Mutex::new(Bounded::new(REMEMBERED)) }
    }
}

/// The places of an address with how much each may, as a multiple of one place's part.
fn places(address: IpAddr) -> impl Iterator<Item = (Place, usize)> {
    std::iter::once((Place::of(address), 1)).chain(Place::around(address).map(|around| (around, WIDER)))
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
        self.admits(Who::Login(login), CALLS_OF_LOGIN, now)
    }

    /// Counts a call that a proxy makes for a browser. Where the browser is, is the proxy's word, so that the bounds of addresses do not
    /// bind a proxy that makes addresses up.
    pub(crate) fn admits_pages(&self, proxy: HostId, now: OffsetDateTime) -> bool {
        self.admits(Who::Pages(proxy), CALLS_OF_PAGES, now)
    }

    /// Counts a call that a proxy makes for a client of a login, from an address in the proxy's word. One that its login or its place may not
    /// make is none of the proxy's: those of others stay.
    pub(crate) fn admits_for(
        &self,
        proxy: HostId,
        login: Uuid,
        address: IpAddr,
        now: OffsetDateTime,
    ) -> bool {
        let own = self.admits(Who::ForLogin(login), CALLS_FOR_LOGIN, now);
        own && places(address)
            .all(|(place, times)| self.admits(Who::ForPlace(place), CALLS_FOR_PLACE * times, now))
            && self.admits_pages(proxy, now)
    }

    /// Whether a certificate that a host shows of a client at an address is verified at all.
    pub(crate) fn verifies_from(&self, address: IpAddr, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp() / 60;
        let table = self.calls.lock();
        places(address).all(|(place, times)| {
            let bad = table.get(&Who::Bad(place)).filter(|bad| bad.minute == minute);
            bad.is_none_or(|bad| bad.calls < BAD_OF_PLACE * times)
        })
    }

    /// Counts one that did not count.
    pub(crate) fn note_bad(&self, address: IpAddr, now: OffsetDateTime) {
        for (place, times) in places(address) {
            self.admits(Who::Bad(place), BAD_OF_PLACE * times, now);
        }
    }

    fn admits(&self, who: Who, most: usize, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp() / 60;
        let mut table = self.calls.lock();
        let (count, _) = table.touch(&who, Minute::default);
        if count.minute != minute {
            *count = Minute { minute, calls: 0 };
        }
        count.calls = count.calls.saturating_add(1);
        count.calls <= most
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
    fn a_proxy_has_one_budget_for_all_the_browsers_that_it_tells_of() {
        let guesses = Guesses::default();
        let (proxy, now) = (HostId::new(), start());
        for _ in 0..CALLS_OF_PAGES {
            assert!(guesses.admits_pages(proxy, now));
        }
        assert!(!guesses.admits_pages(proxy, now));
        assert!(guesses.admits_pages(HostId::new(), now));
        assert!(guesses.admits_pages(proxy, now + time::Duration::minutes(1)));
    }

    #[test]
    fn attacks_one_login_takes_no_calls_of_a_proxy_that_others_need() {
        let guesses = Guesses::default();
        let (proxy, login, now) = (HostId::new(), Uuid::new_v4(), start());
        let from = |number: usize| ip(&format!("192.0.{}.{}", number / 250, number % 250));
        // From wherever the proxy says that it is.
        let admitted =
            (0..CALLS_OF_PAGES).filter(|number| guesses.admits_for(proxy, login, from(*number), now)).count();
        assert_eq!(admitted, CALLS_FOR_LOGIN);
        // Many logins at one place.
        let office = ip("198.51.100.1");
        let admitted =
            (0..CALLS_OF_PAGES).filter(|_| guesses.admits_for(proxy, Uuid::new_v4(), office, now)).count();
        assert_eq!(admitted, CALLS_FOR_PLACE);
        assert!(guesses.admits_for(proxy, Uuid::new_v4(), ip("198.51.100.2"), now), "others go on");
        assert!(guesses.admits_pages(proxy, now), "and so do the pages");
        assert!(guesses.admits_login(login, now), "the login's own calls are its own");
        // All of them together have the proxy's bound, and what was refused before has taken nothing of it.
        let left = CALLS_OF_PAGES - CALLS_FOR_LOGIN - CALLS_FOR_PLACE - 2;
        let admitted = (0..CALLS_OF_PAGES)
            .filter(|number| guesses.admits_for(proxy, Uuid::new_v4(), from(*number), now))
            .count();
        assert_eq!(admitted, left);
        assert!(guesses.admits_for(proxy, login, office, now + time::Duration::minutes(1)));
    }

    #[test]
    fn attacks_bad_certificates_of_one_place_are_not_verified_without_end() {
        let guesses = Guesses::default();
        let (flood, other, now) = (ip("2001:db8:1:2::1"), ip("192.0.2.7"), start());
        let verified = (0..BAD_OF_PLACE * 10).filter(|_| {
            let verifies = guesses.verifies_from(flood, now);
            if verifies {
                guesses.note_bad(flood, now);
            }
            verifies
        });
        assert_eq!(verified.count(), BAD_OF_PLACE);
        assert!(!guesses.verifies_from(ip("2001:db8:1:2:ffff::1"), now), "of the same place");
        assert!(guesses.verifies_from(ip("2001:db8:1:3::1"), now) && guesses.verifies_from(other, now));
        assert!(guesses.verifies_from(flood, now + time::Duration::minutes(1)));
        // What counts is not counted here: a look takes nothing.
        for _ in 0..BAD_OF_PLACE * 10 {
            assert!(guesses.verifies_from(other, now));
        }
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
