//! A user whose provider says something else of them than at their login.

use sallyport_audit::Code;
use sallyport_store::typed;
use time::OffsetDateTime;

use super::claims::Claims;
use super::connector::Connector;
use super::connectors::Connectors;
use super::failure::{Failure, state};
use super::people::{Whose, told};
use crate::authority::caller::Caller;
use crate::authority::identities::origins::person_key;
use crate::authority::records::UserRecord;

impl Connectors {
    /// Has a user be as the provider and the connector's SCIM client say now. Their logins end where a role or a trait was taken away, since
    /// certificates have what was said before; what was given in addition counts from the next login. How long they are a user is not
    /// changed by it.
    ///
    /// # Errors
    /// [`SsoError`](super::error::SsoError): no role is left, or what is said cannot be used. Then nothing was changed. So it is, too, of a
    /// user whom another connector has made since: it tells whether the login still stands, and takes nothing from the user.
    pub(super) async fn reconsider(
        &self,
        caller: &Caller,
        connector: &Connector,
        claims: &Claims,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        // Before what `Identities::change` gives, as everywhere.
        let _provisioned = self.provisioning.steady().await;
        let _changing = self.identities.change().await;
        let key = person_key(&claims.identity.issuer, &claims.identity.subject);
        let stands = self.connector_stands(connector, now).await?;
        if self.linked(connector, &key, now).await?.is_some() {
            // Nothing that the provider says gives a local user anything, or takes it.
            return Ok(());
        }
        let mut claims = claims.clone();
        let (Whose { name, before, .. }, provisioned) = self.place(connector, &key, &mut claims, now).await?;
        let verdict = self.judge(connector, &claims);
        let by = |user: &UserRecord| user.origin.as_ref().map(|origin| origin.connector.clone());
        // Another connector of theirs has the say since then, or they are no user any more.
        let Some(before) = before.filter(|user| by(&user.value).as_deref() == Some(connector.name.as_str()))
        else {
            return Ok(verdict.admit(&claims, false)?);
        };
        // Which factor was used is known since the login.
        verdict.admit(&claims, false)?;
        let mut steps = vec![stands];
        steps.extend(provisioned);
        if let Some(said) = claims.kept(connector) {
            steps.push(typed::put(&key, &said, before.expires).map_err(|error| state(&error))?);
        }
        if before.value.roles == verdict.roles && before.value.traits == verdict.traits {
            return match steps.len() {
                1 => Ok(()),
                _ => self.store.backend().transact(steps, now).await.map(drop).map_err(|error| state(&error)),
            };
        }
        let user = UserRecord {
            roles: verdict.roles.clone(),
            traits: verdict.traits.clone(),
            ..before.value.clone()
        };
        let put = typed::update(name.as_str(), before.revision, &user, before.expires);
        steps.insert(0, put.map_err(|error| state(&error))?);
        let kept = before.value.roles.iter().all(|role| user.roles.contains(role))
            && before.value.traits == user.traits;
        let (mut events, mut ended_logins) = (Vec::new(), 0);
        if !kept {
            let why = "the identity provider gives the person other roles or traits now";
            let ended = self.logins.end_logins(caller, &name, why, now).await.map_err(Failure::State)?;
            steps.extend(ended.steps);
            (events, ended_logins) = (ended.events, ended.logins);
        }
        let revisions =
            self.store.backend().transact_urgent(steps, now).await.map_err(|error| state(&error))?;
        let expires = before.expires.unwrap_or(now);
        events.insert(0, told(caller, Code::UserUpdated, &user, expires, ended_logins));
        self.identities.put_user(user, revisions.first().copied().unwrap_or_default());
        if !kept {
            self.policy.refresh_after("lock").await.map_err(Failure::State)?;
        }
        self.journal.record_urgent(events).await.map_err(Failure::State)
    }
}
