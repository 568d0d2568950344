//! The end of a connector's SCIM client: nothing that the client made here stays.

use sallyport_access::ResourceName;
use sallyport_scim::Kind as ResourceKind;
use sallyport_store::{Kind, Op, typed};
use time::OffsetDateTime;
use tokio::sync::RwLockWriteGuard;
use tonic::Status;

use super::directory::RESOURCES;
use super::provisioning::Provisioning;
use super::records::{
    ScimBindingRecord, ScimLinkRecord, ScimNameRecord, ScimPersonRecord, ScimRecord, ScimTokenRecord,
    name_key,
};
use crate::authority::storage::{removed, storage};

impl Provisioning {
    /// Held while a connector is written or removed: no SCIM client changes anything, and no token is made, meanwhile.
    pub(crate) async fn change(&self) -> RwLockWriteGuard<'_, ()> {
        self.changing.write().await
    }

    /// Whether a connector has tokens, those that are over, too.
    pub(crate) async fn has_tokens(
        &self,
        connector: &ResourceName,
        now: OffsetDateTime,
    ) -> Result<bool, Status> {
        Ok(!self.tokens_of(connector, now).await?.is_empty())
    }

    /// The steps that end all tokens of a connector.
    pub(crate) async fn without_tokens(
        &self,
        connector: &ResourceName,
        now: OffsetDateTime,
    ) -> Result<Vec<Op>, Status> {
        let tokens = self.tokens_of(connector, now).await?;
        let end = |token: &sallyport_store::Stored<ScimTokenRecord>| {
            typed::delete::<ScimTokenRecord>(&format!("{connector}/{}", token.name), Some(token.revision))
        };
        Ok(tokens.iter().map(end).collect())
    }

    /// Forgets which people a connector's users are: with another issuer there are other people.
    pub(crate) async fn forget_people(
        &self,
        connector: &ResourceName,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        self.sweep::<ScimLinkRecord>(connector, now, |_| Ok(Vec::new())).await?;
        self.sweep::<ScimPersonRecord>(connector, now, |_| Ok(Vec::new())).await?;
        self.sweep::<ScimBindingRecord>(connector, now, |_| Ok(Vec::new())).await
    }

    /// Forgets all that the client of a connector has made. The caller holds what [`Self::change`] gives, and has ended the tokens.
    pub(crate) async fn forget(&self, connector: &ResourceName, now: OffsetDateTime) -> Result<(), Status> {
        self.known.lock().remove(connector);
        self.sweep::<ScimTokenRecord>(connector, now, |_| Ok(Vec::new())).await?;
        let name = |record: &ScimRecord| {
            let draft = &record.resource.draft;
            let name = draft.user_name().filter(|_| draft.kind() == ResourceKind::User);
            let Some(name) = name else { return Ok(Vec::new()) };
            let owner = ScimNameRecord { connector: connector.clone(), id: record.resource.id.clone() };
            removed(&name_key(name), &owner).map(Vec::from).map_err(|error| storage(&error))
        };
        self.sweep::<ScimRecord>(connector, now, name).await?;
        self.forget_people(connector, now).await
    }

    /// Removes all records of a kind below a connector, page by page, with what else goes with each.
    async fn sweep<T: Kind>(
        &self,
        connector: &ResourceName,
        now: OffsetDateTime,
        besides: impl Fn(&T) -> Result<Vec<Op>, Status>,
    ) -> Result<(), Status> {
        loop {
            let page = self.store.list_below::<T>(connector.as_str(), None, RESOURCES, now).await;
            let page = page.map_err(|error| storage(&error))?;
            if page.is_empty() {
                return Ok(());
            }
            let mut steps = Vec::new();
            for stored in &page {
                steps.push(typed::delete::<T>(&format!("{connector}/{}", stored.name), None));
                steps.extend(besides(&stored.value)?);
            }
            let made = self.store.backend().transact_urgent(steps, now).await;
            made.map_err(|error| storage(&error))?;
        }
    }
}
