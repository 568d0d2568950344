//! Which agents hold certificates as which database users, for as long as these are good. In memory: after a restart of the
//! authority none is renewed that was given before, and an agent says of a statement that outlives its session that it goes on.

use std::collections::HashMap;

use parking_lot::Mutex;
use sallyport_access::{DatabaseName, HostId, Identity};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Certificates of one agent that are remembered; past it none more is, and what is not remembered is not renewed.
const MOST_OF_AN_AGENT: usize = 20_000;
/// Of these, of one login; past it the oldest of that login is forgotten, and of no other.
const MOST_OF_A_LOGIN: usize = 256;

/// How often in a minute one is renewed: several sessions of one login may each come to it.
const RENEWALS_A_MINUTE: u32 = 3;

/// Which agent holds one, for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) agent: HostId,
    /// The login of the user's certificate.
    pub(crate) login_id: Uuid,
    pub(crate) database: &'a DatabaseName,
    pub(crate) db_user: &'a str,
}

/// What it holds.
#[derive(Debug, Clone)]
pub(crate) struct Holding {
    until: OffsetDateTime,
    /// The proxy whose word opened the session; none where the user's own did.
    pub(crate) opened_by: Option<Identity>,
    /// When it was given, or the minute began in which it was renewed so often.
    since: OffsetDateTime,
    renewals: u32,
}

impl Holding {
    pub(crate) fn new(until: OffsetDateTime, opened_by: Option<Identity>, now: OffsetDateTime) -> Self {
        Self { until, opened_by, since: now, renewals: 0 }
    }

    /// The same, good until another time.
    pub(crate) fn until(self, until: OffsetDateTime) -> Self {
        Self { until, ..self }
    }

    /// The same, renewed once more. None where it was renewed too often.
    pub(crate) fn renewed(self, now: OffsetDateTime) -> Option<Self> {
        if now >= self.since + Duration::minutes(1) {
            return Some(Self { since: now, renewals: 1, ..self });
        }
        (self.renewals < RENEWALS_A_MINUTE).then(|| Self { renewals: self.renewals + 1, ..self })
    }
}

/// The certificates of one login.
type OfLogin = HashMap<(DatabaseName, String), Holding>;

/// The certificates of one agent.
#[derive(Debug, Default)]
struct OfAgent {
    logins: HashMap<Uuid, OfLogin>,
    count: usize,
}

impl OfAgent {
    fn forget_ended(&mut self, now: OffsetDateTime) {
        for login in self.logins.values_mut() {
            login.retain(|_, held| held.until > now);
        }
        self.logins.retain(|_, login| !login.is_empty());
        self.count = self.logins.values().map(HashMap::len).sum();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<HashMap<HostId, OfAgent>>);

impl Holders {
    pub(crate) fn remember(&self, holder: &Holder<'_>, held: Holding, now: OffsetDateTime) {
        let mut all = self.0.lock();
        let agent = all.entry(holder.agent).or_default();
        if agent.count >= MOST_OF_AN_AGENT {
            agent.forget_ended(now);
        }
        let key = (holder.database.clone(), holder.db_user.to_owned());
        let takes_one_more = |login: &OfLogin| !login.contains_key(&key) && login.len() < MOST_OF_A_LOGIN;
        if agent.logins.get(&holder.login_id).is_none_or(takes_one_more) {
            if agent.count >= MOST_OF_AN_AGENT {
                return;
            }
            agent.count += 1;
        }
        let login = agent.logins.entry(holder.login_id).or_default();
        if !login.contains_key(&key) && login.len() >= MOST_OF_A_LOGIN {
            let oldest = login.iter().min_by_key(|(_, held)| held.since).map(|(key, _)| key.clone());
            oldest.map(|oldest| login.remove(&oldest));
        }
        login.insert(key, held);
    }

    /// What this agent holds for this login, database and user, where it is good still.
    pub(crate) fn find(&self, holder: &Holder<'_>, now: OffsetDateTime) -> Option<Holding> {
        let all = self.0.lock();
        let login = all.get(&holder.agent)?.logins.get(&holder.login_id)?;
        let key = (holder.database.clone(), holder.db_user.to_owned());
        login.get(&key).filter(|held| held.until > now).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn held(since: OffsetDateTime) -> Holding {
        Holding::new(since + Duration::hours(1), None, since)
    }

    #[test]
    fn what_an_agent_holds_is_of_one_login_database_and_user() {
        let (holders, name) = (Holders::default(), DatabaseName::new("prod").unwrap());
        let other = DatabaseName::new("test").unwrap();
        let holder =
            Holder { agent: HostId::new(), login_id: Uuid::new_v4(), database: &name, db_user: "app" };
        holders.remember(&holder, held(NOW), NOW);
        assert!(holders.find(&holder, NOW).is_some());
        assert!(holders.find(&holder, NOW + Duration::hours(1)).is_none(), "it has ended");
        for another in [
            Holder { agent: HostId::new(), ..holder },
            Holder { login_id: Uuid::new_v4(), ..holder },
            Holder { database: &other, ..holder },
            Holder { db_user: "root", ..holder },
        ] {
            assert!(holders.find(&another, NOW).is_none(), "{another:?}");
        }
    }

    #[test]
    fn one_is_renewed_some_times_in_a_minute() {
        let mut holding = held(NOW);
        for _ in 0..RENEWALS_A_MINUTE {
            holding = holding.renewed(NOW).unwrap();
        }
        assert!(holding.clone().renewed(NOW + Duration::seconds(59)).is_none());
        assert!(
            holding
                .renewed(NOW + Duration::minutes(1))
                .unwrap()
                .renewed(NOW + Duration::minutes(1))
                .is_some()
        );
    }

    #[test]
    fn many_users_of_one_login_forget_none_of_another_login_or_agent() {
        let (holders, name) = (Holders::default(), DatabaseName::new("prod").unwrap());
        let holder =
            Holder { agent: HostId::new(), login_id: Uuid::new_v4(), database: &name, db_user: "app" };
        holders.remember(&holder, held(NOW), NOW);
        let login_id = Uuid::new_v4();
        for number in 0..i64::try_from(MOST_OF_A_LOGIN).unwrap() + 1 {
            let user = format!("made-up-{number}");
            let since = NOW + Duration::seconds(number);
            holders.remember(&Holder { login_id, db_user: &user, ..holder }, held(since), since);
        }
        assert!(holders.find(&holder, NOW).is_some());
        assert!(holders.find(&Holder { login_id, db_user: "made-up-0", ..holder }, NOW).is_none());
        assert!(holders.find(&Holder { login_id, db_user: "made-up-1", ..holder }, NOW).is_some());
    }

    #[test]
    fn an_agent_of_very_many_is_given_what_is_forgotten_and_forgets_what_has_ended() {
        let (holders, name) = (Holders::default(), DatabaseName::new("prod").unwrap());
        let agent = HostId::new();
        let of = |login_id| Holder { agent, login_id, database: &name, db_user: "app" };
        for _ in 0..MOST_OF_AN_AGENT {
            holders.remember(&of(Uuid::new_v4()), held(NOW), NOW);
        }
        let login_id = Uuid::new_v4();
        holders.remember(&of(login_id), held(NOW), NOW);
        assert!(holders.find(&of(login_id), NOW).is_none());
        let later = NOW + Duration::hours(2);
        holders.remember(&of(login_id), held(later), later);
        assert!(holders.find(&of(login_id), later).is_some());
        assert_eq!(holders.0.lock()[&agent].count, 1);
    }
}
