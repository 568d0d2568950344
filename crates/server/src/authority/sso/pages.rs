//! Single sign-on at the login page: a challenge goes to a provider with the browser, and comes back with who the person is.

use std::sync::Arc;

use sallyport_audit::{Code, Event};
use sallyport_store::Stored;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use super::connector::Connector;
use super::connectors::Connectors;
use super::error::SsoError;
use super::failure::Failure;
use super::flow::{Answer, Taken, ToProve};
use super::people::{Admitted, with_origin};
use super::provider::Remote;
use super::records::AttemptRecord;
use super::result::{failed, passed};
use crate::ServerError;
use crate::authority::accounts::means::{Means, Way};
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::{Browser, client};
use crate::authority::challenges::records::{ChallengeRecord, Purpose, State};
use crate::authority::records::UserRecord;
use crate::authority::storage::{removed, storage};

/// Most connectors that the page shows.
const BUTTONS: usize = 20;
/// A grant outlasts the challenge that it came with: no login is opened without it.
const GRANT_SLACK: time::Duration = time::Duration::minutes(1);

/// Single sign-on at the login page.
#[derive(Debug)]
pub(crate) struct SsoPages {
    pub(super) connectors: Arc<Connectors>,
    pub(super) challenges: Arc<Challenges>,
}

pub(super) fn button(connector: &Connector) -> v1::WebConnector {
    v1::WebConnector { name: connector.name.to_string(), title: connector.title.clone() }
}

/// What a user reads who proves themselves by another connector than theirs.
fn elsewhere() -> Status {
    Status::permission_denied(
        "you come by another identity provider than this one; choose the one that the page shows",
    )
}

/// Nothing waits for an answer any more.
fn over() -> Status {
    Status::aborted("this login has ended; begin again with the command that opened it")
}

impl SsoPages {
    pub(crate) fn new(connectors: &Arc<Connectors>, challenges: &Arc<Challenges>) -> Arc<Self> {
        Arc::new(Self { connectors: Arc::clone(connectors), challenges: Arc::clone(challenges) })
    }

    /// Whether people can log in here by single sign-on.
    pub(crate) fn is_offered(&self) -> bool {
        self.connectors.policy.cache().single_sign_on
    }

    /// What a page shows of a login, and of a connector that is tried.
    pub(crate) async fn describe(&self, browser: &Browser, id: &str) -> Result<v1::WebLogin, Status> {
        let now = OffsetDateTime::now_utc();
        let stored = self.challenges.at(&browser.caller, id, now).await?;
        let record = &stored.value;
        let Purpose::SsoTest { yaml, .. } = &record.purpose else {
            let mut login = self.challenges.describe_login(browser, &stored)?;
            let connectors = self.connectors.all(now).await?;
            let methods = login.methods.get_or_insert_default();
            methods.sso = connectors.iter().take(BUTTONS).map(|remote| button(remote.connector())).collect();
            return Ok(login);
        };
        let methods = v1::WebMethods { sso: vec![button(&tested(yaml)?)], ..v1::WebMethods::default() };
        Ok(v1::WebLogin {
            cluster: self.connectors.config.cluster.to_string(),
            state: record.state.word().to_owned(),
            client: Some(client(record)),
            redirect: "test".to_owned(),
            methods: Some(methods),
            user: String::new(),
            expires: Some(convert::time_to_proto(record.expires)),
            code: false,
        })
    }

    /// Sends a login to a provider.
    pub(crate) async fn begin(
        &self,
        browser: &Browser,
        request: v1::WebBeginSsoRequest,
    ) -> Result<v1::WebSsoBegun, Status> {
        let now = OffsetDateTime::now_utc();
        let stored = self.challenges.at(&browser.caller, &request.id, now).await?;
        let anew = stored.value.purpose.is_approval();
        let (remote, tested) = match &stored.value.purpose {
            Purpose::SsoTest { yaml, .. } => {
                Challenges::is_pending(&stored)?;
                (Arc::new(Remote::new(tested(yaml)?)), Some(yaml.clone()))
            }
            _ if anew => {
                let origin = self.challenges.may_sign_in_again(browser, &stored, &request.code, now).await?;
                if origin.connector != request.connector {
                    return Err(elsewhere());
                }
                (self.connectors.remote(&origin.connector, now).await?, None)
            }
            _ => {
                self.challenges.may_be_proven(browser, &stored, &request.code, now).await?;
                (self.connectors.remote(&request.connector, now).await?, None)
            }
        };
        let name = remote.connector().name.to_string();
        let is_test = tested.is_some();
        let to_prove = ToProve { challenge: &stored.name, until: stored.value.expires, tested, anew };
        let begun = self.connectors.begin(&remote, to_prove, &request.origin, now).await;
        let (begun, step) = match begun {
            Ok(begun) => begun,
            Err(Failure::Sso(error)) if is_test => {
                let shown = Status::failed_precondition(error.shown());
                self.conclude_test(browser, &stored, remote.connector(), &failed(&Failure::Sso(error)), now)
                    .await?;
                return Err(shown);
            }
            Err(failure) => return Err(self.refused(browser, &stored, &name, failure, now).await?),
        };
        let (mut steps, mut next) = (Vec::new(), stored.value.clone());
        // One at a time: a person who chooses another way has left the first one.
        if let Some(former) = next.sso.replace(begun.key) {
            let gone = removed(&former, &AttemptRecord { sealed: String::new() });
            steps.extend(gone.map_err(|error| storage(&error))?);
        }
        steps.push(step);
        self.challenges.write(&stored, &next, steps, now).await?;
        let event = Challenges::named(browser.event(Code::SsoBegun).field("connector", name), &stored);
        self.connectors.journal.note_caused(&browser.caller, event, "begun").await?;
        Ok(v1::WebSsoBegun { redirect: begun.url, binding: begun.binding })
    }

    /// Takes the provider's answer, which the browser brings.
    pub(crate) async fn finish(
        &self,
        browser: &Browser,
        request: v1::WebFinishSsoRequest,
    ) -> Result<v1::WebProven, Status> {
        let now = OffsetDateTime::now_utc();
        let answer = Answer {
            connector: request.connector,
            state: request.state,
            code: request.code,
            iss: request.iss,
            error: request.error,
            error_description: request.error_description,
            binding: request.binding,
        };
        let taken = match self.connectors.take(&answer, now).await {
            Ok(taken) => taken,
            Err(failure) => return Err(self.unknown(browser, failure, now).await?),
        };
        let stored = self.connectors.store.get::<ChallengeRecord>(&taken.challenge, now).await;
        let stored = stored.map_err(|error| storage(&error))?;
        let awaits = |stored: &Stored<ChallengeRecord>| {
            stored.value.expires > now
                && stored.value.sso.as_deref() == Some(taken.key.as_str())
                && matches!(stored.value.state, State::Pending)
        };
        let stored = stored.filter(awaits).ok_or_else(over)?;
        match taken.tested.clone() {
            Some(yaml) => self.finish_test(browser, &stored, taken, &answer, &yaml, now).await,
            None if taken.anew => self.finish_again(browser, &stored, taken, &answer, now).await,
            None => self.finish_login(browser, &stored, taken, &answer, now).await,
        }
    }

    async fn finish_login(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        taken: Taken,
        answer: &Answer,
        now: OffsetDateTime,
    ) -> Result<v1::WebProven, Status> {
        let name = taken.connector.clone();
        let remote = self.connectors.remote(&name, now).await?;
        let connector = remote.connector();
        let said = match self.connectors.claims(&remote, taken, answer, false, now).await {
            Ok(said) => said,
            Err(failure) => return Err(self.refused(browser, stored, &name, failure, now).await?),
        };
        let admitted = self.connectors.admit(&browser.caller, connector, &said, now).await;
        let (Admitted { user, origin, linked, second_factor, said: ruled, until: vouched }, verdict) =
            match admitted {
                Ok(admitted) => admitted,
                Err(failure) => {
                    self.connectors.lapse(&browser.caller, connector, &said, &failure, now).await?;
                    let event = with_origin(
                        browser.event(Code::SsoRefused),
                        &name,
                        &said.identity.issuer,
                        &said.identity.subject,
                    );
                    return Err(self.refused_with(event, browser, stored, &name, failure, now).await?);
                }
            };
        let event = browser
            .event(Code::SsoLogin)
            .user(user.as_str())
            .field("second_factor", second_factor)
            .field("linked", linked);
        // What the mapping would give says nothing of a user who has roles of their own.
        let event = match linked {
            true => event,
            false => {
                event.field("unknown_roles", verdict.unknown_roles.join(", ")).field("trace", verdict.told())
            }
        };
        let event = with_origin(event, &name, &said.identity.issuer, &said.identity.subject);
        self.connectors.journal.record(vec![Challenges::named(event, stored)]).await?;
        let _changing = self.connectors.identities.steady().await;
        let record = self.connectors.store.get::<UserRecord>(user.as_str(), now).await;
        let record = record.map_err(|error| storage(&error))?.ok_or_else(over)?;
        // Since the admission an administrator may have removed or unlinked the user, and made another of the name.
        let is_still = match linked {
            true => record.value.link.as_ref(),
            false => record.value.origin.as_ref(),
        };
        if is_still != Some(&origin) {
            return Err(over());
        }
        let means =
            Means { said: Some(ruled), until: vouched, ..Means::by(Way::SingleSignOn, second_factor) };
        let who = (&record.value, record.revision);
        let until = stored.value.expires + GRANT_SLACK;
        let grant = self.connectors.grant_of(connector, &stored.name, &said, until, now)?;
        self.challenges.login_proven(browser, stored, who, means, grant.into_iter().collect(), now).await
    }

    /// A connector that is tried: what came of it goes to the administrator, and nothing of it is kept but in the challenge.
    async fn finish_test(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        taken: Taken,
        answer: &Answer,
        yaml: &str,
        now: OffsetDateTime,
    ) -> Result<v1::WebProven, Status> {
        let remote = Remote::new(tested(yaml)?);
        let said = self.connectors.claims(&remote, taken, answer, true, now).await;
        let result = match said {
            Ok(mut said) => {
                let (verdict, would_be) = self.connectors.would_be(remote.connector(), &mut said, now).await;
                passed(remote.connector(), &said, &verdict, &would_be)
            }
            Err(failure) => failed(&failure),
        };
        self.conclude_test(browser, stored, remote.connector(), &result, now).await?;
        Ok(v1::WebProven::default())
    }

    /// Keeps what came of a test for the administrator who waits for it, sealed.
    async fn conclude_test(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        connector: &Connector,
        result: &serde_json::Value,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let mut next = stored.value.clone();
        next.state = State::Used;
        next.sso = None;
        if let Purpose::SsoTest { result: kept, .. } = &mut next.purpose {
            *kept = Some(self.connectors.sealed(&stored.name, result.to_string().as_bytes())?);
        }
        self.challenges.write(stored, &next, Vec::new(), now).await?;
        let event = browser.event(Code::SsoTested).field("connector", connector.name.to_string());
        self.connectors.journal.record(vec![Challenges::named(event, stored)]).await
    }

    /// An answer that nothing awaits, or that is another's: counted as a wrong guess.
    async fn unknown(
        &self,
        browser: &Browser,
        failure: Failure,
        now: OffsetDateTime,
    ) -> Result<Status, Status> {
        let error = match failure {
            Failure::State(status) => return Ok(status),
            Failure::Sso(error) => error,
        };
        self.challenges.guessed(&browser.caller, now);
        let mut event =
            browser.event(Code::SsoRefused).message(error.to_string()).field("reason", error.word());
        if let SsoError::OtherAddress { connector, .. } = &*error {
            event = event.field("connector", connector.clone());
        }
        self.connectors.journal.note_caused(&browser.caller, event, "unknown").await?;
        Ok(Status::permission_denied(error.shown()))
    }

    pub(super) async fn refused(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        connector: &str,
        failure: Failure,
        now: OffsetDateTime,
    ) -> Result<Status, Status> {
        let event = browser.event(Code::SsoRefused);
        self.refused_with(event, browser, stored, connector, failure, now).await
    }

    /// Puts on record why a provider's answer gave no login, and says to the person what is theirs to know. The challenge stays: the
    /// person may choose another way, or come back with a login that is good.
    async fn refused_with(
        &self,
        event: Event,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        connector: &str,
        failure: Failure,
        now: OffsetDateTime,
    ) -> Result<Status, Status> {
        let error = match failure {
            Failure::State(status) => return Ok(status),
            Failure::Sso(error) => error,
        };
        let event = event
            .message(ServerError::chain(error.as_ref()))
            .field("connector", connector.to_owned())
            .field("reason", error.word());
        let event = Challenges::named(event, stored);
        let is_away = matches!(
            *error,
            SsoError::Asked { .. }
                | SsoError::Resting { .. }
                | SsoError::Status { .. }
                | SsoError::StaleKeys { .. }
        );
        if is_away {
            self.connectors.journal.note_caused(&browser.caller, event, connector).await?;
            return Ok(Status::unavailable(error.shown()));
        }
        self.challenges.wrong_proof(&browser.caller, stored, event, now).await?;
        Ok(Status::permission_denied(error.shown()))
    }
}

/// The connector that is tried.
pub(super) fn tested(yaml: &str) -> Result<Connector, Status> {
    Connector::parse(yaml).map_err(|error| Status::invalid_argument(error.to_string()))
}
