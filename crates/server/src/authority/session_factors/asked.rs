//! A second factor as it is asked for: by users themselves, and by proxies for those whose clients cannot.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sallyport_access::factor::{LONGEST_GRACE, place_of};
use sallyport_access::{FactorRule, Identity, Principal, SessionFactor};
use sallyport_audit::{Code, Event};
use sallyport_store::{Store, Stored};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::login::Accounts;
use crate::authority::accounts::turns::Turns;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, TellingHost, host_name};
use crate::authority::challenges::changes::Own;
use crate::authority::challenges::kept::{Asking, Challenges};
use crate::authority::challenges::records::{ChallengeRecord, NamedTarget, Purpose, SessionsAsked, State};
use crate::authority::challenges::terminal;
use crate::authority::factors::kept::{Factors, Held};
use crate::authority::gate::calls::Gate;
use crate::authority::identities::known::Identities;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::session_factors::awaited::{Awaited, Call};
use crate::authority::session_factors::pending::{Open, Pending, Tuple};
use crate::authority::session_factors::targets::Targets;
use crate::authority::storage::storage;

/// Sessions that one call asks for.
pub(super) const MOST_TARGETS: usize = 1_000;
/// Sessions that one challenge is for, with those that have joined.
const MOST_JOINED: usize = 2_000;
/// Sessions that one challenge of a proxy's is for: all of them stand in one prompt of a stock client.
const MOST_JOINED_FOR: usize = 100;

/// The second factor for each session.
#[derive(Debug)]
pub(crate) struct SessionFactors {
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) gate: Arc<Gate>,
    pub(super) identities: Arc<Identities>,
    pub(super) issuance: Arc<Issuance>,
    pub(super) factors: Arc<Factors>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) challenges: Arc<Challenges>,
    pub(super) targets: Targets,
    pub(super) awaited: Awaited,
    pending: Pending,
    turns: Turns,
}

/// Whose sessions they are, and from where.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    /// Who calls: the user, or the proxy.
    pub(crate) caller: &'a Caller,
    /// The user, as they are now.
    pub(crate) user: Identity,
    pub(crate) address: IpAddr,
    /// What the user's machine calls itself.
    pub(crate) host_name: String,
    /// The proxy that asks.
    pub(crate) proxy: Option<String>,
}

impl Asker<'_> {
    pub(super) fn own(&self) -> Result<Own, Status> {
        own_of(&self.user)
    }

    /// Whose wrong guesses they are: of what a proxy asks those of where its client is, so that no one client has its proxy barred, and with
    /// it all others.
    pub(crate) fn guesser(&self) -> Caller {
        match (&self.proxy, self.caller.identity().map(TellingHost::of)) {
            (Some(_), Some(Ok(proxy))) => Caller::Behind { proxy, address: SocketAddr::new(self.address, 0) },
            _ => self.caller.clone(),
        }
    }

    /// An event of what they ask; one that a proxy asks names it, and has the user's address.
    pub(super) fn event(&self, code: Code) -> Event {
        let event = self.caller.event(code);
        match &self.proxy {
            Some(proxy) => event.field("proxy", proxy.clone()).source(self.address.to_string()),
            None => event,
        }
    }
}

pub(super) fn own_of(user: &Identity) -> Result<Own, Status> {
    match &user.principal {
        Principal::User { name, .. } => Ok(Own { user: name.clone(), login: user.login_id }),
        Principal::Host { .. } => Err(Status::permission_denied("hosts have no factors: this is for users")),
    }
}

/// Which sessions are asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) targets: Vec<v1::SessionTarget>,
    pub(crate) all: bool,
    /// 0: as long as the roles say.
    pub(crate) seconds: u32,
}

/// What a person needs a factor for, once what needs none is left out.
struct Needed {
    rule: FactorRule,
    targets: Vec<NamedTarget>,
    all: bool,
    seconds: u32,
}

impl SessionFactors {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        store: &Store,
        journal: &Arc<Journal>,
        gate: &Arc<Gate>,
        identities: &Arc<Identities>,
        issuance: &Arc<Issuance>,
        factors: &Arc<Factors>,
        accounts: &Arc<Accounts>,
        challenges: &Arc<Challenges>,
        targets: Targets,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
            identities: Arc::clone(identities),
            issuance: Arc::clone(issuance),
            factors: Arc::clone(factors),
            accounts: Arc::clone(accounts),
            challenges: Arc::clone(challenges),
            targets,
            awaited: Awaited::default(),
            pending: Pending::default(),
            turns: Turns::default(),
        })
    }

    /// Asks for a factor, unless nothing demands one or it is proven already. What a login asks for while a challenge of its own is
    /// open joins it; what a proxy asks for joins only what the same proxy has asked for.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        asker: &Asker<'_>,
        wanted: Wanted,
    ) -> Result<v1::SessionFactorAsked, Status> {
        let now = OffsetDateTime::now_utc();
        let own = asker.own()?;
        let Some(needed) = self.needed(asker, &own, wanted, now).await? else {
            return Ok(v1::SessionFactorAsked { state: "none".to_owned(), ..Default::default() });
        };
        self.accounts.take_over_codes(&own.user, now).await?;
        let held = self.factors.held(&own.user, now).await?;
        let (passkeys, codes) = self.ways(&held, needed.rule.factor)?;
        let quiet = self.challenges.grants.quiet(own.login, asker.address, asker.proxy.as_deref(), now);
        if let Some(until) = quiet {
            let left = (until - now).whole_seconds().max(1);
            return Err(Status::permission_denied(format!(
                "the second factor for this session was refused; it is not asked for again for {left} s. If that was not you, another program may \
                 have this login: sallyport logout, and log in again"
            )));
        }
        let tuple = Tuple {
            login: own.login,
            place: place_of(asker.address),
            factor: needed.rule.factor,
            all: needed.all,
            seconds: needed.seconds,
            proxy: asker.proxy.clone(),
        };
        // Those that come at once find what the first of them has opened.
        let _turn = self.turns.take(&own.login.to_string()).await?;
        // The program is there until it is answered, and asks again from then on.
        let known = self.pending.find(&tuple, now);
        let held = known.as_ref().map(|open| self.there(asker.caller, &open.id, Call::Acts));
        let joined = match (known, &held) {
            (Some(open), Some(Some(_))) => self.join(open, &tuple, &needed, now).await?,
            _ => None,
        };
        let is_joined = joined.is_some();
        let open = match joined {
            Some(open) => open,
            None => self.open(asker, &own, &tuple, &needed, now).await?,
        };
        metrics::counter!("sallyport_session_factors_asked_total", "joined" => if is_joined { "yes" } else { "no" })
            .increment(1);
        Ok(v1::SessionFactorAsked {
            state: "pending".to_owned(),
            page: Some(v1::ChallengePage {
                path: format!("/approve#{}", open.id),
                origins: self.factors.origins(),
                expires: Some(convert::time_to_proto(open.expires)),
                challenge: open.id,
            }),
            code: open.code,
            demand: needed.rule.factor.as_str().to_owned(),
            joined: is_joined,
            codes,
            passkeys,
        })
    }

    /// What is left once that is out which needs no factor, is proven, is not there or is not the user's to have.
    async fn needed(
        &self,
        asker: &Asker<'_>,
        own: &Own,
        wanted: Wanted,
        now: OffsetDateTime,
    ) -> Result<Option<Needed>, Status> {
        let longest = u32::try_from(LONGEST_GRACE.as_secs()).unwrap_or(u32::MAX);
        let seconds = if wanted.seconds == 0 { longest } else { wanted.seconds.min(longest) };
        if wanted.all {
            let rule = self.targets.strictest(&asker.user);
            if rule.factor == SessionFactor::No {
                return Ok(None);
            }
            if rule.grace.is_zero() {
                return Err(Status::failed_precondition(
                    "your roles want a factor before each session and let no proof serve for a time (session_mfa_ttl); it is asked for \
                     when a session begins",
                ));
            }
            let seconds = seconds.min(u32::try_from(rule.grace.as_secs()).unwrap_or(longest));
            return Ok(Some(Needed { rule, targets: Vec::new(), all: true, seconds }));
        }
        if wanted.targets.is_empty() {
            return Err(Status::invalid_argument("the call names no session that a factor is asked for"));
        }
        if wanted.targets.len() > MOST_TARGETS {
            return Err(Status::invalid_argument(format!(
                "a factor is asked for at most {MOST_TARGETS} sessions at a time, and the call names {}",
                wanted.targets.len()
            )));
        }
        let (mut rule, mut targets, mut refusal) = (FactorRule::default(), Vec::new(), None);
        let several = wanted.targets.len() > 1;
        let mut proofs = self.proofs(own, asker.address, now);
        for asked in &wanted.targets {
            let demand = self
                .targets
                .find(asked)
                .and_then(|with| Ok((self.targets.demand(&asker.user, &with, asked, now)?, with)));
            let (demand, with) = match demand {
                Ok((Some(demand), with)) => (demand, with),
                Ok((None, _)) => continue,
                Err(status) => {
                    refusal = refusal.or(Some(status));
                    continue;
                }
            };
            if proofs.of(&demand).await?.is_none() {
                rule = rule.and(demand.rule);
                let named = NamedTarget { target: demand.target, name: with.name() };
                if !targets.contains(&named) {
                    targets.push(named);
                }
            }
        }
        match (targets.is_empty(), refusal) {
            // Of several, those that may not be are refused when they are opened.
            (true, Some(refusal)) if !several => Err(refusal),
            (true, _) => Ok(None),
            (false, _) => Ok(Some(Needed { rule, targets, all: false, seconds })),
        }
    }

    /// By what the user can prove it: by passkeys, by codes.
    fn ways(&self, held: &Held, wants: SessionFactor) -> Result<(bool, bool), Status> {
        let passkeys = self.factors.passkeys().is_some() && !held.credentials_worth(wants).is_empty();
        let codes = held.has_codes() && wants < SessionFactor::Hardware;
        if passkeys || codes {
            return Ok((passkeys, codes));
        }
        Err(Status::failed_precondition(match wants {
            SessionFactor::Hardware => {
                "this session wants a passkey or security key that does not leave its device (require_session_mfa: hardware), and you have none; add one: sallyport mfa add"
            }
            _ => {
                "this session wants a second factor (require_session_mfa), and you have none; add one: sallyport mfa add"
            }
        }))
    }

    /// The open challenge that takes these sessions, too. One that a page has shown takes none that it has not.
    async fn join(
        &self,
        open: Open,
        tuple: &Tuple,
        needed: &Needed,
        now: OffsetDateTime,
    ) -> Result<Option<Open>, Status> {
        let key = crate::authority::secrets::hash_of(&open.id);
        // A page may be shown, or a wrong code counted, at this moment.
        for _ in 0..4 {
            let stored =
                self.store.get::<ChallengeRecord>(&key, now).await.map_err(|error| storage(&error))?;
            let Some(stored) = stored.filter(|stored| stored.value.is_open(now)) else { break };
            let mut next = stored.value.clone();
            let Purpose::Session(asked) = &mut next.purpose else { break };
            if stored.value.state != State::Pending {
                break;
            }
            let new: Vec<&NamedTarget> = needed
                .targets
                .iter()
                .filter(|named| !asked.targets.iter().any(|known| known.target.covers(&named.target)))
                .collect();
            if new.is_empty() {
                return Ok(Some(open));
            }
            let most = if tuple.proxy.is_some() { MOST_JOINED_FOR } else { MOST_JOINED };
            if asked.shown || asked.targets.len() + new.len() > most {
                break;
            }
            asked.targets.extend(new.into_iter().cloned());
            match self.challenges.write(&stored, &next, Vec::new(), now).await {
                Ok(_) => return Ok(Some(open)),
                Err(status) if status.code() == tonic::Code::Aborted => {}
                Err(status) => return Err(status),
            }
        }
        self.pending.forget(tuple);
        Ok(None)
    }

    /// A challenge of its own.
    async fn open(
        &self,
        asker: &Asker<'_>,
        own: &Own,
        tuple: &Tuple,
        needed: &Needed,
        now: OffsetDateTime,
    ) -> Result<Open, Status> {
        let purpose = Purpose::Session(SessionsAsked {
            factor: needed.rule.factor,
            targets: needed.targets.clone(),
            all: needed.all,
            seconds: needed.seconds,
            proxy: asker.proxy.clone(),
            shown: false,
            partly: false,
        });
        let code = terminal::fresh()?;
        let asking = Asking {
            user: Some(&own.user),
            login: Some(own.login),
            host_name: host_name(&asker.host_name),
            address: asker.address,
            terminal_code: Some(terminal::hashed(&code)),
        };
        let event = asker.event(Code::ChallengeBegun).user(own.user.as_str());
        let event = event
            .field("purpose", purpose.word())
            .field("sessions", needed.targets.len())
            .field("demand", needed.rule.factor.as_str());
        let event = match needed.targets.as_slice() {
            [only] if !needed.all => event.node(only.name.as_str()),
            _ => event,
        };
        let opened = self.challenges.open(purpose, asking, now).await?;
        self.journal.note_caused(asker.caller, event, own.user.as_str()).await?;
        let open = Open { id: opened.id, code, expires: opened.expires };
        self.pending.put(tuple.clone(), open.clone(), now);
        Ok(open)
    }

    /// How a challenge of a login stands, once it has changed.
    pub(crate) async fn stands(
        &self,
        caller: &Caller,
        user: &Identity,
        id: &str,
    ) -> Result<v1::SessionFactorState, Status> {
        let (own, mut wait) = (own_of(user)?, Challenges::wait());
        loop {
            let stored = self.asked(caller, &own, id, OffsetDateTime::now_utc()).await?;
            let is_open = stored.value.state == State::Pending;
            if !is_open || !self.challenges.reads_again(&mut wait, &stored.name).await? {
                return Ok(state_of(&stored.value));
            }
        }
    }

    /// A challenge for sessions of a login.
    pub(super) async fn asked(
        &self,
        caller: &Caller,
        own: &Own,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<Stored<ChallengeRecord>, Status> {
        let stored = self.challenges.own(caller, own, id, now).await?;
        match stored.value.purpose.sessions() {
            Some(_) => Ok(stored),
            None => Err(Status::invalid_argument("this challenge is for no session")),
        }
    }
}

pub(super) fn state_of(record: &ChallengeRecord) -> v1::SessionFactorState {
    let (state, until) = match &record.state {
        State::Pending => ("pending", None),
        State::Refused => ("refused", None),
        State::Proven(by) => {
            let seconds = record.purpose.sessions().map_or(0, |asked| asked.seconds);
            ("proven", Some(by.at + time::Duration::seconds(seconds.into())))
        }
        State::Used => ("ended", None),
    };
    let partly = record.purpose.sessions().is_some_and(|asked| asked.partly);
    v1::SessionFactorState { state: state.to_owned(), until: until.map(convert::time_to_proto), partly }
}
