//! The end of what users have by single sign-on: the provider gives them nothing any more, their connector is another one, or an
//! administrator unlinks them.

use sallyport_access::UserName;
use sallyport_audit::{Code, Event};
use sallyport_store::{StoreError, Stored, typed};
use time::OffsetDateTime;
use tonic::Status;

use super::claims::Claims;
use super::connector::Connector;
use super::connectors::Connectors;
use super::error::SsoError;
use super::failure::Failure;
use super::people::with_origin;
use crate::authority::caller::Caller;
use crate::authority::devices::voiding;
use crate::authority::identities::origins::{PersonRecord, forgotten, is_person, person_key};
use crate::authority::records::{Origin, UserRecord};
use crate::authority::storage::storage;

impl Connectors {
    /// A person who may not log in, since the provider gives them nothing now, keeps nothing of what it gave before: their user ends
    /// here, and every login of it. Their name stays theirs. Where another connector of theirs has the say since then, the user is what
    /// that one gives, and stays. Any other failure says nothing of what the person may do.
    pub(super) async fn lapse(
        &self,
        caller: &Caller,
        connector: &Connector,
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
        let came_by = |user: &UserRecord| {
            user.origin.as_ref().is_some_and(|origin| origin.connector == connector.name.as_str())
        };
        match user.filter(|user| is_person(&user.value, &key) && came_by(&user.value)) {
            Some(user) => {
                let why = "the identity provider gives the person nothing here any more";
                self.end_by(caller, &user, &Becomes::Deleted, why, now).await.map(drop)
            }
            None => Ok(()),
        }
    }

    /// Ends what users have by a connector that is another one now, or none any more: those who came by it last, and then what links of
    /// local users have opened, and with `people_go`, where the people of the connector are others from now on, the links. The caller
    /// holds what `Identities::change` gives.
    pub(super) async fn end_people_of(
        &self,
        caller: &Caller,
        connector: &str,
        people_go: bool,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let becomes = |user: &UserRecord| becomes(user, connector, people_go);
        let (came, linked): (Vec<_>, Vec<_>) = self
            .identities
            .users(|user| becomes(user).is_some())
            .into_iter()
            .partition(|user| user.origin.is_some());
        for user in came.into_iter().chain(linked) {
            let stored = self.store.get::<UserRecord>(user.name.as_str(), now).await;
            let Some(stored) = stored.map_err(|error| storage(&error))? else { continue };
            if let Some(becomes) = becomes(&stored.value) {
                self.end_by(caller, &stored, &becomes, why, now).await?;
            }
        }
        Ok(())
    }

    /// Ends what a user has by a connector, and says how many logins ended. The caller holds what `Identities::change` gives.
    pub(super) async fn end_by(
        &self,
        caller: &Caller,
        user: &Stored<UserRecord>,
        becomes: &Becomes,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<usize, Status> {
        let failed = |error: StoreError| storage(&error);
        let name = &user.value.name;
        let ended = match becomes {
            Becomes::Deleted => self.logins.end_logins(caller, name, why, now).await?,
            Becomes::Unlinked(_) | Becomes::LoggedOut => {
                self.logins.end_linked(caller, name, why, now).await?
            }
        };
        let left = UserRecord { link: None, ..user.value.clone() };
        // Of the user, and of what goes with them.
        let (mut steps, told, (void, voided)) = match becomes {
            Becomes::Deleted => {
                let steps = vec![typed::delete::<UserRecord>(name.as_str(), Some(user.revision))];
                let tokens = voiding::tokens(&self.store, caller, name, why, now).await.map_err(failed)?;
                (steps, Some(deleted(caller, &user.value)), tokens)
            }
            Becomes::Unlinked(link) => {
                let put = typed::update(name.as_str(), user.revision, &left, user.expires).map_err(failed)?;
                let mut steps = vec![put];
                steps.extend(forgotten(&self.store, name, now).await?);
                (steps, Some(told(caller, Code::UserUnlinked, name, link)), <_>::default())
            }
            Becomes::LoggedOut => <_>::default(),
        };
        let told =
            told.map(|event| event.field("reason", why.to_owned()).field("ended_logins", ended.logins));
        steps.extend(ended.steps);
        steps.extend(void);
        let revisions = self.store.backend().transact_urgent(steps, now).await.map_err(failed)?;
        let revision = revisions.first().copied().unwrap_or_default();
        match becomes {
            Becomes::Deleted => self.identities.remove_user(name, revision),
            Becomes::Unlinked(_) => self.identities.put_user(left, revision),
            Becomes::LoggedOut => {}
        }
        self.policy.refresh_after("lock").await?;
        self.journal.record_urgent(told.into_iter().chain(ended.events).chain(voided).collect()).await?;
        Ok(ended.logins)
    }
}

/// What becomes of a user whom a connector gives nothing any more.
pub(super) enum Becomes {
    /// The user came by it and ends, with every login. Their name stays theirs.
    Deleted,
    /// A local user, who stays. The link ends, and the logins by it.
    Unlinked(Origin),
    /// A local user, who stays linked. The logins by the link end.
    LoggedOut,
}

/// Whether a user is one of a connector's, and what becomes of them where it is another one; with `people_go` its people are others.
fn becomes(user: &UserRecord, connector: &str, people_go: bool) -> Option<Becomes> {
    if user.origin.as_ref().is_some_and(|origin| origin.connector == connector) {
        return Some(Becomes::Deleted);
    }
    let link = user.link.as_ref().filter(|link| link.connector == connector)?;
    Some(if people_go { Becomes::Unlinked(link.clone()) } else { Becomes::LoggedOut })
}

fn deleted(caller: &Caller, user: &UserRecord) -> Event {
    let (name, code) = (&user.name, Code::UserDeleted);
    match &user.origin {
        Some(origin) => told(caller, code, name, origin),
        None => caller.event(code).message(format!("user/{name}")).field("name", name.to_string()),
    }
}

/// An event about a user and the person of a provider whom they are, or are linked with.
pub(super) fn told(caller: &Caller, code: Code, name: &UserName, link: &Origin) -> Event {
    let event = caller.event(code).message(format!("user/{name}")).field("name", name.to_string());
    with_origin(event, &link.connector, &link.issuer, &link.subject)
}
