//! Challenges: opened, read, changed by one call at a time, and ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use sallyport_access::{Device, DeviceCustody, UserName};
use sallyport_audit::{Code, Event};
use sallyport_sal::random;
use sallyport_store::{Kind, Op, Store, StoreError, Stored, typed};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use uuid::Uuid;

use crate::authority::accounts::login::Accounts;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::challenges::bounds::{AskedBy, Openings};
use crate::authority::challenges::making::Making;
use crate::authority::challenges::records::{
    ChallengeRecord, LoginAsked, MOST_FAILURES, OVER_KEPT, ProvenBy, Purpose, SessionsAsked, State,
};
use crate::authority::challenges::waiting::Waiting;
use crate::authority::config::AuthConfig;
use crate::authority::factors::kept::Factors;
use crate::authority::gate::administering::Administering;
use crate::authority::gate::guesses::Guesses;
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::LoginRecord;
use crate::authority::policy::Policy;
use crate::authority::records::UserRecord;
use crate::authority::secrets::hash_of;
use crate::authority::session_factors::grants::Grants;
use crate::authority::storage::storage;
use crate::config::PreferredLogin;
use crate::places::Seen;

/// How long one call waits for a challenge to change.
const POLL: Duration = Duration::from_secs(30);
/// Random bytes of an id, and of the code that a browser brings to a program.
const ID_BYTES: usize = 16;
/// Hexadecimal digits of a challenge's key that stand in events.
const SHOWN: usize = 16;

/// What is to be proven at pages.
#[derive(Debug)]
pub(crate) struct Challenges {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) guesses: Arc<Guesses>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) factors: Arc<Factors>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) administering: Arc<Administering>,
    pub(super) openings: Arc<Openings>,
    pub(super) waiting: Waiting,
    pub(super) making: Making,
    /// What was proven for sessions.
    pub(crate) grants: Grants,
    pub(crate) stop: CancellationToken,
}

/// Who asks for a challenge, and from where.
pub(crate) struct Asking<'a> {
    pub(crate) user: Option<&'a UserName>,
    pub(crate) login: Option<Uuid>,
    pub(crate) host_name: String,
    pub(crate) address: IpAddr,
    /// Hash of the code that its terminal shows.
    pub(crate) terminal_code: Option<String>,
}

/// Random bytes as text that fits into an address.
pub(super) fn random_text() -> Result<String, Status> {
    let bytes = random::bytes::<ID_BYTES>().map_err(|error| Status::internal(error.to_string()))?;
    Ok(BASE64URL_NOPAD.encode(&bytes))
}

/// Whether a text may be the id of a challenge.
fn is_id(text: &str) -> bool {
    text.len() == BASE64URL_NOPAD.encode_len(ID_BYTES) && BASE64URL_NOPAD.decode(text.as_bytes()).is_ok()
}

/// A call that waits for a challenge.
#[derive(Debug)]
pub(crate) struct Wait {
    deadline: Instant,
    heard: Option<watch::Receiver<()>>,
}

impl Challenges {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        guesses: &Arc<Guesses>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        factors: &Arc<Factors>,
        accounts: &Arc<Accounts>,
        administering: &Arc<Administering>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            guesses: Arc::clone(guesses),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            factors: Arc::clone(factors),
            accounts: Arc::clone(accounts),
            administering: Arc::clone(administering),
            openings: Arc::default(),
            waiting: Waiting::default(),
            making: Making::default(),
            grants: Grants::default(),
            stop: stop.clone(),
        })
    }

    /// How people log in here, the preferred way first.
    pub(crate) fn login_methods(&self) -> Vec<String> {
        if !self.accounts.has_passwords() {
            return self.factors.passkeys().map(|_| "passkey".to_owned()).into_iter().collect();
        }
        let methods = match (self.factors.passkeys(), self.config.authentication.prefer) {
            (None, _) => &["password"][..],
            (Some(_), PreferredLogin::Password) => &["password", "passkey"],
            (Some(_), PreferredLogin::Passkey | PreferredLogin::Browser) => &["passkey", "password"],
        };
        methods.iter().map(|method| (*method).to_owned()).collect()
    }

    /// A challenge by its id, if it may be asked for from there. An id that may be one and is not known counts as no guess: it has 128 random
    /// bits, which no caller finds by trying, and after a restart of the authority each program comes with one that waited for its login.
    ///
    /// # Errors
    /// There is none, or there were too many failures from that address.
    pub(crate) async fn at(
        &self,
        caller: &Caller,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<Stored<ChallengeRecord>, Status> {
        self.guesses.not_barred(caller, now)?;
        if let Some(stored) = self.open_by(&hash_of(id), now).await? {
            return Ok(stored);
        }
        if !is_id(id) {
            self.guessed(caller, now);
        }
        let status = Status::not_found(
            "this login or approval is not known or has ended; begin again with the command that opened it",
        );
        let event = caller.event(Code::ChallengeRefused).message("not known, or over");
        self.journal.note_caused(caller, event, "").await?;
        Err(status)
    }

    /// A challenge by its key, where it is not over.
    pub(crate) async fn open_by(
        &self,
        key: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Stored<ChallengeRecord>>, Status> {
        let found = self.store.get::<ChallengeRecord>(key, now).await.map_err(|error| storage(&error))?;
        // The store may still have one whose time is over.
        Ok(found.filter(|stored| stored.value.is_open(now)))
    }

    /// Replaces a challenge if it is still as it was read, with other steps; gives its new revision.
    pub(crate) async fn write(
        &self,
        stored: &Stored<ChallengeRecord>,
        next: &ChallengeRecord,
        others: Vec<Op>,
        now: OffsetDateTime,
    ) -> Result<u64, Status> {
        let revision = self.replace(stored, next, others, now).await?;
        self.is_changed(stored, next);
        Ok(revision)
    }

    /// [`Self::write`] of which those who wait do not hear yet.
    pub(super) async fn replace(
        &self,
        stored: &Stored<ChallengeRecord>,
        next: &ChallengeRecord,
        others: Vec<Op>,
        now: OffsetDateTime,
    ) -> Result<u64, Status> {
        let mut steps = vec![self.changed(stored, next, now)?];
        steps.extend(others);
        let written = self.store.backend().transact(steps, now).await.map_err(|error| match error {
            StoreError::Conflict { .. } | StoreError::Exists { .. } | StoreError::NotFound { .. } => {
                tracing::debug!(%error, "a challenge was overtaken");
                Status::aborted(
                    "this was changed at the same moment by another call; look at it again, and repeat what is still to be done",
                )
            }
            error => storage(&error),
        })?;
        Ok(written.first().copied().unwrap_or_default())
    }

    /// The step that replaces a challenge. Of one that is over the authority keeps what it tells its program and page of it, for as long as they
    /// may ask; and nothing where the same asker, or strangers together, have ended many at a time: all of them are in memory.
    pub(super) fn changed(
        &self,
        stored: &Stored<ChallengeRecord>,
        next: &ChallengeRecord,
        now: OffsetDateTime,
    ) -> Result<Op, Status> {
        let step = match next.state {
            State::Pending | State::Proven(_) => {
                typed::update(&stored.name, stored.revision, next, Some(next.expires))
            }
            State::Used | State::Refused if !is_test(next) && !self.openings.keeps(by(next), now) => {
                return Ok(typed::delete::<ChallengeRecord>(&stored.name, Some(stored.revision)));
            }
            State::Used | State::Refused => {
                let until = next.expires.min(now + OVER_KEPT);
                typed::update(&stored.name, stored.revision, &left_of(next), Some(until))
            }
        };
        step.map_err(|error| storage(&error))
    }

    /// A challenge was replaced: the programs that wait hear of it, and a challenge that is over takes no place among the open ones.
    pub(super) fn is_changed(&self, stored: &Stored<ChallengeRecord>, next: &ChallengeRecord) {
        let now = OffsetDateTime::now_utc();
        match next.state {
            State::Used | State::Refused => {
                self.openings.closes(by(next), &stored.name);
                if !is_test(next) {
                    self.openings.kept(by(next), now);
                }
            }
            // What was proven for sessions is a proof from then on, and no program comes back to use the challenge up.
            State::Proven(_) if next.purpose.sessions().is_some() => {
                self.openings.closes(by(next), &stored.name);
            }
            State::Proven(_) | State::Pending => {}
        }
        if let (Some(asked), State::Refused, Some(login)) = (next.purpose.sessions(), &next.state, next.login)
        {
            self.grants.refused(login, next.address, asked.proxy.as_deref(), now);
        }
        self.waiting.changed(&stored.name);
    }

    /// Of a challenge that can still be proven; else why not.
    pub(crate) fn is_pending(stored: &Stored<ChallengeRecord>) -> Result<(), Status> {
        match stored.value.state {
            State::Pending => Ok(()),
            State::Proven(_) => {
                Err(Status::failed_precondition("this is proven already; go back to the program that asked"))
            }
            State::Refused => Err(Status::permission_denied(
                "this was refused; begin again with the command that opened it",
            )),
            State::Used => Err(Status::failed_precondition(
                "this is done already; begin again with the command that opened it",
            )),
        }
    }

    /// A caller came with what no challenge awaits: it counts as a guess.
    pub(crate) fn guessed(&self, caller: &Caller, now: OffsetDateTime) {
        self.guesses.note(caller, now);
    }

    /// For a call that begins now to wait for a challenge.
    pub(crate) fn wait() -> Wait {
        Wait { deadline: Instant::now() + POLL, heard: None }
    }

    /// Whether a call that waits reads a challenge again: once when it begins to hear of changes, since one may have come before, and then
    /// at each. When its time is over, it does not.
    ///
    /// # Errors
    /// Too many wait, or the authority stops.
    pub(crate) async fn reads_again(&self, wait: &mut Wait, key: &str) -> Result<bool, Status> {
        let Some(changes) = &mut wait.heard else {
            wait.heard = Some(self.waiting.wait(key)?);
            return Ok(true);
        };
        tokio::select! {
            _ = changes.changed() => Ok(true),
            () = tokio::time::sleep_until(wait.deadline) => Ok(false),
            () = self.stop.cancelled() => Err(Status::unavailable("the authority is shutting down")),
        }
    }

    /// A proof was wrong: it counts, and after several the challenge ends. What cannot be written is no reason to let a guesser go on.
    pub(crate) async fn wrong_proof(
        &self,
        caller: &Caller,
        stored: &Stored<ChallengeRecord>,
        event: Event,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        self.guessed(caller, now);
        let mut next = stored.value.clone();
        next.failures = next.failures.saturating_add(1);
        if next.failures >= MOST_FAILURES {
            next.state = State::Refused;
            next.ceremony = None;
        }
        self.journal.note_caused(caller, Self::named(event, stored), &stored.name).await?;
        self.write(stored, &next, Vec::new(), now).await.map(drop)
    }

    /// Ends a challenge that a wrong person, code or verifier came to.
    pub(super) async fn end(
        &self,
        caller: &Caller,
        stored: &Stored<ChallengeRecord>,
        event: Event,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let mut next = stored.value.clone();
        next.state = State::Refused;
        next.ceremony = None;
        self.guessed(caller, now);
        self.journal.record(vec![Self::named(event, stored)]).await?;
        self.write(stored, &next, Vec::new(), now).await.map(drop)
    }

    /// An event with which challenge it is about, and from where that was asked for: by which login, where one did.
    pub(crate) fn named(event: Event, stored: &Stored<ChallengeRecord>) -> Event {
        let event = event
            .field("challenge", stored.name.get(..SHOWN).unwrap_or_default())
            .field("purpose", stored.value.purpose.word())
            .field("asked_from", stored.value.address.to_string());
        match stored.value.login {
            Some(login) => event.field("login_id", login.to_string()),
            None => event,
        }
    }

    /// Refuses what was asked for by a login that is over, by a user who is not there any more or was reset since.
    pub(crate) async fn still_asked(
        &self,
        record: &ChallengeRecord,
        now: OffsetDateTime,
    ) -> Result<UserName, Status> {
        let over = || {
            Status::permission_denied("the login that asked for this is over; log in again: sallyport login")
        };
        let (Some(user), Some(login)) = (&record.user, record.login) else { return Err(over()) };
        let known = self.identities.user(user).ok_or_else(over)?;
        let mut identity = self.identities.identity_of(&known, now);
        identity.login_id = login;
        identity.device = self.device_of(user, login, now).await?;
        let cache = self.policy.cache();
        if cache.policies.locked_out(&identity, &cache.locks, now).is_some() {
            return Err(over());
        }
        let credential = self.accounts.credential_of(user, now).await?;
        if credential.reset_at.is_some_and(|reset| reset >= record.created) {
            return Err(over());
        }
        Ok(user.clone())
    }

    /// The trusted device that an open login came from. Where its key is decides about no challenge.
    pub(super) async fn device_of(
        &self,
        user: &UserName,
        login: Uuid,
        now: OffsetDateTime,
    ) -> Result<Option<Device>, Status> {
        let known = self.store.get::<LoginRecord>(&format!("{user}/{login}"), now).await;
        let known = known.map_err(|error| storage(&error))?;
        let id = known.and_then(|login| login.value.device);
        Ok(id.map(|id| Device { id, custody: DeviceCustody::File }))
    }

    /// A challenge that is proven now, by a user.
    pub(super) fn proven(record: &ChallengeRecord, user: &UserName, by: ProvenBy) -> ChallengeRecord {
        let mut next = record.clone();
        next.user = Some(user.clone());
        next.state = State::Proven(by);
        next.ceremony = None;
        next
    }

    /// That a user is as they were read, for a transaction.
    pub(crate) fn user_as_read(user: &UserName, revision: u64) -> Op {
        Op::Check { key: format!("{}/{user}", UserRecord::KIND), revision }
    }
}

/// Who has asked for a challenge, as far as bounds are concerned. A stranger has asked for a login, whichever user proves it.
pub(super) fn asked_by<'a>(purpose: &'a Purpose, user: Option<&'a UserName>, address: IpAddr) -> AskedBy<'a> {
    let (user, told_by) = match purpose {
        Purpose::Login(asked) => (None, asked.relayed_by),
        _ => (user, None),
    };
    let proxy = purpose.sessions().and_then(|asked| asked.proxy.as_deref());
    AskedBy { user, proxy, from: Seen { address, told_by } }
}

fn by(record: &ChallengeRecord) -> AskedBy<'_> {
    asked_by(&record.purpose, record.user.as_ref(), record.address)
}

/// Of a connector that was tried, the administrator reads the outcome when it is over.
fn is_test(record: &ChallengeRecord) -> bool {
    matches!(record.purpose, Purpose::SsoTest { .. })
}

/// What is kept of a challenge that is over: how it stands, what it was for, and by what its program and its user prove that it is theirs. No
/// keys, no sessions, nothing that was sealed, and no ceremony.
fn left_of(record: &ChallengeRecord) -> ChallengeRecord {
    let purpose = match &record.purpose {
        Purpose::Login(asked) => Purpose::Login(LoginAsked {
            ssh_public_key: String::new(),
            tls_public_key: String::new(),
            ttl_seconds: asked.ttl_seconds,
            code_challenge: asked.code_challenge.clone(),
            redirect: asked.redirect.clone(),
            device: None,
            relayed_by: asked.relayed_by,
        }),
        Purpose::Session(asked) => Purpose::Session(SessionsAsked {
            factor: asked.factor,
            targets: Vec::new(),
            all: asked.all,
            seconds: asked.seconds,
            proxy: asked.proxy.clone(),
            shown: asked.shown,
            partly: asked.partly,
        }),
        Purpose::EnrolCodes { name, allowed, .. } => {
            Purpose::EnrolCodes { name: name.clone(), sealed: String::new(), allowed: *allowed }
        }
        Purpose::Administer { .. } => Purpose::Administer { asked: None },
        Purpose::AddFactor { .. }
        | Purpose::RemoveFactor { .. }
        | Purpose::RecoveryCodes
        | Purpose::ChangePassword
        | Purpose::AdmitDevice { .. }
        | Purpose::ShowFactors
        | Purpose::EnrolPasskey { .. }
        | Purpose::SsoTest { .. } => record.purpose.clone(),
    };
    ChallengeRecord {
        purpose,
        user: record.user.clone(),
        login: record.login,
        host_name: record.host_name.clone(),
        address: record.address,
        created: record.created,
        expires: record.expires,
        state: record.state.clone(),
        ceremony: None,
        failures: record.failures,
        terminal_code: None,
        sso: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
