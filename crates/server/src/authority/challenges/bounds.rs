//! How many challenges may be open.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use parking_lot::Mutex;
use sallyport_access::UserName;
use time::OffsetDateTime;
use tonic::Status;

use crate::places::Place;

/// Open challenges of one user.
pub(crate) const MOST_OF_USER: usize = 20;
/// Open challenges that proxies have asked one user for, so that a proxy takes no place of the user's own.
const MOST_FOR_USER: usize = 5;
/// Open challenges that one place has asked for without a certificate: an office behind one address logs in at nine.
pub(crate) const MOST_OF_PLACE: usize = 200;
/// Open challenges of all.
const MOST: usize = 20_000;

/// Who has asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Asker {
    User(UserName),
    /// A proxy, for a client of the user's that cannot ask.
    ForUser(UserName),
    Place(Place),
}

/// When the challenges end that are open, by who has asked for them. An authority that starts anew knows none: those from before end
/// within minutes.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    open: Mutex<HashMap<Asker, HashMap<String, i64>>>,
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
        let (asker, most) = match user {
            Some(user) if by_proxy => (Asker::ForUser(user.clone()), MOST_FOR_USER),
            Some(user) => (Asker::User(user.clone()), MOST_OF_USER),
            None => (Asker::Place(Place::of(address)), MOST_OF_PLACE),
        };
        let now = now.unix_timestamp();
        let mut open = self.open.lock();
        if let Some(own) = open.get_mut(&asker) {
            own.retain(|_, end| *end > now);
        }
        let total =
            |open: &HashMap<Asker, HashMap<String, i64>>| open.values().map(HashMap::len).sum::<usize>();
        if total(&open) >= MOST {
            forget(&mut open, now);
        }
        let full = total(&open) >= MOST;
        let own = open.entry(asker).or_default();
        if full || own.len() >= most {
            return Err(Status::resource_exhausted(
                "too many logins or approvals are begun and not finished; finish or refuse them, or try again in 10 minutes",
            ));
        }
        own.insert(key.to_owned(), expires.unix_timestamp());
        Ok(())
    }

    /// A challenge is used or refused.
    pub(crate) fn closes(&self, user: Option<&UserName>, address: IpAddr, key: &str) {
        let mut open = self.open.lock();
        let askers = [
            Some(Asker::Place(Place::of(address))),
            user.cloned().map(Asker::User),
            user.cloned().map(Asker::ForUser),
        ];
        for asker in askers.into_iter().flatten() {
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
}
