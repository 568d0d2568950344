//! Providers are asked again whether the logins by them stand, on no session's path.
//!
//! A login has one refresh token, which one authority shows at a time: the record says until when, and every change of it is by
//! compare-and-set. A token that the provider gives in its place is kept before anything else is made of the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_access::UserName;
use sallyport_audit::Code;
use sallyport_store::{Kind as _, Op, StoreError, Stored, typed};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::Status;
use tracing::warn;
use uuid::Uuid;

use super::connector::Refresh;
use super::connectors::Connectors;
use super::error::SsoError;
use super::failure::{Failure, state};
use super::grants::next;
use super::provider::Remote;
use crate::ServerError;
use crate::authority::caller::{Caller, NOWHERE};
use crate::authority::identities::grants::{GrantRecord, RefreshRecord, ended};
use crate::authority::identities::logins::{Asked, LoginRecord};
use crate::authority::storage::{PAGE, every, storage};
use crate::dialling::PeerInfo;

/// How often it is looked who is due, at most; where looking takes long, it is done so much more rarely.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_EACH: u32 = 20;
/// Logins of one connector that are asked about at once: a provider that hangs holds up no other's.
const AT_ONCE: usize = 8;
/// How long an authority may take over one login: longer than every answer in it may.
const ASKING: time::Duration = time::Duration::minutes(3);
/// How soon a provider that gave no answer is asked again, at most.
const AGAIN: Duration = Duration::from_secs(30);
/// Errors of OAuth by which a provider says that the login is over (RFC 6749 §5.2, OpenID Connect Core §3.1.2.6): the person would have
/// to do something there.
const OVER: [&str; 5] =
    ["invalid_grant", "access_denied", "interaction_required", "login_required", "consent_required"];

const SELF: Caller = Caller::Anonymous { from: PeerInfo::direct(NOWHERE) };

/// The places of each connector.
type Places = BTreeMap<String, Arc<Semaphore>>;

/// What came of asking.
enum Outcome {
    Stands,
    /// Why the login is over.
    Over(String),
    Unanswered(SsoError),
}

impl Connectors {
    /// Asks about those who are due, until the authority stops.
    pub(crate) async fn ask_again(self: Arc<Self>) {
        let (mut asking, mut places) = (JoinSet::new(), Places::new());
        let mut pause = LOOK;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
            let begun = Instant::now();
            if let Err(problem) = self.begin_asking(&mut asking, &mut places, OffsetDateTime::now_utc()).await
            {
                warn!(
                    problem = problem.message(),
                    "it is not known which logins providers are to be asked about"
                );
            }
            while asking.try_join_next().is_some() {}
            pause = LOOK.max(begun.elapsed() * LOOKS_EACH);
        }
    }

    /// Begins to ask about each login that is due, as far as there are places.
    pub(super) async fn begin_asking(
        self: &Arc<Self>,
        asking: &mut JoinSet<()>,
        places: &mut Places,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let mut all = every::<RefreshRecord>(&self.store, now).await.map_err(|error| storage(&error))?;
        // Who has waited longest is asked about first: where places are few, none waits for ever.
        all.sort_unstable_by_key(|due| due.value.next);
        for due in all {
            let rests = due.value.next > now || due.value.asked_until.is_some_and(|until| until > now);
            if rests {
                continue;
            }
            let places = places.entry(due.value.connector.clone());
            let places = places.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE)));
            let Ok(place) = Arc::clone(places).try_acquire_owned() else { continue };
            let connectors = Arc::clone(self);
            asking.spawn(async move {
                let _place = place;
                let login = due.name.clone();
                match connectors.ask_about(due, now).await {
                    Ok(()) => {}
                    Err(Failure::State(status)) => {
                        warn!(
                            login,
                            problem = status.message(),
                            "a login's provider was asked, and nothing came of it"
                        );
                    }
                    Err(Failure::Sso(error)) => {
                        let problem = ServerError::chain(error.as_ref());
                        warn!(login, problem, "a login's provider was asked, and nothing came of it");
                    }
                }
            });
        }
        Ok(())
    }

    /// Asks about one login, and has come of it what comes of it.
    pub(super) async fn ask_about(
        &self,
        due: Stored<RefreshRecord>,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        let Ok(id) = due.name.parse::<Uuid>() else { return self.forget(&due, now).await };
        // This authority's to ask, or another's.
        let taken = RefreshRecord { asked_until: Some(now + ASKING), ..due.value.clone() };
        let step =
            typed::update(&due.name, due.revision, &taken, due.expires).map_err(|error| state(&error))?;
        let revision = match self.store.backend().transact(vec![step], now).await {
            Ok(revisions) => revisions.first().copied().unwrap_or_default(),
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(state(&error)),
        };
        let due = Stored { value: taken, revision, ..due };
        let login = format!("{}/{id}", due.value.user);
        let login = self.store.get::<LoginRecord>(&login, now).await.map_err(|error| state(&error))?;
        let Some(login) = login else { return self.forget(&due, now).await };
        let remote = match self.remote(&due.value.connector, now).await {
            Ok(remote) => remote,
            // Its users ended with it.
            Err(status) if status.code() == tonic::Code::NotFound => return self.forget(&due, now).await,
            Err(status) => return Err(Failure::State(status)),
        };
        let Some(refresh) = remote.connector().refresh else { return self.forget(&due, now).await };
        let outcome = match self.outcome(&remote, &due.name, now).await {
            // What this authority could not read or keep was no answer either: else a login would stand by it past its grace.
            Err(Failure::State(status)) => {
                let left = self.store.get::<RefreshRecord>(&due.name, now).await;
                if left.map_err(|error| state(&error))?.is_none() {
                    // A logout meanwhile has removed what the provider was asked by.
                    return Ok(());
                }
                Outcome::Unanswered(SsoError::State { problem: status.message().to_owned() })
            }
            outcome => outcome?,
        };
        match outcome {
            Outcome::Stands => self.comes_again(&due, None, next(refresh, now), now).await,
            Outcome::Over(why) => self.end(&remote, &login, &why, now).await,
            Outcome::Unanswered(error) => self.unanswered(&remote, refresh, &due, &login, &error, now).await,
        }
    }

    async fn outcome(&self, remote: &Remote, login: &str, now: OffsetDateTime) -> Result<Outcome, Failure> {
        let connector = remote.connector();
        let grant = self.store.get::<GrantRecord>(login, now).await.map_err(|error| state(&error))?;
        let opened = grant.as_ref().and_then(|grant| self.grant_opened(&grant.value));
        let (Some(grant), Some((before, mut renewal))) = (grant, opened) else {
            return Ok(Outcome::Over("what the provider is asked by cannot be read".to_owned()));
        };
        if before.identity.issuer != connector.issuer {
            return Ok(Outcome::Over("the connector is another provider's now".to_owned()));
        }
        let credential = match self.credential(connector, now).await {
            Ok(credential) => credential,
            Err(Failure::Sso(error)) => return Ok(Outcome::Unanswered(*error)),
            Err(failure) => return Err(failure),
        };
        let tokens = match remote.renew(&renewal, &credential, now).await {
            Ok(tokens) => tokens,
            Err(SsoError::Refused { error, description }) if OVER.contains(&error.as_str()) => {
                return Ok(Outcome::Over(format!(
                    "the identity provider refuses with {error} {description}"
                )));
            }
            Err(error) => return Ok(Outcome::Unanswered(error)),
        };
        // Kept before anything is made of the answer: the token that was shown may be worth nothing from now on.
        let mut kept = grant;
        if let Some(token) = &tokens.refresh_token {
            renewal.refresh_token = token.clone();
            kept = self.keeps(remote, kept, &before, &renewal, now).await?;
        }
        let claims = match remote.claims_again(&tokens, &renewal, before, now).await {
            Ok(claims) => claims,
            Err(error @ SsoError::OtherSubject { .. }) => return Ok(Outcome::Over(error.to_string())),
            Err(error) => return Ok(Outcome::Unanswered(error)),
        };
        self.keeps(remote, kept, &claims, &renewal, now).await?;
        match self.reconsider(&SELF, connector, &claims, now).await {
            Ok(()) => Ok(Outcome::Stands),
            Err(Failure::Sso(error)) => {
                let nothing = matches!(*error, SsoError::NoRoles { .. } | SsoError::NotProvisioned { .. });
                let failure = Failure::Sso(error);
                self.lapse(&SELF, connector, &claims, &failure, now).await.map_err(Failure::State)?;
                match failure {
                    Failure::Sso(_) if nothing => {
                        let why = "the identity provider gives the person nothing here any more";
                        Ok(Outcome::Over(why.to_owned()))
                    }
                    Failure::Sso(error) => Ok(Outcome::Unanswered(*error)),
                    failure => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// Writes what a provider is asked by next. A logout meanwhile has removed it, and that stays.
    async fn keeps(
        &self,
        remote: &Remote,
        grant: Stored<GrantRecord>,
        claims: &super::claims::Claims,
        renewal: &super::claims::Renewal,
        now: OffsetDateTime,
    ) -> Result<Stored<GrantRecord>, Failure> {
        let value =
            self.grant_again(remote.connector(), &grant.value, claims, renewal).map_err(Failure::State)?;
        let step = typed::update(&grant.name, grant.revision, &value, grant.expires);
        let step = step.map_err(|error| state(&error))?;
        let revisions =
            self.store.backend().transact(vec![step], now).await.map_err(|error| state(&error))?;
        Ok(Stored { value, revision: revisions.first().copied().unwrap_or_default(), ..grant })
    }

    async fn comes_again(
        &self,
        due: &Stored<RefreshRecord>,
        failing_since: Option<OffsetDateTime>,
        next: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        let value = RefreshRecord { next, asked_until: None, failing_since, ..due.value.clone() };
        let step =
            typed::update(&due.name, due.revision, &value, due.expires).map_err(|error| state(&error))?;
        match self.store.backend().transact(vec![step], now).await {
            // The login has ended meanwhile.
            Ok(_) | Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(state(&error)),
        }
    }

    /// A provider that gives no answer: the login stays for the connector's grace.
    async fn unanswered(
        &self,
        remote: &Remote,
        refresh: Refresh,
        due: &Stored<RefreshRecord>,
        login: &Stored<LoginRecord>,
        error: &SsoError,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        let since = due.value.failing_since.unwrap_or(now);
        let problem = ServerError::chain(error);
        if now - since >= refresh.grace {
            let why = format!("the identity provider gave no answer since {since}: {problem}");
            return self.end(remote, login, &why, now).await;
        }
        if due.value.failing_since.is_none() {
            let event = SELF
                .event(Code::SsoUnanswered)
                .user(due.value.user.as_str())
                .message(problem)
                .field("connector", due.value.connector.clone())
                .field("login_id", due.name.clone())
                .field("reason", error.word());
            let noted = self.journal.note_caused(&SELF, event, &due.value.connector).await;
            noted.map_err(Failure::State)?;
        }
        // Soon enough that the grace is not outlasted by much.
        let soon = Refresh { interval: refresh.interval.min(AGAIN).min(refresh.grace), ..refresh };
        self.comes_again(due, Some(since), next(soon, now), now).await
    }

    /// Ends a login that its provider stands by no more: its certificates, and the sessions that run by them.
    async fn end(
        &self,
        remote: &Remote,
        login: &Stored<LoginRecord>,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        let _changing = self.identities.change().await;
        let user = login.name.split_once('/').map(|(user, _)| user).unwrap_or_default();
        let mut events = vec![
            SELF.event(Code::SsoLoginEnded)
                .user(user)
                .message(why)
                .field("connector", remote.connector().name.to_string())
                .field("login_id", login.value.login_id.to_string()),
        ];
        let message = "the identity provider stands by the login no more";
        let name =
            UserName::new(user).map_err(|error| Failure::State(Status::internal(error.to_string())))?;
        let mut others = self.unasked(user, now).await?;
        match self.identities.user(&name).map(|user| user.origin.clone()) {
            // A local user's logins by password and passkey are none of the provider's.
            Some(None) => others.retain(|login| login.value.is_by_link(&name)),
            // All that this connector had opened has ended as another one made the user.
            Some(Some(origin)) if origin.connector != remote.connector().name.as_str() => others.clear(),
            _ => {}
        }
        let logins: Vec<LoginRecord> =
            std::iter::once(login.clone()).chain(others).map(|login| login.value).collect();
        let ended = self.logins.end_these(&SELF, (&name, &logins), Asked::Void, message, now).await;
        let ended = ended.map_err(Failure::State)?;
        self.store.backend().transact_urgent(ended.steps, now).await.map_err(|error| state(&error))?;
        events.extend(ended.events);
        self.policy.refresh_after("lock").await.map_err(Failure::State)?;
        self.journal.record_urgent(events).await.map_err(Failure::State)
    }

    /// The logins of a user about which no provider is asked: certificates that the person had signed by a login of theirs are no further
    /// login at the provider.
    async fn unasked(&self, user: &str, now: OffsetDateTime) -> Result<Vec<Stored<LoginRecord>>, Failure> {
        let (prefix, mut found, mut after) =
            (format!("{}/{user}/", LoginRecord::KIND), Vec::new(), None::<String>);
        loop {
            let page = self.store.backend().list(&prefix, after.as_deref(), PAGE, now).await;
            let page = page.map_err(|error| state(&error))?;
            let Some(last) = page.last() else { return Ok(found) };
            after = Some(last.key.clone());
            for item in page {
                let login = typed::decode::<LoginRecord>(item).map_err(|error| state(&error))?;
                let asked = self.store.get::<RefreshRecord>(&login.value.login_id.to_string(), now).await;
                if asked.map_err(|error| state(&error))?.is_none() {
                    found.push(login);
                }
            }
        }
    }

    /// What was kept for a login that is over.
    async fn forget(&self, due: &Stored<RefreshRecord>, now: OffsetDateTime) -> Result<(), Failure> {
        let steps: Vec<Op> = match due.name.parse::<Uuid>() {
            Ok(id) => ended(id).map_err(|error| state(&error))?.into(),
            Err(_) => vec![typed::delete::<RefreshRecord>(&due.name, None)],
        };
        self.store.backend().transact_urgent(steps, now).await.map(drop).map_err(|error| state(&error))
    }
}
