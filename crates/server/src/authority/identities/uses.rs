//! When logins were last in use, in memory: what is written down of it follows at intervals.

use std::collections::HashMap;

use parking_lot::Mutex;
use sallyport_access::UserName;
use time::OffsetDateTime;
use uuid::Uuid;

/// How exactly it is written down. A login that is in use all the time costs one write in this time, however many calls it makes.
pub(crate) const KEPT_TO: time::Duration = time::Duration::minutes(5);
/// Logins that are remembered at a time: those in use within [`KEPT_TO`]. Of more, what is written down is all that is known.
const MOST: usize = 100_000;

#[derive(Debug)]
struct Use {
    last: OffsetDateTime,
    written: Option<OffsetDateTime>,
}

/// A use that is to be written down.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) user: UserName,
    pub(crate) login_id: Uuid,
    pub(crate) last: OffsetDateTime,
}

/// The logins that were in use of late, each of its user: hosts say of which logins they serve sessions, and one that names another user's
/// login says nothing of that.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<HashMap<(UserName, Uuid), Use>>);

impl Uses {
    pub(crate) fn note(&self, login_id: Uuid, user: &UserName, now: OffsetDateTime) {
        let key = (user.clone(), login_id);
        let mut uses = self.0.lock();
        if let Some(known) = uses.get_mut(&key) {
            known.last = known.last.max(now);
        } else if uses.len() < MOST {
            uses.insert(key, Use { last: now, written: None });
        }
    }

    /// When a login was in use, unless that is longer ago than what is written down says.
    pub(crate) fn last(&self, login_id: Uuid, user: &UserName) -> Option<OffsetDateTime> {
        self.0.lock().get(&(user.clone(), login_id)).map(|known| known.last)
    }

    /// What is to be written down now. What was, and is out of use since, is forgotten.
    pub(crate) fn due(&self, now: OffsetDateTime) -> Vec<Due> {
        let mut uses = self.0.lock();
        uses.retain(|_, known| known.written != Some(known.last) || now - known.last < KEPT_TO);
        uses.iter()
            .filter(|(_, known)| {
                let quiet = now - known.last >= KEPT_TO && known.written != Some(known.last);
                quiet || known.written.is_none_or(|written| known.last - written >= KEPT_TO)
            })
            .map(|((user, id), known)| Due { user: user.clone(), login_id: *id, last: known.last })
            .collect()
    }

    /// This is written down of a login.
    pub(crate) fn written(&self, login_id: Uuid, user: &UserName, at: OffsetDateTime) {
        if let Some(known) = self.0.lock().get_mut(&(user.clone(), login_id)) {
            known.written = Some(at);
        }
    }

    /// A login is over, or its user has no such one.
    pub(crate) fn forget(&self, login_id: Uuid, user: &UserName) {
        self.0.lock().remove(&(user.clone(), login_id));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_use_is_written_once_in_five_minutes_however_often_it_comes() {
        let (uses, user, id) = (Uses::default(), UserName::new("alice").unwrap(), Uuid::from_u128(1));
        let start = datetime!(2026-01-01 12:00:00 UTC);
        let mut writes = 0;
        for second in 0..600 {
            let now = start + time::Duration::seconds(second);
            for _ in 0..10 {
                uses.note(id, &user, now);
            }
            for due in uses.due(now) {
                uses.written(due.login_id, &due.user, due.last);
                writes += 1;
            }
        }
        assert_eq!(writes, 2, "at the beginning, and five minutes later");
        let end = start + time::Duration::seconds(599);
        assert_eq!(uses.last(id, &user), Some(end));
        // The last use is not lost when nothing follows it; then the login is forgotten here.
        let later = end + KEPT_TO;
        assert_eq!(uses.due(later), [Due { user: user.clone(), login_id: id, last: end }]);
        uses.written(id, &user, end);
        assert!(uses.due(later).is_empty() && uses.last(id, &user).is_none());
    }

    #[test]
    fn a_use_under_another_users_name_says_nothing_of_a_login() {
        let (uses, id) = (Uses::default(), Uuid::from_u128(1));
        let (alice, bob) = (UserName::new("alice").unwrap(), UserName::new("bob").unwrap());
        let now = datetime!(2026-01-01 12:00:00 UTC);
        let later = now + time::Duration::minutes(1);
        uses.note(id, &alice, now);
        uses.note(id, &bob, later);
        assert_eq!((uses.last(id, &alice), uses.last(id, &bob)), (Some(now), Some(later)));
        uses.forget(id, &bob);
        assert_eq!((uses.last(id, &alice), uses.last(id, &bob)), (Some(now), None));
    }

    #[test]
    fn only_so_many_logins_are_remembered() {
        let (uses, user) = (Uses::default(), UserName::new("alice").unwrap());
        let now = datetime!(2026-01-01 12:00:00 UTC);
        for id in 0..MOST as u128 + 10 {
            uses.note(Uuid::from_u128(id), &user, now);
        }
        assert_eq!(uses.0.lock().len(), MOST);
    }
}
