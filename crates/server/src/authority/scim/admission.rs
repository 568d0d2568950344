//! Who may log in by a connector that is provisioned: a person whom its SCIM client says to be active.

use sallyport_access::{ResourceName, UserName};
use sallyport_scim::Kind;
use sallyport_store::{Op, typed};
use time::OffsetDateTime;
use tonic::Status;

use super::provisioning::Provisioning;
use super::records::{ScimLinkRecord, ScimNameRecord, ScimRecord, link_key, name_key, resource_key};
use crate::authority::storage::storage;

/// What provisioning says of a person who logs in.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Nothing: the connector has no SCIM client.
    NotProvisioned,
    /// They may. The steps tie the user that they become here to the client's.
    Active(Vec<Op>),
    /// They may not.
    Refused,
}

impl Provisioning {
    /// Whether a person may log in by a connector as `user`, whom the provider calls `called` now. The caller holds what
    /// `Identities::change` gives, and makes the steps with the user, so that none who leaves at this moment is forgotten.
    pub(crate) async fn admission(
        &self,
        connector: &ResourceName,
        called: Option<&UserName>,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<Admission, Status> {
        if self.tokens_of(connector, now).await?.is_empty() {
            return Ok(Admission::NotProvisioned);
        }
        let Some(called) = called else { return Ok(Admission::Refused) };
        let failed = |error| storage(&error);
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
        let below = link_key(connector, &owner.id);
        let link = typed::put(&format!("{below}/{user}"), &ScimLinkRecord { user: user.clone() }, None);
        Ok(Admission::Active(vec![link.map_err(failed)?]))
    }
}
