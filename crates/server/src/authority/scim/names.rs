//! The names that SCIM clients have announced: each is the client's user's, also before the person has logged in.

use sallyport_access::{ResourceName, UserName};
use sallyport_scim::Kind;
use sallyport_store::{Kind as _, Op, Stored};
use time::OffsetDateTime;
use tonic::Status;

use super::provisioning::Provisioning;
use super::records::{ScimNameRecord, ScimPersonRecord, ScimRecord, name_key, of_resource, resource_key};
use crate::authority::storage::storage;

impl Provisioning {
    /// The step that fails unless a name is announced, or not, as it is here: by no client, or by that of this connector, or as the name
    /// of the very person, whom another connector's client calls so. Else the connector whose client has announced it. The caller holds
    /// what [`Self::steady`] gives.
    pub(crate) async fn unannounced(
        &self,
        name: &str,
        of: Option<(&ResourceName, &str)>,
        now: OffsetDateTime,
    ) -> Result<Result<Op, ResourceName>, Status> {
        let key = name_key(name);
        let owner = self.store.get::<ScimNameRecord>(&key, now).await.map_err(|error| storage(&error))?;
        let revision = owner.as_ref().map_or(0, |owner| owner.revision);
        let as_is = Op::Check { key: format!("{}/{key}", ScimNameRecord::KIND), revision };
        let Some(Stored { value: owner, .. }) = owner else { return Ok(Ok(as_is)) };
        // What a client has said counts as long as its connector has tokens, and it says that the user may come. Once the name is another's, the
        // client does not activate its own again.
        let is_active = async || {
            let key = resource_key(&owner.connector, Kind::User, &owner.id);
            let stored = self.store.get::<ScimRecord>(&key, now).await.map_err(|error| storage(&error))?;
            Ok::<_, Status>(stored.is_some_and(|stored| stored.value.resource.draft.is_active()))
        };
        if !self.has_tokens(&owner.connector, now).await? || !is_active().await? {
            return Ok(Ok(as_is));
        }
        let Some((connector, person)) = of else { return Ok(Err(owner.connector)) };
        if owner.connector == *connector {
            return Ok(Ok(as_is));
        }
        let key = of_resource(&owner.connector, &owner.id);
        let bound = self.store.get::<ScimPersonRecord>(&key, now).await.map_err(|error| storage(&error))?;
        let is_theirs = bound.is_some_and(|bound| bound.value.person == person);
        Ok(if is_theirs { Ok(as_is) } else { Err(owner.connector) })
    }

    /// As [`Self::unannounced`], for a user of the cluster's own.
    ///
    /// # Errors
    /// A client has announced the name.
    pub(crate) async fn free_of_clients(&self, name: &UserName, now: OffsetDateTime) -> Result<Op, Status> {
        self.unannounced(name.as_str(), None, now).await?.map_err(|connector| {
            Status::already_exists(format!(
                "the name {name} is that of a user whom the SCIM client of the connector {connector} has made, also before the person first logs \
                 in: choose another name, or have the identity provider remove or rename its user"
            ))
        })
    }
}
