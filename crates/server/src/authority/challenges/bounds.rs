//! How many challenges may be open, and how many that are over are kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use sallyport_access::{HostId, UserName};
use time::OffsetDateTime;
use tonic::Status;

use crate::places::{Place, Seen, WIDER};

/// Open challenges of one user.
pub(crate) const MOST_OF_USER: usize = 20;
/// Open challenges that one proxy has asked one user for, so that a proxy takes no place of the user's own, nor of another proxy's.
const MOST_FOR_USER: usize = 5;
/// Open challenges that one place has asked for without a certificate: an office behind one address logs in at nine. The site around it,
/// which may have 65,536 places of IPv6, has [`WIDER`] times as many, so that no site takes all that there are.
pub(crate) const MOST_OF_PLACE: usize = 200;
/// Open challenges of all strangers. Users are bounded by their own number each, and strangers take none of theirs.
pub(super) const MOST: usize = 20_000;
/// Of those, the challenges of strangers of which one proxy tells, wherever it says that they are: a proxy that makes places up leaves half for
/// the others.
const MOST_OF_HOST: usize = MOST / 2;

/// Challenges of strangers that were used or refused within a minute and are kept for a while, before each place has no more kept than a
/// [`CROWDED`] part of what it may have open,
const MOST_OVER: usize = 20_000;
const CROWDED: usize = 40;
/// and those of all strangers. What is kept of each has less than 1 KiB.
const MOST_OVER_OF_ALL: usize = 60_000;

/// Who has asked for a challenge, as far as bounds are concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct AskedBy<'a> {
    /// The user; none of a login, which strangers ask for.
    pub(super) user: Option<&'a UserName>,
    /// The proxy, where it asks for a client of the user's that cannot.
    pub(super) proxy: Option<&'a str>,
    pub(super) from: Seen,
}

impl AskedBy<'_> {
    /// For whom it counts, with how many each may have open: for the user, or else for the address.
    fn askers(&self) -> Vec<(Asker, usize)> {
        match (self.user, self.proxy) {
            (Some(user), Some(proxy)) => {
                vec![(Asker::ForUser(user.clone(), proxy.to_owned()), MOST_FOR_USER)]
            }
            (Some(user), None) => vec![(Asker::User(user.clone()), MOST_OF_USER)],
            (None, _) => {
                let Seen { address, told_by } = self.from;
                let place = (Asker::Place(told_by, Place::of(address)), MOST_OF_PLACE);
                let site = Place::around(address);
                let site = site.map(|site| (Asker::Site(told_by, site), MOST_OF_PLACE * WIDER));
                let host = told_by.map(|host| (Asker::Host(host), MOST_OF_HOST));
                std::iter::once(place).chain(site).chain(host).collect()
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Asker {
    User(UserName),
    /// A proxy, for a client of the user's that cannot ask.
    ForUser(UserName, String),
    /// A place, as the authority sees it or as one proxy tells: what a proxy says of a place takes nothing of what others ask from there.
    Place(Option<HostId>, Place),
    /// The network around a place.
    Site(Option<HostId>, Place),
    /// All places of which one proxy tells.
    Host(HostId),
}

/// When the challenges end that are open, by their keys.
type Ends = HashMap<String, i64>;

/// The open challenges, by who has asked for them, and how many are kept that are over.
#[derive(Debug, Default)]
pub(super) struct Openings {
    open: Mutex<HashMap<Asker, Ends>>,
    /// The minute in which all were last looked at for those whose time is over.
    swept: AtomicI64,
    over: Mutex<Over>,
}

/// A challenge's place among the open ones. Where the challenge comes to nothing, as on a full disk, others have its place.
#[derive(Debug)]
pub(crate) struct Held {
    openings: Arc<Openings>,
    askers: Vec<Asker>,
    key: String,
}

impl Held {
    /// The challenge is stored: it has its place until it is over.
    pub(crate) fn stands(&mut self) {
        self.askers.clear();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.openings.close(self.askers.drain(..), &self.key);
    }
}

/// What is kept of the present minute that is over.
#[derive(Debug, Default)]
struct Over {
    minute: i64,
    of: HashMap<Asker, usize>,
    /// Those of strangers.
    of_strangers: usize,
}

impl Over {
    fn begins(&mut self, now: OffsetDateTime) {
        let minute = now.unix_timestamp().div_euclid(60);
        if self.minute != minute {
            *self = Self { minute, ..Self::default() };
        }
    }

    /// Whether one more is kept. While few strangers flood, each has as many kept in a minute as it may have open; while many do, each has
    /// some kept still, so that the flood takes nothing of any other place.
    fn has_room(&self, by: &AskedBy<'_>, askers: &[(Asker, usize)]) -> bool {
        let of_strangers = if by.user.is_some() { 0 } else { self.of_strangers };
        let part = |asker: &Asker| match asker {
            // An honest one tells of many.
            Asker::Host(_) => 1,
            _ if of_strangers >= MOST_OVER => CROWDED,
            _ => 1,
        };
        let kept = |asker| self.of.get(asker).copied().unwrap_or_default();
        of_strangers < MOST_OVER_OF_ALL && askers.iter().all(|(asker, most)| kept(asker) < most / part(asker))
    }
}

fn forget(open: &mut HashMap<Asker, Ends>, now: i64) {
    for ends in open.values_mut() {
        ends.retain(|_, end| *end > now);
    }
    open.retain(|_, ends| !ends.is_empty());
}

/// How many strangers have open. Sites have what their places have.
fn of_strangers(open: &HashMap<Asker, Ends>) -> usize {
    open.iter().filter(|(asker, _)| matches!(asker, Asker::Place(..))).map(|(_, own)| own.len()).sum()
}

impl Openings {
    /// Counts a challenge that is to be opened under a key.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn opens(
        &self,
        by: AskedBy<'_>,
        key: &str,
        expires: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let askers = by.askers();
        let now = now.unix_timestamp();
        let mut open = self.open.lock();
        for (asker, _) in &askers {
            if let Some(own) = open.get_mut(asker) {
                own.retain(|_, end| *end > now);
            }
        }
        let (is_stranger, minute) = (by.user.is_none(), now.div_euclid(60));
        let is_swept = self.swept.swap(minute, Ordering::Relaxed) == minute;
        if !is_swept || is_stranger && of_strangers(&open) >= MOST {
            forget(&mut open, now);
        }
        let full = is_stranger && of_strangers(&open) >= MOST;
        let over = |(asker, most): &(Asker, usize)| open.get(asker).is_some_and(|own| own.len() >= *most);
        if full || askers.iter().any(over) {
            return Err(Status::resource_exhausted(
                "too many logins or approvals are begun and not finished; finish or refuse them, or try again in 10 minutes",
            ));
        }
        for (asker, _) in askers {
            open.entry(asker).or_default().insert(key.to_owned(), expires.unix_timestamp());
        }
        Ok(())
    }

    /// [`Self::opens`], until it is known whether the challenge is stored.
    pub(super) fn holds(
        self: &Arc<Self>,
        by: AskedBy<'_>,
        key: &str,
        expires: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Held, Status> {
        self.opens(by, key, expires, now)?;
        let askers = by.askers().into_iter().map(|(asker, _)| asker).collect();
        Ok(Held { openings: Arc::clone(self), askers, key: key.to_owned() })
    }

    /// A challenge is used or refused, or no program comes back to use it.
    pub(super) fn closes(&self, by: AskedBy<'_>, key: &str) {
        self.close(by.askers().into_iter().map(|(asker, _)| asker), key);
    }

    fn close(&self, askers: impl IntoIterator<Item = Asker>, key: &str) {
        let mut open = self.open.lock();
        for asker in askers {
            if let Some(own) = open.get_mut(&asker) {
                own.remove(key);
                if own.is_empty() {
                    open.remove(&asker);
                }
            }
        }
    }

    /// Whether a challenge is kept for a while that is to be over now. The look counts nothing: what is not written takes nothing.
    pub(super) fn keeps(&self, by: AskedBy<'_>, now: OffsetDateTime) -> bool {
        let mut over = self.over.lock();
        over.begins(now);
        over.has_room(&by, &by.askers())
    }

    /// Counts a challenge that is over, once the authority has written that.
    pub(super) fn kept(&self, by: AskedBy<'_>, now: OffsetDateTime) {
        let askers = by.askers();
        let mut over = self.over.lock();
        over.begins(now);
        // It was not kept.
        if !over.has_room(&by, &askers) {
            return;
        }
        if by.user.is_none() {
            over.of_strangers += 1;
        }
        for (asker, _) in askers {
            *over.of.entry(asker).or_default() += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stranger(address: &str) -> AskedBy<'static> {
        AskedBy { user: None, proxy: None, from: Seen { address: address.parse().unwrap(), told_by: None } }
    }

    fn of(user: &UserName) -> AskedBy<'_> {
        AskedBy { user: Some(user), ..stranger("192.0.2.1") }
    }

    /// Of so many IPv4 addresses.
    fn numbered(number: usize) -> AskedBy<'static> {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap());
        stranger(&address.to_string())
    }

    #[test]
    fn what_comes_to_nothing_has_no_place() {
        let (openings, now) = (Arc::new(Openings::default()), OffsetDateTime::UNIX_EPOCH);
        let (office, end) = (stranger("192.0.2.1"), now + time::Duration::minutes(10));
        for number in 0..MOST_OF_PLACE {
            drop(openings.holds(office, &number.to_string(), end, now).unwrap());
        }
        for number in 0..MOST_OF_PLACE {
            openings.holds(office, &number.to_string(), end, now).unwrap().stands();
        }
        assert!(openings.holds(office, "more", end, now).is_err());
    }

    #[test]
    fn users_who_come_no_more_are_forgotten() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        for number in 0..50 {
            let user = UserName::new(format!("user-{number}")).unwrap();
            openings.opens(of(&user), "one", end, now).unwrap();
        }
        openings.opens(stranger("192.0.2.1"), "later", end + time::Duration::minutes(10), end).unwrap();
        assert_eq!(openings.open.lock().len(), 1);
    }

    #[test]
    fn a_user_has_so_many_open_and_no_more() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let (alice, bob): (UserName, UserName) = ("alice".parse().unwrap(), "bob".parse().unwrap());
        let end = now + time::Duration::minutes(10);
        for number in 0..MOST_OF_USER {
            openings.opens(of(&alice), &number.to_string(), end, now).unwrap();
        }
        let refused = openings.opens(of(&alice), "more", end, now).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        openings.opens(of(&bob), "bob", end, now).unwrap();
        openings.closes(of(&alice), "3");
        openings.opens(of(&alice), "more", end, now).unwrap();
        assert!(openings.opens(of(&alice), "again", end, now).is_err());
        openings.opens(of(&alice), "later", end + time::Duration::minutes(10), end).unwrap();
    }

    /// A proxy in the wrong hands asks a user as often as it may.
    #[test]
    fn attacks_what_one_proxy_asks_a_user_takes_no_place_of_another_proxys() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        let alice: UserName = "alice".parse().unwrap();
        let by = |proxy| AskedBy { proxy: Some(proxy), ..of(&alice) };
        for number in 0..MOST_FOR_USER {
            openings.opens(by("proxy:taken"), &number.to_string(), end, now).unwrap();
        }
        assert!(openings.opens(by("proxy:taken"), "more", end, now).is_err());
        openings.opens(by("proxy:other"), "other", end, now).unwrap();
        openings.opens(of(&alice), "own", end, now).unwrap();
        openings.closes(by("proxy:other"), "3");
        assert!(openings.opens(by("proxy:taken"), "more", end, now).is_err(), "it closes its own alone");
        openings.closes(by("proxy:taken"), "3");
        openings.opens(by("proxy:taken"), "more", end, now).unwrap();
    }

    /// From a hundred addresses, strangers begin all the logins that there may be.
    #[test]
    fn attacks_strangers_take_no_place_of_users_who_are_logged_in() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        for number in 0..MOST {
            openings.opens(numbered(number / MOST_OF_PLACE), &number.to_string(), end, now).unwrap();
        }
        assert!(openings.opens(stranger("198.51.100.1"), "more", end, now).is_err());
        let alice: UserName = "alice".parse().unwrap();
        for number in 0..MOST_OF_USER {
            openings.opens(of(&alice), &format!("own {number}"), end, now).unwrap();
        }
        let by_proxy = AskedBy { proxy: Some("proxy:edge"), ..of(&alice) };
        openings.opens(by_proxy, "for her", end, now).unwrap();
        // Nor do users take any of the strangers'.
        openings.closes(numbered(0), "0");
        openings.opens(stranger("198.51.100.1"), "more", end, now).unwrap();
    }

    #[test]
    fn a_place_has_as_many_kept_that_are_over_in_a_minute_as_it_may_have_open() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let (flood, other) = (stranger("192.0.2.1"), stranger("192.0.2.2"));
        let alice: UserName = "alice".parse().unwrap();
        for _ in 0..MOST_OF_PLACE {
            assert!(openings.keeps(flood, now));
            openings.kept(flood, now);
        }
        assert!(!openings.keeps(flood, now));
        assert!(openings.keeps(other, now) && openings.keeps(of(&alice), now));
        assert!(openings.keeps(flood, now + time::Duration::MINUTE));
        // A look is no use: what could not be written takes nothing.
        assert!((0..MOST_OVER * 2).all(|_| openings.keeps(other, now)));
    }

    /// Strangers begin and refuse all that they may, from many places: the refusal of another person is kept for the program still.
    #[test]
    fn attacks_what_strangers_end_deletes_no_other_persons_refusal() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let ends = |by: AskedBy<'_>| {
            let keeps = openings.keeps(by, now);
            openings.kept(by, now);
            keeps
        };
        let floods = MOST_OVER / MOST_OF_PLACE;
        for number in 0..MOST_OVER {
            assert!(ends(numbered(number / MOST_OF_PLACE)), "{number}");
        }
        assert!(!ends(numbered(0)), "each of them had its part");
        for _ in 0..MOST_OF_PLACE / CROWDED {
            assert!(ends(stranger("198.51.100.1")));
        }
        assert!(!ends(stranger("198.51.100.1")), "it is crowded");
        let alice: UserName = "alice".parse().unwrap();
        assert!((0..MOST_OF_USER).all(|_| ends(of(&alice))) && !ends(of(&alice)));
        // However many places there are, no more than so many are kept.
        let left = MOST_OVER_OF_ALL - MOST_OVER - MOST_OF_PLACE / CROWDED;
        let kept = (0..MOST_OVER_OF_ALL).filter(|number| ends(numbered(floods + number))).count();
        assert_eq!(kept, left);
        assert!(!ends(stranger("198.51.100.2")));
        let bob: UserName = "bob".parse().unwrap();
        assert!(ends(of(&bob)), "those of users are theirs");
    }

    #[test]
    fn strangers_are_bounded_by_where_they_are() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        for number in 0..MOST_OF_PLACE {
            let from = stranger(&format!("2001:db8:1:2::{number:x}"));
            openings.opens(from, &number.to_string(), end, now).unwrap();
        }
        assert!(openings.opens(stranger("2001:db8:1:2:ffff::1"), "more", end, now).is_err());
        openings.opens(stranger("2001:db8:1:3::1"), "neighbour", end, now).unwrap();
    }

    #[test]
    fn one_site_takes_no_more_than_four_places_do() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        let from = |number: usize| stranger(&format!("2001:db8:1:{number:x}::1"));
        for number in 0..MOST_OF_PLACE * WIDER {
            openings.opens(from(number), &number.to_string(), end, now).unwrap();
        }
        assert!(openings.opens(from(0xffff), "more", end, now).is_err());
        openings.opens(stranger("2001:db8:2::1"), "another site", end, now).unwrap();
        openings.closes(from(7), "7");
        openings.opens(from(0xffff), "more", end, now).unwrap();
        openings.opens(from(0xfffe), "later", end + time::Duration::minutes(10), end).unwrap();
    }
    /// A proxy in the wrong hands says that an office, and then the whole world, begins logins.
    #[test]
    fn attacks_what_one_proxy_says_of_strangers_takes_no_place_of_those_elsewhere() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        let (taken, honest) = (HostId::new(), HostId::new());
        let told =
            |host, by: AskedBy<'static>| AskedBy { from: Seen { told_by: Some(host), ..by.from }, ..by };
        let office = || stranger("198.51.100.1");
        for number in 0..MOST_OF_PLACE {
            openings.opens(told(taken, office()), &number.to_string(), end, now).unwrap();
        }
        assert!(openings.opens(told(taken, office()), "more", end, now).is_err());
        openings.opens(told(honest, office()), "by another", end, now).unwrap();
        openings.opens(office(), "by itself", end, now).unwrap();
        let begun = (0..MOST).filter(|number| {
            let by = told(taken, numbered(number / MOST_OF_PLACE));
            openings.opens(by, &format!("invented {number}"), end, now).is_ok()
        });
        assert_eq!(begun.count(), MOST_OF_HOST - MOST_OF_PLACE);
        openings.opens(told(honest, numbered(1)), "of another", end, now).unwrap();
        // What it ends makes room for its own.
        openings.closes(told(taken, office()), "7");
        openings.opens(told(taken, office()), "more", end, now).unwrap();
        assert!(openings.opens(told(taken, numbered(MOST)), "more", end, now).is_err());
    }
}
