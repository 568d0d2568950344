//! What hosts call for the clients of users, and how often. Where a client is, is the host's word: what one host says takes nothing of what
//! another host needs, so that everything here is counted for each host by itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use sallyport_access::HostId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::places::{Bounded, Place, places};

/// The calls that a proxy may make in a minute for the browsers at its pages, wherever it says that they are, and for users whose clients
/// cannot ask for a second factor.
const CALLS_OF_PAGES: usize = 6_000;
/// Of those, the calls for the clients of one login: a few for each connection, and a twentieth of all, so that no login takes what the
/// others of its proxy need. They are not the login's own calls, so that a proxy takes none of these,
const CALLS_FOR_LOGIN: usize = 300;
/// and for the clients of one place, where several logins may be.
const CALLS_FOR_PLACE: usize = 1_200;
/// Certificates of users that the authority refuses, and that one host has shown of the clients of one place: past that the authority verifies
/// no more from there for this host in the minute, so that a flood of them costs a look into a table each, and takes no more of what the host
/// may call. A client whose certificate has just ended shows one or two.
const BAD_OF_PLACE: usize = 120;
/// The same of one host, wherever it says that its clients are: a host that invents places has no more verified than this. A proxy verifies
/// certificates and locks itself before it asks, so that an honest one comes nowhere near.
const BAD_OF_HOST: usize = 1_200;
/// Hosts that are remembered; past that, the one that was quiet for the longest goes.
const REMEMBERED: usize = 20_000;

/// What one host has called in the present minute. The tables have no more entries than the bounds let in.
#[derive(Debug, Default)]
struct Called {
    /// For browsers, and for the clients of logins.
    pages: usize,
    logins: HashMap<Uuid, usize>,
    places: HashMap<Place, usize>,
    /// Certificates that were refused.
    bad: usize,
    bad_of: HashMap<Place, usize>,
}

/// What hosts have called for clients, by host.
#[derive(Debug)]
pub(super) struct OnBehalf {
    table: Mutex<Bounded<HostId, Called>>,
    /// The minute that the table is of.
    minute: AtomicI64,
}

impl Default for OnBehalf {
    fn default() -> Self {
        Self { table: Mutex::new(Bounded::new(REMEMBERED)), minute: AtomicI64::new(0) }
    }
}

fn number<K: Eq + Hash>(of: &HashMap<K, usize>, key: &K) -> usize {
    of.get(key).copied().unwrap_or_default()
}

fn is_full(of: &HashMap<Place, usize>, address: IpAddr, most: usize) -> bool {
    places(address).any(|(place, times)| number(of, &place) >= most * times)
}

fn count(of: &mut HashMap<Place, usize>, address: IpAddr) {
    for (place, _) in places(address) {
        *of.entry(place).or_default() += 1;
    }
}

impl OnBehalf {
    fn of<T>(&self, host: HostId, now: OffsetDateTime, act: impl FnOnce(&mut Called) -> T) -> T {
        let minute = now.unix_timestamp().div_euclid(60);
        let mut table = self.table.lock();
        // A host that went quiet keeps nothing of its last minute. A call that was begun in the minute before counts in this one; a clock
        // that was put back begins anew.
        let of = self.minute.load(Ordering::Relaxed);
        if minute > of || minute < of - 1 {
            self.minute.store(minute, Ordering::Relaxed);
            *table = Bounded::new(REMEMBERED);
        }
        let (called, _) = table.touch(&host, Called::default);
        act(called)
    }

    /// Counts a call that a proxy makes for a browser, where the proxy may. The bounds of addresses do not bind a proxy that makes addresses
    /// up.
    pub(super) fn admits_pages(&self, proxy: HostId, now: OffsetDateTime) -> bool {
        self.of(proxy, now, |called| {
            let admitted = called.pages < CALLS_OF_PAGES;
            called.pages += usize::from(admitted);
            admitted
        })
    }

    /// Counts a call that a proxy makes for a client of a login, from an address in the proxy's word, where the proxy may. One that its login
    /// or its place may not make takes nothing of the proxy's.
    pub(super) fn admits_for(
        &self,
        proxy: HostId,
        login: Uuid,
        address: IpAddr,
        now: OffsetDateTime,
    ) -> bool {
        self.of(proxy, now, |called| {
            let admitted = called.pages < CALLS_OF_PAGES
                && number(&called.logins, &login) < CALLS_FOR_LOGIN
                && !is_full(&called.places, address, CALLS_FOR_PLACE);
            if admitted {
                called.pages += 1;
                *called.logins.entry(login).or_default() += 1;
                count(&mut called.places, address);
            }
            admitted
        })
    }

    /// Whether a certificate is verified at all that a host shows of a client at an address, or at none that can be read. The look takes
    /// nothing.
    pub(super) fn verifies(&self, host: HostId, from: Option<IpAddr>, now: OffsetDateTime) -> bool {
        self.of(host, now, |called| {
            called.bad < BAD_OF_HOST && from.is_none_or(|from| !is_full(&called.bad_of, from, BAD_OF_PLACE))
        })
    }

    /// Counts a certificate that was refused.
    pub(super) fn note_bad(&self, host: HostId, from: Option<IpAddr>, now: OffsetDateTime) {
        self.of(host, now, |called| {
            called.bad = called.bad.saturating_add(1);
            if let Some(from) = from {
                count(&mut called.bad_of, from);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn numbered(number: usize) -> IpAddr {
        ip(&format!("192.0.{}.{}", number / 250, number % 250))
    }

    fn start() -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::hours(1)
    }

    /// How many of so many bad certificates are verified that a host shows, by where each is said to be from.
    fn verified(
        table: &OnBehalf,
        host: HostId,
        times: usize,
        from: impl Fn(usize) -> Option<IpAddr>,
    ) -> usize {
        let shows = |number: &usize| {
            let verifies = table.verifies(host, from(*number), start());
            if verifies {
                table.note_bad(host, from(*number), start());
            }
            verifies
        };
        (0..times).filter(shows).count()
    }

    #[test]
    fn a_proxy_has_one_budget_for_all_the_browsers_that_it_tells_of() {
        let table = OnBehalf::default();
        let (proxy, now) = (HostId::new(), start());
        for _ in 0..CALLS_OF_PAGES {
            assert!(table.admits_pages(proxy, now));
        }
        assert!(!table.admits_pages(proxy, now));
        assert!(table.admits_pages(HostId::new(), now));
        assert!(table.admits_pages(proxy, now + time::Duration::minutes(1)));
    }

    #[test]
    fn attacks_one_login_takes_no_calls_of_a_proxy_that_others_need() {
        let table = OnBehalf::default();
        let (proxy, login, now) = (HostId::new(), Uuid::new_v4(), start());
        // From wherever the proxy says that it is.
        let admitted = (0..CALLS_OF_PAGES)
            .filter(|number| table.admits_for(proxy, login, numbered(*number), now))
            .count();
        assert_eq!(admitted, CALLS_FOR_LOGIN);
        // Many logins at one place.
        let office = ip("198.51.100.1");
        let admitted =
            (0..CALLS_OF_PAGES).filter(|_| table.admits_for(proxy, Uuid::new_v4(), office, now)).count();
        assert_eq!(admitted, CALLS_FOR_PLACE);
        assert!(table.admits_for(proxy, Uuid::new_v4(), ip("198.51.100.2"), now), "others go on");
        assert!(table.admits_pages(proxy, now), "and so do the pages");
        // All of them together have the proxy's bound, and what was refused before has taken nothing of it.
        let left = CALLS_OF_PAGES - CALLS_FOR_LOGIN - CALLS_FOR_PLACE - 2;
        let admitted = (0..CALLS_OF_PAGES)
            .filter(|number| table.admits_for(proxy, Uuid::new_v4(), numbered(*number), now))
            .count();
        assert_eq!(admitted, left);
        assert!(table.admits_for(proxy, login, office, now + time::Duration::minutes(1)));
    }

    /// A proxy in the wrong hands has seen the certificates of an office's users, and calls for them until nothing is left.
    #[test]
    fn attacks_a_proxys_calls_for_an_office_take_none_that_other_proxies_make_for_it() {
        let table = OnBehalf::default();
        let (taken, honest, login, now) = (HostId::new(), HostId::new(), Uuid::new_v4(), start());
        let office = ip("198.51.100.1");
        while table.admits_for(taken, login, office, now) {}
        while table.admits_for(taken, Uuid::new_v4(), office, now) {}
        assert!(table.admits_for(honest, login, office, now));
        assert!(table.admits_for(honest, Uuid::new_v4(), office, now));
    }

    #[test]
    fn attacks_bad_certificates_of_one_place_are_not_verified_without_end() {
        let table = OnBehalf::default();
        let (host, now) = (HostId::new(), start());
        let (flood, other) = (ip("2001:db8:1:2::1"), ip("192.0.2.7"));
        assert_eq!(verified(&table, host, BAD_OF_PLACE * 9, |_| Some(flood)), BAD_OF_PLACE);
        assert!(!table.verifies(host, Some(ip("2001:db8:1:2:ffff::1")), now), "of the same place");
        assert!(table.verifies(host, Some(ip("2001:db8:1:3::1")), now));
        assert!(table.verifies(host, Some(flood), now + time::Duration::minutes(1)));
        // What counts is not counted here: a look takes nothing.
        for _ in 0..BAD_OF_HOST * 2 {
            assert!(table.verifies(host, Some(other), now));
        }
    }

    /// One stolen certificate of a node shows a bad certificate from the address of an office, again and again.
    #[test]
    fn attacks_what_one_host_says_of_a_place_stops_no_other_host() {
        let table = OnBehalf::default();
        let (stolen, honest, office) = (HostId::new(), HostId::new(), ip("198.51.100.1"));
        assert_eq!(verified(&table, stolen, BAD_OF_PLACE * 9, |_| Some(office)), BAD_OF_PLACE);
        assert!(!table.verifies(stolen, Some(office), start()));
        assert!(table.verifies(honest, Some(office), start()));
        assert_eq!(verified(&table, honest, BAD_OF_PLACE * 9, |_| Some(office)), BAD_OF_PLACE);
    }

    /// Each from another place, and from none that can be read: the host has a total, and its entries push none of another's out.
    #[test]
    fn attacks_a_host_that_invents_places_has_so_many_verified_and_no_more() {
        let table = OnBehalf::default();
        let (stolen, honest, office) = (HostId::new(), HostId::new(), ip("198.51.100.1"));
        assert_eq!(verified(&table, honest, BAD_OF_PLACE, |_| Some(office)), BAD_OF_PLACE);
        let invented = |number: usize| Some(ip(&format!("2001:db8:{number:x}::1")));
        assert_eq!(verified(&table, stolen, BAD_OF_HOST * 9, invented), BAD_OF_HOST);
        assert_eq!(verified(&table, HostId::new(), BAD_OF_HOST * 9, |_| None), BAD_OF_HOST);
        assert!(!table.verifies(stolen, Some(ip("192.0.2.7")), start()), "wherever it is");
        assert!(!table.verifies(honest, Some(office), start()), "what the honest host has counted stands");
        assert!(table.verifies(honest, Some(ip("192.0.2.7")), start()));
        let entries = table.of(stolen, start(), |called| called.bad_of.len());
        assert!(entries <= BAD_OF_HOST * 2, "{entries}");
        assert!(table.verifies(stolen, Some(office), start() + time::Duration::minutes(1)));
    }
}
