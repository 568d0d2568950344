//! The end of users who came by single sign-on: the provider gives them nothing any more, or their connector is another one.

use sallyport_audit::Code;
use sallyport_store::{StoreError, Stored, typed};
use time::OffsetDateTime;
use tonic::Status;

use super::claims::Claims;
use super::connectors::Connectors;
use super::error::SsoError;
use super::failure::Failure;
use super::people::with_origin;
use crate::authority::caller::Caller;
use crate::authority::devices::voiding;
use crate::authority::identities::origins::{PersonRecord, is_person, person_key};
use crate::authority::records::UserRecord;
use crate::authority::storage::storage;

impl Connectors {
    /// A person who may not log in, since the provider gives them nothing now, keeps nothing of what it gave before: their user ends
    /// here, and every login of it. Their name stays theirs. Any other failure says nothing of what the person may do.
    pub(super) async fn lapse(
        &self,
        caller: &Caller,
        claims: &Claims,
        failure: &Failure,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let Failure::Sso(error) = failure else { return Ok(()) };
        if !matches!(**error, SsoError::NoRoles { .. } | SsoError::NotProvisioned { .. }) {
            return Ok(());
        }
        let _changing = self.identities.change().await;
        let key = person_key(&claims.identity.issuer, &claims.identity.subject);
        let failed = |error: StoreError| storage(&error);
        let person = self.store.get::<PersonRecord>(&key, now).await.map_err(failed)?;
        let Some(person) = person else { return Ok(()) };
        let user = self.store.get::<UserRecord>(person.value.user.as_str(), now).await.map_err(failed)?;
        // A local user who is linked stays: nothing that they have is the provider's.
        match user.filter(|user| is_person(&user.value, &key)) {
            Some(user) => {
                let why = "the identity provider gives the person nothing here any more";
                self.end_user(caller, &user, why, now).await
            }
            None => Ok(()),
        }
    }

    /// Ends the users who came by a connector last. The caller holds what `Identities::change` gives.
    pub(super) async fn end_users_of(
        &self,
        caller: &Caller,
        connector: &str,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let came_by =
            |user: &UserRecord| user.origin.as_ref().is_some_and(|origin| origin.connector == connector);
        for user in self.identities.users(came_by) {
            let stored = self.store.get::<UserRecord>(user.name.as_str(), now).await;
            let stored = stored.map_err(|error| storage(&error))?;
            if let Some(stored) = stored.filter(|stored| came_by(&stored.value)) {
                self.end_user(caller, &stored, why, now).await?;
            }
        }
        Ok(())
    }

    async fn end_user(
        &self,
        caller: &Caller,
        user: &Stored<UserRecord>,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let name = &user.value.name;
        let ended = self.logins.end_logins(caller, name, why, now).await?;
        let event = caller
            .event(Code::UserDeleted)
            .message(format!("user/{name}"))
            .field("name", name.to_string())
            .field("reason", why.to_owned())
            .field("ended_logins", ended.logins);
        let event = match &user.value.origin {
            Some(origin) => with_origin(event, &origin.connector, &origin.issuer, &origin.subject),
            None => event,
        };
        let mut steps = vec![typed::delete::<UserRecord>(name.as_str(), Some(user.revision))];
        steps.extend(ended.steps);
        let tokens = voiding::tokens(&self.store, caller, name, why, now).await;
        let tokens = tokens.map_err(|error| storage(&error))?;
        steps.extend(tokens.0);
        let revisions = self.store.backend().transact_urgent(steps, now).await;
        let revisions = revisions.map_err(|error| storage(&error))?;
        self.identities.remove_user(name, revisions.first().copied().unwrap_or_default());
        let mut events = vec![event];
        events.extend(ended.events);
        events.extend(tokens.1);
        self.policy.refresh_after("lock").await?;
        self.journal.record_urgent(events).await
    }
}
