//! Proofs of a second factor while they serve sessions. They are in memory alone: after a restart the authority asks anew.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use sallyport_access::factor::place_of;
use sallyport_access::{FactorDemand, SessionFactor, SessionTarget, UserName};
use time::OffsetDateTime;
use uuid::Uuid;

/// Proofs that are kept of one login, the latest.
const MOST_OF_LOGIN: usize = 32;
/// Logins whose proofs are kept.
const MOST_LOGINS: usize = 50_000;
/// How long a user who has refused is not asked again.
pub(crate) const QUIET: time::Duration = time::Duration::seconds(60);
/// How often that is so of one [`Question`] in [`QUIET_WINDOW`]: a thief with the login's key, who can join its questions and refuse them from
/// behind the same address, does not keep its person from being asked for longer.
const MOST_QUIET: u32 = 3;
const QUIET_WINDOW: time::Duration = time::Duration::minutes(10);

/// For which sessions a proof is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// For these.
    Targets(Vec<SessionTarget>),
    /// For all whose roles let a proof serve for a time.
    All,
}

/// A second factor that a user has proven for sessions. The login stands for its keys: it has one of SSH and one of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) user: UserName,
    pub(crate) login: Uuid,
    /// Where the sessions come from; it serves those of the same [`place_of`].
    pub(crate) address: IpAddr,
    pub(crate) scope: Scope,
    /// What the proof is worth.
    pub(crate) worth: SessionFactor,
    /// The factor; none of a recovery code.
    pub(crate) factor: Option<Uuid>,
    /// The factor as its user calls it, for the record.
    pub(crate) name: String,
    pub(crate) proven_at: OffsetDateTime,
    /// The end that was asked for.
    pub(crate) until: OffsetDateTime,
}

impl Grant {
    /// Until when it serves a session, where it does.
    pub(crate) fn serves(
        &self,
        user: &UserName,
        address: IpAddr,
        demand: &FactorDemand,
        now: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        let covers = match &self.scope {
            Scope::Targets(targets) => targets.iter().any(|target| target.covers(&demand.target)),
            Scope::All => !demand.rule.grace.is_zero(),
        };
        let until = self.until.min(self.proven_at + demand.rule.serves());
        let holds = covers
            && self.user == *user
            && place_of(self.address) == place_of(address)
            && self.worth >= demand.rule.factor
            && self.proven_at <= now
            && now < until;
        holds.then_some(until)
    }
}

/// Which questions a refusal is about: those of one login at one place, that the user's own program asks or that one proxy does. A page
/// refuses without a code, so that a proxy that refuses its own questions silences those alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    login: Uuid,
    place: IpAddr,
    /// The proxy that asks.
    proxy: Option<String>,
}

impl Question {
    fn of(login: Uuid, address: IpAddr, proxy: Option<&str>) -> Self {
        Self { login, place: place_of(address), proxy: proxy.map(str::to_owned) }
    }
}

/// Refusals of one question.
#[derive(Debug, Clone, Copy)]
struct Refused {
    since: OffsetDateTime,
    times: u32,
    until: OffsetDateTime,
}

/// The proofs of all logins, and who has refused to prove.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    kept: Mutex<HashMap<Uuid, Vec<Grant>>>,
    refused: Mutex<HashMap<Question, Refused>>,
}

impl Grants {
    /// Keeps a proof.
    pub(crate) fn add(&self, grant: Grant, now: OffsetDateTime) {
        let mut kept = self.kept.lock();
        if kept.len() >= MOST_LOGINS {
            kept.retain(|_, grants| grants.iter().any(|grant| now < grant.until));
        }
        if kept.len() >= MOST_LOGINS && !kept.contains_key(&grant.login) {
            return tracing::warn!(
                "more proofs of second factors than are kept: one is not, and its user is asked again"
            );
        }
        let own = kept.entry(grant.login).or_default();
        own.retain(|grant| now < grant.until);
        if own.len() >= MOST_OF_LOGIN {
            own.remove(0);
        }
        own.push(grant);
    }

    /// The proofs of a login that serve a session, with until when.
    pub(crate) fn serving(
        &self,
        login: Uuid,
        user: &UserName,
        address: IpAddr,
        demand: &FactorDemand,
        now: OffsetDateTime,
    ) -> Vec<(Grant, OffsetDateTime)> {
        let kept = self.kept.lock();
        let own = kept.get(&login).map(Vec::as_slice).unwrap_or_default();
        own.iter()
            .filter_map(|grant| {
                let until = grant.serves(user, address, demand, now)?;
                Some((grant.clone(), until))
            })
            .collect()
    }

    /// A user has refused to prove for a login, or failed to, where the user's own program or a proxy has asked.
    pub(crate) fn refused(&self, login: Uuid, address: IpAddr, proxy: Option<&str>, now: OffsetDateTime) {
        let mut refused = self.refused.lock();
        refused.retain(|_, known| now < known.until.max(known.since + QUIET_WINDOW));
        let (question, full) = (Question::of(login, address, proxy), refused.len() >= MOST_LOGINS);
        match refused.get_mut(&question) {
            Some(known) if now < known.since + QUIET_WINDOW => {
                known.times = known.times.saturating_add(1);
                if known.times <= MOST_QUIET {
                    known.until = now + QUIET;
                }
            }
            None if full => {}
            Some(_) | None => {
                refused.insert(question, Refused { since: now, times: 1, until: now + QUIET });
            }
        }
    }

    /// Until when a user is not asked by the same asker, where they have refused.
    pub(crate) fn quiet(
        &self,
        login: Uuid,
        address: IpAddr,
        proxy: Option<&str>,
        now: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        let refused = self.refused.lock();
        let question = Question::of(login, address, proxy);
        refused.get(&question).map(|known| known.until).filter(|until| now < *until)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use sallyport_access::{FactorRule, Kind};

    use super::*;

    fn demand(resource: &str, factor: SessionFactor, grace: u64) -> FactorDemand {
        let rule = FactorRule { factor, grace: Duration::from_secs(grace) };
        FactorDemand { rule, target: SessionTarget::any(Kind::App, resource) }
    }

    fn grant(now: OffsetDateTime) -> Grant {
        Grant {
            user: UserName::new("alice").unwrap(),
            login: Uuid::from_u128(1),
            address: "192.0.2.1".parse().unwrap(),
            scope: Scope::Targets(vec![SessionTarget::any(Kind::App, "wiki")]),
            worth: SessionFactor::Yes,
            factor: None,
            name: "phone".to_owned(),
            proven_at: now,
            until: now + Duration::from_secs(1800),
        }
    }

    /// Every part of the tuple that a proof is bound to, changed by itself.
    #[test]
    fn a_proof_serves_its_own_user_address_target_kind_and_time_alone() {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(86_400);
        let (yes, address) = (SessionFactor::Yes, "192.0.2.1".parse().unwrap());
        let (alice, bob) = (UserName::new("alice").unwrap(), UserName::new("bob").unwrap());
        let one = grant(now);
        let wiki = demand("wiki", yes, 300);
        let minute = Duration::from_secs(60);
        assert_eq!(one.serves(&alice, address, &wiki, now), Some(now + 5 * minute));
        assert_eq!(
            one.serves(&alice, address, &demand("wiki", yes, 0), now),
            Some(now + minute),
            "its own session"
        );
        assert_eq!(
            one.serves(&alice, "::ffff:192.0.2.1".parse().unwrap(), &wiki, now),
            Some(now + 5 * minute)
        );
        assert_eq!(one.serves(&bob, address, &wiki, now), None, "of another user");
        assert_eq!(one.serves(&alice, "192.0.2.2".parse().unwrap(), &wiki, now), None, "from elsewhere");
        let by_ipv6 = Grant { address: "2001:db8:1:2:aaaa::1".parse().unwrap(), ..one.clone() };
        let serves = |from: &str| by_ipv6.serves(&alice, from.parse().unwrap(), &wiki, now).is_some();
        assert!(serves("2001:db8:1:2:bbbb::7"), "another address of its machine's");
        assert!(!serves("2001:db8:1:3:aaaa::1") && !serves("192.0.2.1"), "of another subscriber");
        assert_eq!(one.serves(&alice, address, &demand("mail", yes, 300), now), None, "of another resource");
        assert_eq!(
            one.serves(&alice, address, &demand("wiki", SessionFactor::Hardware, 300), now),
            None,
            "worth less"
        );
        assert_eq!(one.serves(&alice, address, &wiki, now + 5 * minute), None, "over");
        assert_eq!(one.serves(&alice, address, &wiki, now - minute), None, "from before");
        let all = Grant { scope: Scope::All, ..one };
        assert!(all.serves(&alice, address, &demand("mail", yes, 300), now).is_some());
        assert_eq!(all.serves(&alice, address, &demand("mail", yes, 0), now), None, "no time is given there");
        let short = Grant { until: now + minute, ..all };
        assert_eq!(short.serves(&alice, address, &wiki, now + minute), None, "an end that was asked for");
    }

    #[test]
    fn proofs_are_found_by_their_login_and_bounded() {
        let (grants, now) = (Grants::default(), OffsetDateTime::UNIX_EPOCH + Duration::from_secs(86_400));
        let (alice, address) = (UserName::new("alice").unwrap(), "192.0.2.1".parse().unwrap());
        for _ in 0..MOST_OF_LOGIN + 1 {
            grants.add(grant(now), now);
        }
        let wiki = demand("wiki", SessionFactor::Yes, 300);
        assert_eq!(grants.serving(Uuid::from_u128(1), &alice, address, &wiki, now).len(), MOST_OF_LOGIN);
        assert!(
            grants.serving(Uuid::from_u128(2), &alice, address, &wiki, now).is_empty(),
            "another login's"
        );
        grants.refused(Uuid::from_u128(1), address, None, now);
        assert_eq!(grants.quiet(Uuid::from_u128(1), address, None, now), Some(now + QUIET));
        assert_eq!(grants.quiet(Uuid::from_u128(1), address, None, now + QUIET), None);
        assert_eq!(grants.quiet(Uuid::from_u128(2), address, None, now), None);
    }

    /// A proxy that was taken over asks with the user's address, and refuses it itself.
    #[test]
    fn attacks_a_proxy_that_refuses_what_it_has_asked_silences_no_question_but_its_own() {
        let (grants, now) = (Grants::default(), OffsetDateTime::UNIX_EPOCH + Duration::from_secs(86_400));
        let (login, address) = (Uuid::from_u128(1), "192.0.2.1".parse().unwrap());
        grants.refused(login, address, Some("proxy:taken"), now);
        assert_eq!(grants.quiet(login, address, Some("proxy:taken"), now), Some(now + QUIET));
        assert_eq!(grants.quiet(login, address, None, now), None, "the user's own");
        assert_eq!(grants.quiet(login, address, Some("proxy:other"), now), None);
        grants.refused(login, address, None, now);
        assert_eq!(grants.quiet(login, address, None, now), Some(now + QUIET));
        assert_eq!(grants.quiet(login, address, Some("proxy:other"), now), None);
    }

    #[test]
    fn attacks_refusals_again_and_again_do_not_keep_a_person_from_being_asked() {
        let (grants, now) = (Grants::default(), OffsetDateTime::UNIX_EPOCH + Duration::from_secs(86_400));
        let (login, address): (Uuid, IpAddr) = (Uuid::from_u128(1), "192.0.2.1".parse().unwrap());
        let mut frozen = time::Duration::ZERO;
        // Each question is refused at once, for ten minutes.
        for second in 0..QUIET_WINDOW.whole_seconds() {
            let now = now + time::Duration::seconds(second);
            match grants.quiet(login, address, None, now) {
                Some(_) => frozen += time::Duration::SECOND,
                None => grants.refused(login, address, None, now),
            }
        }
        assert!(frozen < QUIET * 3 && frozen > QUIET * 2, "{frozen}");
        // One who refuses once, later, is not asked again for a while.
        let later = now + QUIET_WINDOW * 2;
        grants.refused(login, address, None, later);
        assert_eq!(grants.quiet(login, address, None, later), Some(later + QUIET));
    }
}
