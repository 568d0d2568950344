//! What administrators have proven for dangerous acts: for one login, from one place, and not for long.
//!
//! It is in memory alone: an authority that starts anew asks again.

use parking_lot::Mutex;
use sallyport_access::{Identity, UserName};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::places::{Bounded, Place};

/// How long a proof serves.
pub(crate) const LIFETIME: time::Duration = time::Duration::minutes(5);
/// How long it is known what a login was refused for want of a proof: as long as the challenge that shows it.
const ASKED_LIFETIME: time::Duration = time::Duration::minutes(10);
/// Logins that are remembered; past that, the one goes that was quiet for the longest, and is asked again.
const REMEMBERED: usize = 10_000;

/// A factor that was proven for dangerous acts.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    /// Whose it is, with the login that it serves. All certificates of a login are over the same keys.
    pub(crate) identity: Identity,
    /// From where it serves.
    pub(crate) place: Place,
    /// The factor, which has to be theirs still; none of a recovery code.
    pub(crate) factor: Option<Uuid>,
    /// Hash of what the password was kept as, which has to be the same still.
    pub(crate) password: Option<String>,
    pub(crate) at: OffsetDateTime,
}

impl Proof {
    /// Whether it serves a call of this user, from there and now.
    fn serves(&self, user: &UserName, place: Place, now: OffsetDateTime) -> bool {
        let age = now - self.at;
        self.identity.user() == Some(user)
            && self.place == place
            && (time::Duration::ZERO..LIFETIME).contains(&age)
    }
}

/// Proofs by login, and what logins were last refused for want of one.
#[derive(Debug)]
pub(crate) struct ProofTable {
    proofs: Mutex<Bounded<Uuid, Proof>>,
    asked: Mutex<Bounded<Uuid, (OffsetDateTime, String)>>,
}

impl Default for ProofTable {
    fn default() -> Self {
        Self { proofs: Mutex::new(Bounded::new(REMEMBERED)), asked: Mutex::new(Bounded::new(REMEMBERED)) }
    }
}

impl ProofTable {
    /// Keeps a proof for its login.
    pub(crate) fn keep(&self, proof: Proof) {
        let login = proof.identity.login_id;
        let mut table = self.proofs.lock();
        let (kept, _) = table.touch(&login, || proof.clone());
        *kept = proof;
    }

    /// The proof that serves a call of a login.
    pub(crate) fn of(
        &self,
        login: Uuid,
        user: &UserName,
        place: Place,
        now: OffsetDateTime,
    ) -> Option<Proof> {
        self.proofs.lock().get(&login).filter(|proof| proof.serves(user, place, now)).cloned()
    }

    /// Voids what was proven by logins that a lock is against, for good: a lock that is lifted brings no proof back.
    pub(crate) fn void(&self, locked: impl Fn(&Identity) -> bool) {
        self.proofs.lock().drain(|proof| locked(&proof.identity));
    }

    /// Notes what a login was refused for want of a proof.
    pub(crate) fn note_asked(&self, login: Uuid, act: &str, now: OffsetDateTime) {
        let mut table = self.asked.lock();
        *table.touch(&login, || (now, String::new())).0 = (now, act.to_owned());
    }

    /// What a login was last refused for want of a proof, not long ago.
    pub(crate) fn asked_by(&self, login: Uuid, now: OffsetDateTime) -> Option<String> {
        let table = self.asked.lock();
        let (at, act) = table.get(&login)?;
        (now - *at < ASKED_LIFETIME).then(|| act.clone())
    }
}

/// For tests: a user who holds nothing, with a login of an hour.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) fn person(user: &str, at: OffsetDateTime) -> Identity {
    let principal = sallyport_access::Principal::User {
        name: user.parse().unwrap(),
        roles: Vec::new(),
        logins: Vec::new(),
        traits: Default::default(),
    };
    let (login_id, valid_before) = (Uuid::new_v4(), at + time::Duration::HOUR);
    Identity { principal, device: None, pinned_to: None, login_id, valid_after: at, valid_before }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn proof(user: &str, address: &str, at: OffsetDateTime) -> Proof {
        Proof { identity: person(user, at), place: place(address), factor: None, password: None, at }
    }

    fn place(address: &str) -> Place {
        Place::of(address.parse().unwrap())
    }

    #[test]
    fn a_proof_serves_its_login_from_where_it_was_given_for_five_minutes() {
        let (table, now) = (ProofTable::default(), OffsetDateTime::UNIX_EPOCH);
        let alices = proof("alice", "192.0.2.1", now);
        let (login, alice, bob) =
            (alices.identity.login_id, "alice".parse().unwrap(), "bob".parse().unwrap());
        table.keep(alices);
        let home = place("192.0.2.1");
        assert!(table.of(login, &alice, home, now).is_some());
        assert!(table.of(login, &alice, home, now + LIFETIME - time::Duration::MILLISECOND).is_some());
        assert!(table.of(login, &alice, home, now + LIFETIME).is_none(), "expired");
        assert!(table.of(login, &alice, home, now - time::Duration::SECOND).is_none(), "the clock went back");
        assert!(table.of(login, &alice, place("192.0.2.2"), now).is_none(), "from elsewhere");
        assert!(table.of(login, &bob, home, now).is_none(), "of another user");
        assert!(table.of(Uuid::new_v4(), &alice, home, now).is_none(), "of another login");
    }

    #[test]
    fn a_lock_voids_for_good_and_what_is_forgotten_is_asked_again() {
        let (table, now) = (ProofTable::default(), OffsetDateTime::UNIX_EPOCH);
        let (alices, bobs) = (proof("alice", "192.0.2.1", now), proof("bob", "192.0.2.1", now));
        let (hers, his) = (alices.identity.login_id, bobs.identity.login_id);
        let (alice, bob): (UserName, UserName) = ("alice".parse().unwrap(), "bob".parse().unwrap());
        table.keep(alices);
        table.keep(bobs);
        table.void(|identity| identity.user() == Some(&alice));
        assert!(table.of(hers, &alice, place("192.0.2.1"), now).is_none());
        assert!(table.of(his, &bob, place("192.0.2.1"), now).is_some());
        for _ in 0..REMEMBERED {
            table.keep(proof("carol", "192.0.2.9", now));
        }
        assert!(table.of(his, &bob, place("192.0.2.1"), now).is_none());
        assert_eq!(table.proofs.lock().len(), REMEMBERED);
    }

    #[test]
    fn what_was_asked_for_is_known_for_as_long_as_it_can_be_shown() {
        let (table, now, login) = (ProofTable::default(), OffsetDateTime::UNIX_EPOCH, Uuid::new_v4());
        assert_eq!(table.asked_by(login, now), None);
        table.note_asked(login, "create user", now);
        table.note_asked(login, "delete role/dev", now);
        assert_eq!(table.asked_by(login, now).as_deref(), Some("delete role/dev"));
        assert_eq!(table.asked_by(login, now + ASKED_LIFETIME), None);
    }
}
