//! Local users who are linked with a person of a provider: they log in by single sign-on, too, and stay what they are here. Nothing that
//! the provider says gives or takes their roles and traits.

use sallyport_access::{ResourceName, UserName};
use sallyport_audit::Code;
use sallyport_oidc::Identity;
use sallyport_store::{Kind, Op, StoreError, Stored, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use super::claims::{Claims, Verdict, check_linked, second_factor};
use super::connector::{Connector, KIND};
use super::connectors::Connectors;
use super::error::SsoError;
use super::failure::{Failure, state};
use super::lapse::{Becomes, told};
use super::people::{Admitted, session_step};
use super::records::ConnectorRecord;
use crate::authority::caller::{Caller, shown};
use crate::authority::identities::origins::{
    NameRecord, PersonRecord, forgotten, is_linked_with, must_be_local, person_key,
};
use crate::authority::records::{Origin, UserRecord};
use crate::authority::storage::storage;

fn failed(error: StoreError) -> Status {
    storage(&error)
}

fn missing(name: &str) -> Status {
    Status::not_found(format!("there is no user {}", shown(name)))
}

impl Connectors {
    /// The local user whom a person is linked with.
    ///
    /// # Errors
    /// [`SsoError`]: the link is not one by this connector, or the connector has a SCIM client now, whose people are no local users.
    pub(super) async fn linked(
        &self,
        connector: &Connector,
        key: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Stored<UserRecord>>, Failure> {
        let person = self.store.get::<PersonRecord>(key, now).await.map_err(|error| state(&error))?;
        let Some(person) = person else { return Ok(None) };
        let user = self.store.get::<UserRecord>(person.value.user.as_str(), now).await;
        let user = user.map_err(|error| state(&error))?;
        let Some(user) = user.filter(|user| is_linked_with(&user.value, key)) else { return Ok(None) };
        let by = user.value.link.as_ref().map(|link| link.connector.clone()).unwrap_or_default();
        let name = user.value.name.to_string();
        if by != connector.name.as_str() {
            return Err(SsoError::LinkedElsewhere { name, connector: by }.into());
        }
        if self.provisioning.has_tokens(&connector.name, now).await.map_err(Failure::State)? {
            return Err(SsoError::LinkProvisioned { name, connector: by }.into());
        }
        Ok(Some(user))
    }

    /// Whether a linked user may log in by what the provider said: with a second factor wherever a password alone would not do.
    pub(super) async fn check_linked(
        &self,
        connector: &Connector,
        claims: &Claims,
        user: &UserRecord,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        let has_factor = self.accounts.has_factor(&user.name, now).await.map_err(Failure::State)?;
        Ok(check_linked(connector, claims, self.factor_required(), has_factor)?)
    }

    /// Lets a linked user in who has come back from the provider. The user stays as they are. The caller holds what
    /// `Provisioning::steady` and `Identities::change` give.
    pub(super) async fn admit_linked(
        &self,
        connector: &Connector,
        claims: &Claims,
        user: Stored<UserRecord>,
        now: OffsetDateTime,
    ) -> Result<(Admitted, Verdict), Failure> {
        self.check_linked(connector, claims, &user.value, now).await?;
        let key = person_key(&claims.identity.issuer, &claims.identity.subject);
        let until = now + connector.user_lifetime;
        let Some(origin) = user.value.link.clone() else { return Err(SsoError::Changed.into()) };
        let record = PersonRecord::of(&origin, &user.value.name, now);
        let mut steps = vec![
            self.connector_stands(connector, now).await?,
            unchanged(&user),
            typed::put(&key, &record, None).map_err(|error| state(&error))?,
        ];
        steps.extend(session_step(claims, key, until)?);
        self.store.backend().transact(steps, now).await.map_err(|error| state(&error))?;
        let (said, until) = (claims.ruled(connector, None), Some(until));
        let verdict = self.judge(connector, claims);
        let second_factor = second_factor(connector, claims);
        Ok((Admitted { user: user.value.name, origin, linked: true, second_factor, said, until }, verdict))
    }

    /// Links a local user with a person of a provider. It is as good as the user's password, so that it takes all that the user holds.
    /// `may_read`: the caller may read users, and so learn who another one is.
    pub(crate) async fn link_user(
        &self,
        caller: &Caller,
        request: v1::LinkUserRequest,
        may_read: bool,
    ) -> Result<v1::LinkUserResponse, Status> {
        let v1::LinkUserRequest { name, connector, subject } = request;
        let now = OffsetDateTime::now_utc();
        let name = UserName::new(name.as_str()).map_err(|_| missing(&name))?;
        // Before what `Identities::change` gives, as everywhere: no token of a SCIM client is made meanwhile.
        let _provisioned = self.provisioning.steady().await;
        let _changing = self.identities.change().await;
        let user = self.store.get::<UserRecord>(name.as_str(), now).await.map_err(failed)?;
        let user = user.ok_or_else(|| missing(name.as_str()))?;
        self.delegation.must_hold(caller, "Admin.LinkUser", &user.value).await?;
        if !Identity::is_subject(&subject) {
            return Err(Status::invalid_argument(
                "the subject is what the provider calls the person in its tokens (sub), 1 to 255 bytes without control characters: the \
                 event sso.refused of their login has it",
            ));
        }
        must_be_local(&user.value)?;
        if let Some(link) = &user.value.link {
            let whom = match may_read {
                true => format!("the person {} of the connector {}", shown(&link.subject), link.connector),
                false => "a person of a provider".to_owned(),
            };
            return Err(Status::failed_precondition(format!(
                "{name} is linked with {whom} already; unlink them first: sallyport admin users unlink {name}"
            )));
        }
        let (connector, connector_stands) = self.linkable(&connector, now).await?;
        let origin =
            Origin { connector: connector.name.to_string(), issuer: connector.issuer.clone(), subject };
        let key = origin.person_key();
        let known = self.store.get::<PersonRecord>(&key, now).await.map_err(failed)?;
        if let Some(other) = known.as_ref().filter(|known| known.value.user != name) {
            return Err(Status::already_exists(match may_read {
                true => format!(
                    "this person is the user {other} already, and no person is two; unlink {other} (sallyport admin users unlink {other}), \
                     or where they came by single sign-on themselves have them forgotten: sallyport admin rm user/{other}",
                    other = other.value.user
                ),
                false => "this person is another user already, and no person is two; ask an administrator who may read users".to_owned(),
            }));
        }
        let linked = UserRecord { link: Some(origin.clone()), ..user.value.clone() };
        let put = typed::update(name.as_str(), user.revision, &linked, user.expires).map_err(failed)?;
        let mut steps = vec![put, connector_stands];
        let record = PersonRecord::of(&origin, &name, now);
        let owner = self.store.get::<NameRecord>(name.as_str(), now).await.map_err(failed)?;
        match (known, owner) {
            // They had the name before it was a local user's.
            (Some(known), Some(owner)) if owner.value.person == key => {
                steps.push(typed::update(&key, known.revision, &record, None).map_err(failed)?);
            }
            (known, owner) => {
                // A person who had the name before it was a local user's comes as one who was never here.
                if owner.is_some() {
                    steps.extend(forgotten(&self.store, &name, now).await?);
                }
                steps.push(match known {
                    Some(known) => typed::update(&key, known.revision, &record, None).map_err(failed)?,
                    None => typed::create(&key, &record, None).map_err(failed)?,
                });
                steps.push(typed::create(name.as_str(), &NameRecord { person: key }, None).map_err(failed)?);
            }
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(failed)?;
        self.identities.put_user(linked, revisions.first().copied().unwrap_or_default());
        self.journal.record(vec![told(caller, Code::UserLinked, &name, &origin)]).await?;
        Ok(v1::LinkUserResponse {
            user: name.to_string(),
            connector: origin.connector,
            issuer: origin.issuer,
            subject: origin.subject,
        })
    }

    /// A connector by whose people local users may come, and the step that fails unless it is as it is here.
    async fn linkable(&self, name: &str, now: OffsetDateTime) -> Result<(Connector, Op), Status> {
        let missing = || {
            let name = shown(name);
            Status::not_found(format!("there is no connector {name}; see: sallyport admin sso ls"))
        };
        let name = ResourceName::new(name).map_err(|_| missing())?;
        let stored = self.store.get::<ConnectorRecord>(name.as_str(), now).await.map_err(failed)?;
        let stored = stored.ok_or_else(missing)?;
        if self.provisioning.has_tokens(&name, now).await? {
            return Err(Status::failed_precondition(format!(
                "the connector {name} has a SCIM client, which says who comes by it: a local user is none of its people; link with a \
                 connector without one, or end its tokens first (sallyport admin scim token rm)"
            )));
        }
        let remote = self.remote(name.as_str(), now).await?;
        let key = format!("{KIND}/{name}");
        Ok((remote.connector().clone(), Op::Check { key, revision: stored.revision }))
    }

    /// Ends the link of a user, the logins that came by it, and what was signed by them.
    pub(crate) async fn unlink_user(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<v1::UnlinkUserResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let name = UserName::new(name).map_err(|_| missing(name))?;
        let _changing = self.identities.change().await;
        let user = self.store.get::<UserRecord>(name.as_str(), now).await.map_err(failed)?;
        let user = user.ok_or_else(|| missing(name.as_str()))?;
        self.delegation.must_hold(caller, "Admin.UnlinkUser", &user.value).await?;
        must_be_local(&user.value)?;
        let Some(link) = user.value.link.clone() else {
            return Err(Status::failed_precondition(format!(
                "{name} is linked with no person of a provider, and logs in by their password and passkeys alone"
            )));
        };
        let becomes = Becomes::Unlinked(link.clone());
        let ended_logins = self.end_by(caller, &user, &becomes, "the user was unlinked", now).await?;
        Ok(v1::UnlinkUserResponse {
            user: name.to_string(),
            connector: link.connector,
            issuer: link.issuer,
            subject: link.subject,
            ended_logins: u32::try_from(ended_logins).unwrap_or(u32::MAX),
        })
    }
}

/// The step that fails where a user was changed since they were read.
fn unchanged(user: &Stored<UserRecord>) -> Op {
    Op::Check { key: format!("{}/{}", UserRecord::KIND, user.value.name), revision: user.revision }
}
