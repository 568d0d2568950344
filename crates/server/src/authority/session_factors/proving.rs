//! A second factor as it is proven by a code that is typed, and the proofs that serve a session.

use std::net::IpAddr;
use std::sync::Arc;

use sallyport_access::FactorDemand;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::accounts::opening::Standing;
use crate::authority::challenges::changes::Own;
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::records::{ChallengeRecord, NamedTarget, SessionsAsked, State};
use crate::authority::session_factors::asked::{Asker, MOST_TARGETS, SessionFactors, state_of};
use crate::authority::session_factors::awaited::Call;

/// How often a code is held against a challenge that others change at the same moment.
const TRIES: usize = 3;

/// Which proofs serve sessions of one login, from one place: what they rest on is read once, however many sessions are asked about.
pub(super) struct Proofs<'a> {
    factors: &'a SessionFactors,
    own: &'a Own,
    address: IpAddr,
    now: OffsetDateTime,
    standing: Option<Standing>,
}

impl Proofs<'_> {
    /// The proof that serves a session, where there is one that stands.
    pub(super) async fn of(
        &mut self,
        demand: &FactorDemand,
    ) -> Result<Option<(String, OffsetDateTime)>, Status> {
        let Self { factors, own, address, now, .. } = *self;
        for (grant, until) in factors.challenges.grants.serving(own.login, &own.user, address, demand, now) {
            let standing = match &mut self.standing {
                Some(standing) => standing,
                unread => unread.insert(factors.accounts.standing(&own.user, now).await?),
            };
            match standing.bears(grant.factor, grant.proven_at) {
                Ok(()) => return Ok(Some((grant.name, until))),
                Err(refusal) if refusal.status.code() == tonic::Code::PermissionDenied => {}
                Err(refusal) => return Err(refusal.status),
            }
        }
        Ok(None)
    }
}

impl SessionFactors {
    pub(super) fn proofs<'a>(&'a self, own: &'a Own, address: IpAddr, now: OffsetDateTime) -> Proofs<'a> {
        Proofs { factors: self, own, address, now, standing: None }
    }

    /// Proves a challenge of a login by a one-time or recovery code, for the sessions that the person has read where they typed it. What
    /// else was asked for by then may be a thief's, who has the login's key and is at the same address.
    pub(crate) async fn prove(
        self: &Arc<Self>,
        asker: &Asker<'_>,
        id: &str,
        otp: Zeroizing<String>,
        shown: &[v1::SessionTarget],
    ) -> Result<v1::SessionFactorState, Status> {
        let now = OffsetDateTime::now_utc();
        let (own, guesser) = (asker.own()?, asker.guesser());
        let mut tries = 0;
        // Whose it is, before anything is kept of it. A code may take seconds to compare, and its program does not wait meanwhile.
        self.asked(&guesser, &own, id, now).await?;
        let _there = asker.proxy.is_none().then(|| self.there(asker.caller, id, Call::Acts));
        loop {
            let stored = self.asked(&guesser, &own, id, now).await?;
            self.challenges.still_asked(&stored.value, now).await?;
            // The page may have proven it while the code was typed: what the code was for is there, and the code is not spent.
            if matches!(stored.value.state, State::Proven(_)) && self.covers(asker, &stored.value, shown, now)
            {
                return Ok(state_of(&stored.value));
            }
            Challenges::is_pending(&stored)?;
            let asked = stored.value.purpose.sessions().map(|asked| self.as_shown(asker, asked, shown, now));
            let asked = asked.transpose()?;
            let event = |code| asker.event(code);
            let proven =
                self.challenges.prove_code(&guesser, event, &stored, &own.user, (otp.as_str(), asked), now);
            tries += 1;
            match proven.await {
                Ok(()) => break,
                // A session joined at this moment, or a page was shown. The code is spent by what is written alone.
                Err(status) if status.code() == tonic::Code::Aborted && tries < TRIES => {}
                // Programs and proxies take it for a caller whose certificate is refused, and would not let the person type another code.
                Err(status) if status.code() == tonic::Code::Unauthenticated => {
                    return Err(Status::permission_denied(status.message()));
                }
                Err(status) => return Err(status),
            }
        }
        let stored = self.asked(&guesser, &own, id, now).await?;
        Ok(state_of(&stored.value))
    }

    /// Whether what was proven is all that the person has read. Another program's code may have proven what that one had asked for.
    fn covers(
        &self,
        asker: &Asker<'_>,
        record: &ChallengeRecord,
        shown: &[v1::SessionTarget],
        now: OffsetDateTime,
    ) -> bool {
        let Some(asked) = record.purpose.sessions() else { return false };
        let is_proven = |target: &v1::SessionTarget| {
            let with = self.targets.find(target);
            let demand = with.and_then(|with| self.targets.demand(&asker.user, &with, target, now));
            demand.is_ok_and(|demand| {
                demand.is_none_or(|demand| {
                    asked.targets.iter().any(|known| known.target.covers(&demand.target))
                })
            })
        };
        asked.all || !asked.partly || shown.iter().all(is_proven)
    }

    /// What was asked for, without what the person has not read.
    fn as_shown(
        &self,
        asker: &Asker<'_>,
        asked: &SessionsAsked,
        shown: &[v1::SessionTarget],
        now: OffsetDateTime,
    ) -> Result<SessionsAsked, Status> {
        if asked.all {
            return Ok(asked.clone());
        }
        if shown.is_empty() {
            return Err(Status::permission_denied(
                "this program does not say which sessions it has shown you: update it, or prove the factor at the page",
            ));
        }
        if shown.len() > MOST_TARGETS {
            return Err(Status::invalid_argument(format!(
                "a code proves at most {MOST_TARGETS} sessions at a time, and the call names {}",
                shown.len()
            )));
        }
        let mut targets: Vec<NamedTarget> = Vec::new();
        for target in shown {
            // What is not there any more, or demands nothing any more, is not asked for either.
            let Ok(with) = self.targets.find(target) else { continue };
            let Ok(Some(demand)) = self.targets.demand(&asker.user, &with, target, now) else { continue };
            let named = NamedTarget { target: demand.target, name: with.name() };
            let is_asked = asked.targets.iter().any(|known| known.target.covers(&named.target));
            if is_asked && !targets.contains(&named) {
                targets.push(named);
            }
        }
        if targets.is_empty() {
            return Err(Status::failed_precondition(
                "none of the sessions that this question named is asked for; connect again, and prove it anew",
            ));
        }
        let is_read = |known: &NamedTarget| targets.iter().any(|read| read.target.covers(&known.target));
        let partly = !asked.targets.iter().all(is_read);
        Ok(SessionsAsked { targets, partly, ..asked.clone() })
    }
}
