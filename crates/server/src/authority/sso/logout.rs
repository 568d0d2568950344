//! Logouts that a provider tells of (OpenID Connect Back-Channel Logout 1.0): the logins of the person end here, and their sessions.

use sallyport_audit::Code;
use sallyport_store::{StoreError, typed};
use time::OffsetDateTime;
use tonic::Status;

use super::connectors::Connectors;
use super::error::SsoError;
use super::failure::{Failure, state};
use super::people::with_origin;
use super::records::{LogoutRecord, SessionRecord, logout_key, session_key};
use crate::ServerError;
use crate::authority::caller::Caller;
use crate::authority::identities::logins::Ended;
use crate::authority::identities::origins::{PersonRecord, is_linked_with, is_person, person_key};
use crate::authority::records::UserRecord;

/// Longest logout token that is read, in bytes.
pub(crate) const TOKEN_BYTES: usize = 16 * 1024;

impl Connectors {
    /// Takes a logout token of a connector's provider, once. Whether the person is known here does not show.
    ///
    /// # Errors
    /// It is not good, was taken before, or the connector takes none; §2.8 has the provider read `invalid_request`.
    pub(crate) async fn log_out(&self, caller: &Caller, connector: &str, token: &str) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        match self.try_log_out(caller, connector, token, now).await {
            Ok(()) => Ok(()),
            Err(Failure::State(status)) => Err(status),
            Err(Failure::Sso(error)) => {
                let event = caller
                    .event(Code::SsoLogoutRefused)
                    .message(ServerError::chain(error.as_ref()))
                    .field("connector", connector.chars().take(64).collect::<String>())
                    .field("reason", error.word());
                self.journal.note_caused(caller, event, connector).await?;
                Err(Status::invalid_argument(
                    "the logout token is not good; the authority's audit log says why",
                ))
            }
        }
    }

    async fn try_log_out(
        &self,
        caller: &Caller,
        connector: &str,
        token: &str,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        if token.len() > TOKEN_BYTES {
            return Err(SsoError::NotAwaited.into());
        }
        let remote = self.remote(connector, now).await.map_err(Failure::State)?;
        let issuer = remote.connector().issuer.clone();
        if !remote.connector().back_channel_logout {
            let text = "this connector takes no logouts; write logout: back-channel in its document";
            return Err(Failure::State(Status::failed_precondition(text)));
        }
        let said = remote.logout(token, now).await?;
        let _changing = self.identities.change().await;
        let once = typed::create(&logout_key(&issuer, &said.id), &LogoutRecord {}, Some(said.until));
        let mut steps = vec![once.map_err(|error| state(&error))?];
        let person = match (&said.subject, &said.session) {
            (Some(subject), _) => Some(person_key(&issuer, subject)),
            (None, Some(session)) => {
                let session = self.store.get::<SessionRecord>(&session_key(&issuer, session), now).await;
                session.map_err(|error| state(&error))?.map(|session| session.value.person)
            }
            (None, None) => None,
        };
        let person = match person {
            Some(key) => self.store.get::<PersonRecord>(&key, now).await.map_err(|error| state(&error))?,
            None => None,
        };
        let mut renewed = None;
        let mut event = caller.event(Code::SsoLogout).field("connector", connector.to_owned());
        let mut events = Vec::new();
        if let Some(person) = &person {
            let user = &person.value.user;
            let why = "the person logged out at the identity provider";
            let record =
                self.store.get::<UserRecord>(user.as_str(), now).await.map_err(|error| state(&error))?;
            let ended = match &record {
                // A local user's logins by password and passkey are none of the provider's.
                Some(record) if is_linked_with(&record.value, &person.name) => {
                    self.logins.end_linked(caller, user, why, now).await
                }
                Some(record) if !is_person(&record.value, &person.name) => Ok(Ended::default()),
                Some(_) | None => self.logins.end_logins(caller, user, why, now).await,
            };
            let ended = ended.map_err(Failure::State)?;
            event = with_origin(event.user(user.as_str()), connector, &issuer, &person.value.subject);
            event = event.field("ended_logins", ended.logins);
            steps.extend(ended.steps);
            events.extend(ended.events);
            // Written again as it is, so that no login that was proven before, and is not open yet, fits the user's revision.
            let is_theirs =
                |user: &UserRecord| user.comes_as().is_some_and(|origin| origin.person_key() == person.name);
            if let Some(record) = record.filter(|record| is_theirs(&record.value)) {
                let put = typed::update(user.as_str(), record.revision, &record.value, record.expires);
                renewed = Some((steps.len(), record.value));
                steps.push(put.map_err(|error| state(&error))?);
            }
        }
        match self.store.backend().transact_urgent(steps, now).await {
            Ok(revisions) => {
                if let Some((at, user)) = renewed {
                    self.identities.put_user(user, revisions.get(at).copied().unwrap_or_default());
                }
            }
            Err(StoreError::Exists { .. }) => return Err(SsoError::NotAwaited.into()),
            Err(error) => return Err(state(&error)),
        }
        events.insert(0, event);
        self.policy.refresh_after("lock").await.map_err(Failure::State)?;
        self.journal.record_urgent(events).await.map_err(Failure::State)
    }
}
