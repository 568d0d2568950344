//! How often strangers, and members, may ask and be wrong.

use parking_lot::Mutex;
use sallyport_access::HostId;
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use crate::authority::caller::Caller;
use crate::authority::gate::on_behalf::OnBehalf;
use crate::places::{Bounded, Place, Seen, places};

/// Failures count for so long.
pub(crate) const FAILURE_WINDOW: time::Duration = time::Duration::minutes(15);

/// Failures from one place within the window before it has to wait.
const MOST_FROM_PLACE: usize = 60;
/// Calls without a certificate, and refused ones with one, that a place may make in a minute. Each may be on record, and the
/// record must not let a stranger fill a disk.
const CALLS_OF_PLACE: usize = 600;
/// The same of one login, from wherever.
const CALLS_OF_LOGIN: usize = 600;
/// Places that the authority sees itself, and logins, that are remembered; past that, the one that was quiet for the longest goes.
const REMEMBERED: usize = 20_000;
/// Places that are remembered by the word of one host, so that a host that makes places up pushes out none but its own,
const REMEMBERED_OF_HOST: usize = 5_000;
/// and hosts of which any are.
const REMEMBERED_HOSTS: usize = 1_000;

/// Failures by place, and calls by place and by login.
#[derive(Debug)]
pub(crate) struct Guesses {
    failures: Mutex<ByWord<Vec<i64>>>,
    calls: Mutex<ByWord<Minute>>,
    calls_of_logins: Mutex<Bounded<Uuid, Minute>>,
    /// What hosts call for clients, in a table of its own: no host's word about a client counts with the calls of clients themselves.
    pub(super) on_behalf: OnBehalf,
}

/// What is counted of places: of those that the authority sees itself, and for each host of those of which that host tells. A proxy in the
/// wrong hands that says it was an office that guessed has the office barred at that proxy alone.
#[derive(Debug)]
struct ByWord<V> {
    seen: Bounded<Place, V>,
    told: Bounded<HostId, Bounded<Place, V>>,
}

impl<V> Default for ByWord<V> {
    fn default() -> Self {
        Self { seen: Bounded::new(REMEMBERED), told: Bounded::new(REMEMBERED_HOSTS) }
    }
}

impl<V> ByWord<V> {
    fn get(&self, told_by: Option<HostId>, place: &Place) -> Option<&V> {
        match told_by {
            Some(host) => self.told.get(&host)?.get(place),
            None => self.seen.get(place),
        }
    }

    fn of(&mut self, told_by: Option<HostId>) -> &mut Bounded<Place, V> {
        match told_by {
            Some(host) => self.told.touch(&host, || Bounded::new(REMEMBERED_OF_HOST)).0,
            None => &mut self.seen,
        }
    }
}

/// Calls in the present minute.
#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    minute: i64,
    calls: usize,
}

impl Minute {
    /// Counts one more; whether there were no more than so many in the minute.
    fn admits(&mut self, minute: i64, most: usize) -> bool {
        if self.minute != minute {
            *self = Self { minute, calls: 0 };
        }
        self.calls = self.calls.saturating_add(1);
        self.calls <= most
    }
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            failures: Mutex::default(),
            calls: Mutex::default(),
            calls_of_logins: Mutex::new(Bounded::new(REMEMBERED)),
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
    pub(crate) fn admits_call(&self, from: Seen, login: Option<Uuid>, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp() / 60;
        let mut table = self.calls.lock();
        let calls = table.of(from.told_by);
        let mut admitted = true;
        for (place, times) in places(from.address) {
            admitted &= calls.touch(&place, Minute::default).0.admits(minute, CALLS_OF_PLACE * times);
        }
        drop(table);
        login.is_none_or(|login| self.admits_login(login, now)) && admitted
    }

    /// Counts a call of a login alone: of a host, many of which may share an address.
    pub(crate) fn admits_login(&self, login: Uuid, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp() / 60;
        self.calls_of_logins.lock().touch(&login, Minute::default).0.admits(minute, CALLS_OF_LOGIN)
    }

    /// Lets a caller go on from whose address, or the site around it, there were not too many failures by the same host's word.
    ///
    /// # Errors
    /// There were too many.
    pub(crate) fn not_barred(&self, caller: &Caller, now: OffsetDateTime) -> Result<(), Status> {
        match caller.seen() {
            Some(from) if self.is_barred(from, now) => Err(Status::resource_exhausted(
                "too many failed attempts from this address; try again in 15 minutes",
            )),
            _ => Ok(()),
        }
    }

    fn is_barred(&self, from: Seen, now: OffsetDateTime) -> bool {
        let table = self.failures.lock();
        places(from.address).any(|(place, times)| {
            let failed = table.get(from.told_by, &place);
            failed.is_some_and(|failed| recent(failed, now) >= MOST_FROM_PLACE * times)
        })
    }

    /// Counts a failure of a caller.
    pub(crate) fn note(&self, caller: &Caller, now: OffsetDateTime) {
        if let Some(from) = caller.seen() {
            self.failed(from, now);
        }
    }

    fn failed(&self, from: Seen, now: OffsetDateTime) {
        let since = (now - FAILURE_WINDOW).unix_timestamp();
        let mut table = self.failures.lock();
        let failures = table.of(from.told_by);
        for (place, times) in places(from.address) {
            let (failed, _) = failures.touch(&place, Vec::new);
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

    fn ip(text: &str) -> Seen {
        Seen { address: text.parse().unwrap(), told_by: None }
    }

    fn told(host: HostId, text: &str) -> Seen {
        Seen { told_by: Some(host), ..ip(text) }
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
            guesses.failed(from, now);
        }
        assert!(guesses.is_barred(ip("2001:db8:1:2:ffff::1"), now));
        assert!(!guesses.is_barred(ip("2001:db8:1:3::1"), now), "the neighbours are not it");
        // Each from another /64 of a /48.
        for number in 0..MOST_FROM_PLACE * WIDER {
            guesses.failed(ip(&format!("2001:db8:2:{number:x}::1")), now);
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
            guesses.failed(guesser, now);
        }
        for number in 0..u32::try_from(REMEMBERED * 2).unwrap() {
            guesses.failed(ip(&std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).to_string()), now);
            if number % 1000 == 0 {
                guesses.failed(guesser, now);
            }
        }
        assert!(guesses.is_barred(guesser, now));
        assert!(guesses.failures.lock().seen.len() <= REMEMBERED);
    }
    /// A proxy in the wrong hands says that it was an office that guessed and called, again and again.
    #[test]
    fn attacks_what_one_host_says_of_an_address_bars_it_nowhere_else() {
        let guesses = Guesses::default();
        let (taken, honest, now) = (HostId::new(), HostId::new(), start());
        const OFFICE: &str = "2001:db8:1:2::7";
        for _ in 0..1_000 {
            guesses.failed(told(taken, OFFICE), now);
            guesses.admits_call(told(taken, OFFICE), None, now);
        }
        assert!(guesses.is_barred(told(taken, OFFICE), now));
        assert!(
            guesses.is_barred(told(taken, "2001:db8:1:2:ffff::1"), now),
            "its neighbours of the same place"
        );
        assert!(!guesses.admits_call(told(taken, OFFICE), None, now));
        for from in [told(honest, OFFICE), ip(OFFICE)] {
            assert!(!guesses.is_barred(from, now) && guesses.admits_call(from, None, now), "{from:?}");
        }
        // Nor does what the authority has seen bar an address at a proxy, where another client may be called so.
        for _ in 0..MOST_FROM_PLACE {
            guesses.failed(ip("192.0.2.1"), now);
        }
        assert!(
            guesses.is_barred(ip("192.0.2.1"), now) && !guesses.is_barred(told(honest, "192.0.2.1"), now)
        );
    }

    /// It makes addresses up, so that what is known of guessers elsewhere is forgotten.
    #[test]
    fn attacks_a_host_that_makes_addresses_up_has_none_forgotten_but_its_own() {
        let guesses = Guesses::default();
        let (taken, honest, now) = (HostId::new(), HostId::new(), start());
        for from in [told(honest, "192.0.2.1"), ip("192.0.2.1")] {
            (0..MOST_FROM_PLACE).for_each(|_| guesses.failed(from, now));
        }
        for number in 0..u32::try_from(REMEMBERED * 2).unwrap() {
            let invented = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).to_string();
            guesses.failed(told(taken, &invented), now);
        }
        assert!(guesses.is_barred(told(honest, "192.0.2.1"), now) && guesses.is_barred(ip("192.0.2.1"), now));
        assert!(guesses.failures.lock().of(Some(taken)).len() <= REMEMBERED_OF_HOST);
    }

    /// A login is its own wherever it calls from, and by whichever proxy.
    #[test]
    fn a_login_has_no_second_budget_at_another_proxy() {
        let guesses = Guesses::default();
        let (login, now) = (Uuid::new_v4(), start());
        for number in 0..CALLS_OF_LOGIN {
            assert!(guesses.admits_call(told(HostId::new(), "192.0.2.1"), Some(login), now), "{number}");
        }
        assert!(!guesses.admits_call(told(HostId::new(), "192.0.2.1"), Some(login), now));
        assert!(!guesses.admits_call(ip("192.0.2.1"), Some(login), now));
    }

    #[test]
    fn the_administrator_of_the_machine_is_never_barred() {
        let guesses = Guesses::default();
        for _ in 0..1_000 {
            guesses.note(&Caller::LocalAdmin, start());
        }
        guesses.not_barred(&Caller::LocalAdmin, start()).unwrap();
    }
}
