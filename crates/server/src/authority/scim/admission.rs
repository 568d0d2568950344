//! Who may log in by a connector that is provisioned: a person whom its SCIM client says to be active.

use std::collections::BTreeSet;

use sallyport_access::{ResourceName, UserName};
use sallyport_scim::{BackendError, Kind};
use sallyport_store::{Op, typed};
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
    Refused,
}

impl Provisioning {
    /// Whether a person, by the key of their record, may log in by a connector as `user`, whom the provider calls `called` now. The
    /// name finds the client's user for a person who is none yet. From then on the two are one: names change, at many providers by
    /// the person's own hand, and a name alone would let one whom the client has deactivated in as a colleague. The caller holds what
    /// [`Self::steady`] and `Identities::change` give, and makes the steps with the user: no client's word comes in between, so that
    /// none who leaves at this moment is forgotten, and no group counts that the person has left.
    pub(crate) async fn admission(
        &self,
        connector: &ResourceName,
        person: &str,
        called: Option<&UserName>,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<Admission, Status> {
        let failed = |error| storage(&error);
        // Its removal takes the tokens, too: a login that is under way then is not decided by the mapping alone.
        if self.store.get::<ConnectorRecord>(connector.as_str(), now).await.map_err(failed)?.is_none() {
            return Ok(Admission::Refused);
        }
        if self.tokens_of(connector, now).await?.is_empty() {
            return Ok(Admission::NotProvisioned);
        }
        let Some(called) = called else { return Ok(Admission::Refused) };
        let owner =
            self.store.get::<ScimNameRecord>(&name_key(called.as_str()), now).await.map_err(failed)?;
        let Some(owner) = owner.map(|owner| owner.value).filter(|owner| owner.connector == *connector) else {
            return Ok(Admission::Refused);
        };
        let key = resource_key(connector, Kind::User, &owner.id);
        let stored = self.store.get::<ScimRecord>(&key, now).await.map_err(failed)?;
        if !stored.is_some_and(|stored| stored.value.resource.draft.is_active()) {
            return Ok(Admission::Refused);
        }
        let (of_resource, of_person) = (of_resource(connector, &owner.id), of_person(connector, person));
        let bound = self.store.get::<ScimPersonRecord>(&of_resource, now).await.map_err(failed)?;
        let other = self.store.get::<ScimBindingRecord>(&of_person, now).await.map_err(failed)?;
        if bound.as_ref().is_some_and(|bound| bound.value.person != person)
            || other.is_some_and(|other| other.value.id != owner.id)
        {
            return Ok(Admission::Refused);
        }
        let id = Uuid::parse_str(&owner.id)
            .map_err(|_| Status::internal("a provisioned user has no identifier"))?;
        let below = link_key(connector, &owner.id);
        let link = typed::put(&format!("{below}/{user}"), &ScimLinkRecord { user: user.clone() }, None);
        let mut steps = vec![link.map_err(failed)?];
        if bound.is_none() {
            let record = ScimPersonRecord { person: person.to_owned() };
            steps.push(typed::create(&of_resource, &record, None).map_err(failed)?);
            let record = ScimBindingRecord { id: owner.id };
            steps.push(typed::create(&of_person, &record, None).map_err(failed)?);
        }
        let groups = self.known(connector).await.map_err(unread)?.members.names_of(id);
        Ok(Admission::Active { steps, groups })
    }
}

/// What clients have said could not be read: the failure of a call that is none of a client's.
fn unread(error: BackendError) -> Status {
    tracing::error!(error = %crate::ServerError::chain(&error), "what a SCIM client has said cannot be read");
    Status::internal("the groups of the person cannot be read; the authority's log says why")
}
