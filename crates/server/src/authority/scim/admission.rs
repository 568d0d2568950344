//! Who may log in by a connector that is provisioned: a person whom its SCIM client says to be active.

use std::collections::BTreeSet;

use sallyport_access::{ResourceName, UserName};
use sallyport_scim::{BackendError, Kind};
use sallyport_store::{Op, Stored, typed};
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
    /// The person is another user.
    #[error(
        "the person is another of its client's users, and no one is two: have the provider rename that one to {name:?}, and remove the \
             user that is called so"
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
        "{users} users of its client have the externalId {expected:?}, and none of them is chosen: have the provider send each its own"
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
    /// `externalId` where the connector looks at it, find the client's user for a person who is none yet. From then on the two are one:
    /// names change, at many providers by the person's own hand, and a name alone would let one whom the client has deactivated, or
    /// removed, in as a colleague. The caller holds what [`Self::steady`] and `Identities::change` give, and makes the steps with the
    /// user: no client's word comes in between, so that none who leaves at this moment is forgotten, and no group counts that the
    /// person has left.
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
        let name = sought.called.as_ref().unwrap_or(user).to_string();
        let none = || Ok(Admission::Refused(Unprovisioned::NoUser { name: name.clone() }));
        let Some(called) = &sought.called else { return none() };
        let called = name_key(called.as_str());
        let owner = self.store.get::<ScimNameRecord>(&called, now).await.map_err(failed)?;
        let Some(owner) = owner.map(|owner| owner.value).filter(|owner| owner.connector == *connector) else {
            return none();
        };
        let key = resource_key(connector, Kind::User, &owner.id);
        let stored = self.store.get::<ScimRecord>(&key, now).await.map_err(failed)?;
        let Some(stored) = stored.filter(|stored| stored.value.resource.draft.is_active()) else {
            return none();
        };
        let (of_resource, of_person) = (of_resource(connector, &owner.id), of_person(connector, person));
        let bound = self.store.get::<ScimPersonRecord>(&of_resource, now).await.map_err(failed)?;
        if bound.as_ref().is_some_and(|bound| bound.value.person != person) {
            return Ok(Admission::Refused(Unprovisioned::AnotherPerson { name }));
        }
        let before = self.store.get::<ScimBindingRecord>(&of_person, now).await.map_err(failed)?;
        let is_another = |before: &Stored<ScimBindingRecord>| {
            before.value.removed.is_none() && before.value.id != owner.id
        };
        if before.as_ref().is_some_and(is_another) {
            return Ok(Admission::Refused(Unprovisioned::AnotherUser { name }));
        }
        let id = Uuid::parse_str(&owner.id)
            .map_err(|_| Status::internal("a provisioned user has no identifier"))?;
        let known = self.known(connector).await.map_err(unread)?;
        let below = link_key(connector, &owner.id);
        let link = typed::put(&format!("{below}/{user}"), &ScimLinkRecord { user: user.clone() }, None);
        let mut steps = vec![link.map_err(failed)?];
        if bound.is_none() {
            let has = stored.value.resource.draft.external_id();
            let refused = match &sought.external_id {
                Some(wanted) => wanted.check(&name, has, |id| known.users_of(id)).err(),
                None => before
                    .as_ref()
                    .and_then(|before| before.value.removed.as_ref())
                    .filter(|removed| **removed != called)
                    .map(|_| Unprovisioned::Removed { name }),
            };
            if let Some(refused) = refused {
                return Ok(Admission::Refused(refused));
            }
            let record = ScimPersonRecord { person: person.to_owned() };
            steps.push(typed::create(&of_resource, &record, None).map_err(failed)?);
            let record = ScimBindingRecord::to(&owner.id);
            let step = match &before {
                Some(before) => typed::update(&of_person, before.revision, &record, None),
                None => typed::create(&of_person, &record, None),
            };
            steps.push(step.map_err(failed)?);
        }
        Ok(Admission::Active { steps, groups: known.members.names_of(id) })
    }
}

impl ExternalId {
    /// That the client's user `name`, whose `externalId` is `has`, is the one that this finds; `users` counts those of an identifier.
    fn check(
        &self,
        name: &str,
        has: Option<&str>,
        users: impl FnOnce(&str) -> usize,
    ) -> Result<(), Unprovisioned> {
        let Some(expected) = self.value.clone() else {
            return Err(Unprovisioned::NoExternalId { template: self.template.clone() });
        };
        if has != Some(expected.as_str()) {
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
