//! Who may log in by a connector that is provisioned: a person whom its SCIM client says to be active.

use std::collections::BTreeSet;

use sallyport_access::{ResourceName, UserName};
use sallyport_scim::{BackendError, Draft, Kind};
use sallyport_store::{Op, typed};
use serde::Serialize;
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use super::provisioning::Provisioning;
use super::records::{
    ScimBindingRecord, ScimLinkRecord, ScimNameRecord, ScimPersonRecord, ScimRecord, link_key, name_key,
    of_person, of_resource, resource_key,
};
use crate::authority::sso::records::ConnectorRecord;
use crate::authority::storage::storage;

/// What provisioning says of a person who logs in.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Nothing: the connector has no SCIM client.
    NotProvisioned,
    /// They may. The steps tie the person, and the user that they become here, to the client's user, which is in these groups.
    Active { steps: Vec<Op>, groups: BTreeSet<String> },
    /// They may not.
    Refused(Unprovisioned),
}

/// Why a person may not log in by a connector that is provisioned: what an administrator reads, after "the connector is provisioned by
/// SCIM, and".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unprovisioned {
    /// The client has no active user of the name.
    #[error(
        "its client has no active user {name:?}: assign the person to the application at the provider, or have the connector's username \
             template give what is its userName there"
    )]
    NoUser { name: String },
    /// The connector was removed meanwhile.
    #[error("it was removed at this moment")]
    NoConnector,
    /// The user is another person.
    #[error(
        "its client's user {name:?} is another person, who logged in as that one first: where it should be this one, have the provider \
             remove the user and make it anew"
    )]
    AnotherPerson { name: String },
    /// The person is another user, who is not active.
    #[error(
        "the person is another of its client's users, who is not active, and no one is two: have the provider activate that one in place of \
             {name:?}, or write scim.external_id in the connector's document where both have one externalId"
    )]
    AnotherUser { name: String },
    /// The person was another user, whom the client has removed.
    #[error(
        "the person was another of its client's users, whom it has removed, and the name {name:?} alone makes them no other one: have the \
             provider make their user anew under the userName that it had, or write scim.external_id in the connector's document"
    )]
    Removed { name: String },
    /// The provider did not say by what the client's user would be known.
    #[error(
        "the template {template:?} of scim.external_id gives no one text, so that it is not known which of its client's users the person is: \
             have the provider send the claim, once and not empty"
    )]
    NoExternalId { template: String },
    /// The user of the name has another identifier.
    #[error(
        "its client's user {name:?} has not the externalId {expected:?}, which scim.external_id gives for the person: have the provider send \
             that as externalId, or let the person be called what their user there is"
    )]
    OtherExternalId { name: String, expected: String },
    /// It is not known which user the identifier is of.
    #[error(
        "{users} active users of its client have the externalId {expected:?}, and none of them is chosen: have the provider send each its own"
    )]
    SharedExternalId { users: usize, expected: String },
}

/// By what a person is found among a client's users.
#[derive(Debug, Clone)]
pub(crate) struct Sought {
    /// What the provider calls them now; none where it says nothing that is a name.
    pub(crate) called: Option<UserName>,
    /// Where the connector has a template for it.
    pub(crate) external_id: Option<ExternalId>,
}

/// What a connector's `scim.external_id` gives for a person.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ExternalId {
    pub(crate) template: String,
    /// The one text that it becomes, never an empty one.
    pub(crate) value: Option<String>,
}

impl Provisioning {
    /// Whether a person, by the key of their record, may log in by a connector as `user`. What the provider calls them now, and their
    /// `externalId` where the connector looks at it, find the client's user for a person who is none yet. From then on the two are one,
    /// whatever either is called: names change, at many providers by the person's own hand and before the client hears of it, and a name
    /// alone would let one whom the client has deactivated, or removed, in as a colleague. The caller holds what [`Self::steady`] and
    /// `Identities::change` give, and makes the steps with the user: no client's word comes in between, so that none who leaves at this
    /// moment is forgotten, and no group counts that the person has left.
    pub(crate) async fn admission(
        &self,
        connector: &ResourceName,
        person: &str,
        sought: &Sought,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<Admission, Status> {
        let failed = |error| storage(&error);
        // Its removal takes the tokens, too: a login that is under way then is not decided by the mapping alone.
        if self.store.get::<ConnectorRecord>(connector.as_str(), now).await.map_err(failed)?.is_none() {
            return Ok(Admission::Refused(Unprovisioned::NoConnector));
        }
        if self.tokens_of(connector, now).await?.is_empty() {
            return Ok(Admission::NotProvisioned);
        }
        let binding = of_person(connector, person);
        let before = self.store.get::<ScimBindingRecord>(&binding, now).await.map_err(failed)?;
        let bound = before.as_ref().filter(|before| before.value.removed.is_none());
        let theirs = match bound {
            Some(bound) => self.user_of(connector, &bound.value.id, now).await?,
            None => None,
        };
        if let (Some(bound), Some(theirs)) = (bound, &theirs)
            && theirs.is_active()
        {
            return self.admitted(connector, &bound.value.id, user, Vec::new()).await;
        }
        let name = sought.called.as_ref().unwrap_or(user).to_string();
        let none = || Ok(Admission::Refused(Unprovisioned::NoUser { name: name.clone() }));
        let Some(called) = &sought.called else { return none() };
        let called = name_key(called.as_str());
        let owner = self.store.get::<ScimNameRecord>(&called, now).await.map_err(failed)?;
        let Some(owner) = owner.map(|owner| owner.value).filter(|owner| owner.connector == *connector) else {
            return none();
        };
        let Some(found) = self.user_of(connector, &owner.id, now).await?.filter(Draft::is_active) else {
            return none();
        };
        let whose = of_resource(connector, &owner.id);
        if self.store.get::<ScimPersonRecord>(&whose, now).await.map_err(failed)?.is_some() {
            return Ok(Admission::Refused(Unprovisioned::AnotherPerson { name }));
        }
        let wanted = sought.external_id.as_ref();
        let is_of_one = |theirs: &Draft| wanted.is_some_and(|wanted| wanted.is_of(theirs));
        // One whom the client deactivates and then makes anew is one person by the identifier, and by nothing else.
        if bound.is_some() && !theirs.as_ref().is_some_and(is_of_one) {
            return Ok(Admission::Refused(Unprovisioned::AnotherUser { name }));
        }
        let known = self.known(connector).await.map_err(unread)?;
        let refused = match wanted {
            Some(wanted) => wanted.check(&name, &found, |id| known.users_of(id)).err(),
            None => before
                .as_ref()
                .and_then(|before| before.value.removed.as_ref())
                .filter(|removed| **removed != called)
                .map(|_| Unprovisioned::Removed { name }),
        };
        if let Some(refused) = refused {
            return Ok(Admission::Refused(refused));
        }
        let mut steps = Vec::new();
        if let Some(bound) = bound {
            let former = of_resource(connector, &bound.value.id);
            steps.push(typed::delete::<ScimPersonRecord>(&former, None));
        }
        let record = ScimPersonRecord { person: person.to_owned() };
        steps.push(typed::create(&whose, &record, None).map_err(failed)?);
        let record = ScimBindingRecord::to(&owner.id);
        let step = match &before {
            Some(before) => typed::update(&binding, before.revision, &record, None),
            None => typed::create(&binding, &record, None),
        };
        steps.push(step.map_err(failed)?);
        self.admitted(connector, &owner.id, user, steps).await
    }

    /// A client's user as it is now.
    async fn user_of(
        &self,
        connector: &ResourceName,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Draft>, Status> {
        let key = resource_key(connector, Kind::User, id);
        let stored = self.store.get::<ScimRecord>(&key, now).await.map_err(|error| storage(&error))?;
        Ok(stored.map(|stored| stored.value.resource.draft))
    }

    /// That a person is a client's user `id`, and `user` here.
    async fn admitted(
        &self,
        connector: &ResourceName,
        id: &str,
        user: &UserName,
        mut steps: Vec<Op>,
    ) -> Result<Admission, Status> {
        let link = format!("{}/{user}", link_key(connector, id));
        let link = typed::put(&link, &ScimLinkRecord { user: user.clone() }, None);
        steps.push(link.map_err(|error| storage(&error))?);
        let id = Uuid::parse_str(id).map_err(|_| Status::internal("a provisioned user has no identifier"))?;
        let known = self.known(connector).await.map_err(unread)?;
        Ok(Admission::Active { steps, groups: known.members.names_of(id) })
    }
}

impl ExternalId {
    /// Whether it is a client's user's.
    fn is_of(&self, user: &Draft) -> bool {
        self.value.as_deref().is_some_and(|value| user.external_id() == Some(value))
    }

    /// That the client's user `name` is the one that this finds; `users` counts those of an identifier.
    fn check(
        &self,
        name: &str,
        user: &Draft,
        users: impl FnOnce(&str) -> usize,
    ) -> Result<(), Unprovisioned> {
        let Some(expected) = self.value.clone() else {
            return Err(Unprovisioned::NoExternalId { template: self.template.clone() });
        };
        if !self.is_of(user) {
            return Err(Unprovisioned::OtherExternalId { name: name.to_owned(), expected });
        }
        match users(&expected) {
            0 | 1 => Ok(()),
            users => Err(Unprovisioned::SharedExternalId { users, expected }),
        }
    }
}

/// What clients have said could not be read: the failure of a call that is none of a client's.
fn unread(error: BackendError) -> Status {
    tracing::error!(error = %crate::ServerError::chain(&error), "what a SCIM client has said cannot be read");
    Status::internal("the groups of the person cannot be read; the authority's log says why")
}
