//! How many challenges may be open.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use parking_lot::Mutex;
use sallyport_access::UserName;
use time::OffsetDateTime;
use tonic::Status;

use crate::places::{Place, WIDER};

/// Open challenges of one user.
pub(crate) const MOST_OF_USER: usize = 20;
/// Open challenges that proxies have asked one user for, so that a proxy takes no place of the user's own.
const MOST_FOR_USER: usize = 5;
/// Open challenges that one place has asked for without a certificate: an office behind one address logs in at nine. The site around it,
/// which may have 65,536 places of IPv6, has [`WIDER`] times as many, so that no site takes all that there are.
pub(crate) const MOST_OF_PLACE: usize = 200;
/// Open challenges of all.
const MOST: usize = 20_000;
/// Those that were used or refused within a minute and are kept for a while.
const MOST_OVER: u32 = 20_000;

/// Who has asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Asker {
    User(UserName),
    /// A proxy, for a client of the user's that cannot ask.
    ForUser(UserName),
    Place(Place),
    /// The network around a place.
    Site(Place),
}

/// When the challenges end that are open, by who has asked for them.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    open: Mutex<HashMap<Asker, HashMap<String, i64>>>,
    /// The present minute, and how many of it are kept that are over.
    over: Mutex<(i64, u32)>,
}

/// Who asks from an address, with how many each may have open.
fn places(address: IpAddr) -> impl Iterator<Item = (Asker, usize)> {
    let site = Place::around(address).map(|site| (Asker::Site(site), MOST_OF_PLACE * WIDER));
    std::iter::once((Asker::Place(Place::of(address)), MOST_OF_PLACE)).chain(site)
}

fn forget<K: Eq + Hash>(open: &mut HashMap<K, HashMap<String, i64>>, now: i64) {
    for ends in open.values_mut() {
        ends.retain(|_, end| *end > now);
    }
    open.retain(|_, ends| !ends.is_empty());
}

impl Openings {
    /// Counts a challenge that is to be opened under a key, of a user or else of an address.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn opens(
        &self,
        (user, by_proxy): (Option<&UserName>, bool),
        address: IpAddr,
        key: &str,
        expires: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let askers: Vec<(Asker, usize)> = match user {
            Some(user) if by_proxy => vec![(Asker::ForUser(user.clone()), MOST_FOR_USER)],
            Some(user) => vec![(Asker::User(user.clone()), MOST_OF_USER)],
            None => places(address).collect(),
        };
        let now = now.unix_timestamp();
        let mut open = self.open.lock();
        for (asker, _) in &askers {
            if let Some(own) = open.get_mut(asker) {
                own.retain(|_, end| *end > now);
            }
        }
        // Sites have what their places have.
        let total = |open: &HashMap<Asker, HashMap<String, i64>>| {
            open.iter()
                .filter(|(asker, _)| !matches!(asker, Asker::Site(_)))
                .map(|(_, own)| own.len())
                .sum::<usize>()
        };
        if total(&open) >= MOST {
            forget(&mut open, now);
        }
        let full = total(&open) >= MOST;
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

    /// Whether one more that is over now is kept.
    pub(crate) fn keeps_one_more(&self, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp().div_euclid(60);
        let mut over = self.over.lock();
        if over.0 != minute {
            *over = (minute, 0);
        }
        over.1 = over.1.saturating_add(1);
        over.1 <= MOST_OVER
    }

    /// A challenge is used or refused.
    pub(crate) fn closes(&self, user: Option<&UserName>, address: IpAddr, key: &str) {
        let mut open = self.open.lock();
        let own = user.into_iter().flat_map(|user| [Asker::User(user.clone()), Asker::ForUser(user.clone())]);
        let askers = places(address).map(|(asker, _)| asker).chain(own);
        for asker in askers {
            if let Some(own) = open.get_mut(&asker) {
                own.remove(key);
                if own.is_empty() {
                    open.remove(&asker);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_open_and_no_more() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let (alice, bob): (UserName, UserName) = ("alice".parse().unwrap(), "bob".parse().unwrap());
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let end = now + time::Duration::minutes(10);
        for number in 0..MOST_OF_USER {
            openings.opens((Some(&alice), false), address, &number.to_string(), end, now).unwrap();
        }
        let refused = openings.opens((Some(&alice), false), address, "more", end, now).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        openings.opens((Some(&bob), false), address, "bob", end, now).unwrap();
        openings.closes(Some(&alice), address, "3");
        openings.opens((Some(&alice), false), address, "more", end, now).unwrap();
        assert!(openings.opens((Some(&alice), false), address, "again", end, now).is_err());
        openings
            .opens((Some(&alice), false), address, "later", end + time::Duration::minutes(10), end)
            .unwrap();
    }

    #[test]
    fn so_many_are_kept_that_are_over_in_a_minute() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        assert!((0..MOST_OVER).all(|_| openings.keeps_one_more(now)));
        assert!(!openings.keeps_one_more(now));
        assert!(openings.keeps_one_more(now + time::Duration::MINUTE));
    }

    #[test]
    fn strangers_are_bounded_by_where_they_are() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        for number in 0..MOST_OF_PLACE {
            let from = format!("2001:db8:1:2::{number:x}").parse().unwrap();
            openings.opens((None, false), from, &number.to_string(), end, now).unwrap();
        }
        assert!(
            openings.opens((None, false), "2001:db8:1:2:ffff::1".parse().unwrap(), "more", end, now).is_err()
        );
        openings.opens((None, false), "2001:db8:1:3::1".parse().unwrap(), "neighbour", end, now).unwrap();
    }

    #[test]
    fn one_site_takes_no_more_than_four_places_do() {
        let (openings, now) = (Openings::default(), OffsetDateTime::UNIX_EPOCH);
        let end = now + time::Duration::minutes(10);
        let from = |number: usize| format!("2001:db8:1:{number:x}::1").parse::<IpAddr>().unwrap();
        for number in 0..MOST_OF_PLACE * WIDER {
            openings.opens((None, false), from(number), &number.to_string(), end, now).unwrap();
        }
        assert!(openings.opens((None, false), from(0xffff), "more", end, now).is_err());
        openings.opens((None, false), "2001:db8:2::1".parse().unwrap(), "another site", end, now).unwrap();
        openings.closes(None, from(7), "7");
        openings.opens((None, false), from(0xffff), "more", end, now).unwrap();
        openings.opens((None, false), from(0xfffe), "later", end + time::Duration::minutes(10), end).unwrap();
    }
}
