//! The users and groups of one connector, in the authority's state; and what it means for the cluster's users when one leaves.

use std::collections::BTreeMap;

use async_trait::async_trait;
use sallyport_access::{ResourceName, UserName};
use sallyport_audit::{Code, Event};
use sallyport_scim::{Backend, BackendError, Draft, Each, Kind, Narrow, Resource, fold};
use sallyport_store::{Op, StoreError, Stored, typed};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use super::provisioning::Provisioning;
use super::records::{
    ScimLinkRecord, ScimNameRecord, ScimRecord, kind_key, link_key, name_key, resource_key,
};
use crate::authority::caller::Caller;
use crate::authority::records::UserRecord;
use crate::authority::storage::{PAGE, removed};

/// Most users and groups of a connector.
const MAX_RESOURCES: usize = 100_000;

/// What a SCIM client of a connector reaches.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    scim: &'a Provisioning,
    connector: &'a ResourceName,
    client: &'a Caller,
}

/// What the end of users takes.
#[derive(Default)]
struct Ended {
    steps: Vec<Op>,
    events: Vec<Event>,
    /// Where among the steps each user's end is.
    users: Vec<(usize, UserName)>,
}

fn state(error: StoreError) -> BackendError {
    match error {
        StoreError::Conflict { .. } | StoreError::Exists { .. } | StoreError::NotFound { .. } => {
            BackendError::Changed
        }
        error => BackendError::Failed(Box::new(error)),
    }
}

fn failed(status: Status) -> BackendError {
    BackendError::Failed(Box::new(status))
}

impl<'a> Directory<'a> {
    pub(super) fn new(scim: &'a Provisioning, connector: &'a ResourceName, client: &'a Caller) -> Self {
        Self { scim, connector, client }
    }

    async fn stored(&self, kind: Kind, id: &str) -> Result<Option<Stored<ScimRecord>>, BackendError> {
        // An identifier is one of ours, and no part of another key.
        if Uuid::parse_str(id).is_err() {
            return Ok(None);
        }
        let key = resource_key(self.connector, kind, id);
        self.scim.store.get::<ScimRecord>(&key, OffsetDateTime::now_utc()).await.map_err(state)
    }

    async fn found(&self, kind: Kind, id: &str) -> Result<Stored<ScimRecord>, BackendError> {
        let missing = || BackendError::NotFound { kind, id: id.to_owned() };
        self.stored(kind, id).await?.ok_or_else(missing)
    }

    /// Shows every resource of a kind.
    async fn every(&self, kind: Kind, each: &mut Each<'_>) -> Result<(), BackendError> {
        let now = OffsetDateTime::now_utc();
        let below = kind_key(self.connector, kind);
        let mut after = None::<String>;
        loop {
            let page = self.scim.store.list_below::<ScimRecord>(&below, after.as_deref(), PAGE, now);
            let page = page.await.map_err(state)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.name.clone());
            page.iter().for_each(|stored| each(&stored.value.resource));
        }
    }

    /// How many resources there are.
    async fn count(&self) -> Result<usize, BackendError> {
        if let Some(known) = self.scim.counts.lock().get(self.connector) {
            return Ok(*known);
        }
        let mut count = 0;
        for kind in Kind::ALL {
            self.every(*kind, &mut |_: &Resource| count += 1).await?;
        }
        self.scim.counts.lock().insert(self.connector.clone(), count);
        Ok(count)
    }

    /// That a user may have a name: no other user of a client has it, nor one of the cluster that did not come by this connector.
    async fn is_free(&self, name: &str, own: Option<&str>) -> Result<(), BackendError> {
        let now = OffsetDateTime::now_utc();
        let owner = self.scim.store.get::<ScimNameRecord>(&name_key(name), now).await.map_err(state)?;
        let is_own =
            |owner: &ScimNameRecord| owner.connector == *self.connector && Some(owner.id.as_str()) == own;
        if owner.is_some_and(|owner| !is_own(&owner.value)) {
            return Err(BackendError::UserNameTaken);
        }
        let folded = fold(name);
        let others =
            self.scim.identities.users(|user| !self.is_ours(user) && fold(user.name.as_str()) == folded);
        if others.is_empty() { Ok(()) } else { Err(BackendError::UserNameTaken) }
    }

    /// Whether a user of the cluster came by this connector.
    fn is_ours(&self, user: &UserRecord) -> bool {
        user.origin.as_ref().is_some_and(|origin| origin.connector == self.connector.as_str())
    }

    /// Says what the new members of a group are. The others stay what they are: who is removed is taken out of its groups.
    async fn name_members(&self, draft: &mut Draft) -> Result<(), BackendError> {
        let mut kinds = BTreeMap::new();
        for id in draft.unnamed_members().map(str::to_owned).collect::<Vec<_>>() {
            for kind in Kind::ALL {
                if self.stored(*kind, &id).await?.is_some() {
                    kinds.insert(id.clone(), *kind);
                    break;
                }
            }
        }
        draft.name_members(|id| kinds.get(id).copied()).map_err(|id| BackendError::NoSuchMember { id })
    }

    fn key(&self, resource: &Resource) -> String {
        resource_key(self.connector, resource.draft.kind(), &resource.id)
    }

    fn record(resource: &Resource) -> ScimRecord {
        ScimRecord { resource: resource.clone() }
    }

    /// The steps by which a user's name becomes another, or none.
    fn rename(&self, id: &str, before: Option<&str>, after: Option<&str>) -> Result<Vec<Op>, BackendError> {
        let record = ScimNameRecord { connector: self.connector.clone(), id: id.to_owned() };
        let mut steps = Vec::new();
        let (before, after) = (before.map(name_key), after.map(name_key));
        if before == after {
            return Ok(steps);
        }
        if let Some(before) = before {
            steps.extend(removed(&before, &record).map_err(state)?);
        }
        if let Some(after) = after {
            steps.push(typed::create(&after, &record, None).map_err(state)?);
        }
        Ok(steps)
    }

    /// Ends the users of the cluster that logged in as this one, and their logins. The caller holds what `Identities::change` gives.
    async fn end(
        &self,
        id: &str,
        why: &str,
        now: OffsetDateTime,
        ended: &mut Ended,
    ) -> Result<(), BackendError> {
        let below = link_key(self.connector, id);
        let mut after = None::<String>;
        loop {
            let page = self.scim.store.list_below::<ScimLinkRecord>(&below, after.as_deref(), PAGE, now);
            let page = page.await.map_err(state)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.name.clone());
            for link in page {
                ended.steps.extend(removed(&format!("{below}/{}", link.name), &link.value).map_err(state)?);
                let user =
                    self.scim.store.get::<UserRecord>(link.value.user.as_str(), now).await.map_err(state)?;
                // A user of the name whom an administrator made since is another's business.
                let Some(user) = user.filter(|user| self.is_ours(&user.value)) else { continue };
                let name = user.value.name.clone();
                let logins =
                    self.scim.logins.end_logins(self.client, &name, why, now).await.map_err(failed)?;
                let event = self
                    .client
                    .event(Code::ScimDeprovisioned)
                    .message(format!("user/{name}"))
                    .field("connector", self.connector.to_string())
                    .field("name", name.to_string())
                    .field("id", id.to_owned())
                    .field("ended_logins", logins.events.len());
                ended.users.push((ended.steps.len(), name.clone()));
                ended.steps.push(typed::delete::<UserRecord>(name.as_str(), Some(user.revision)));
                ended.steps.extend(logins.steps);
                ended.events.push(event);
                ended.events.extend(logins.events);
            }
        }
    }

    fn told(&self, resource: &Resource, what: &'static str) -> Event {
        let draft = &resource.draft;
        let name = draft.user_name().or(draft.display_name()).unwrap_or_default();
        self.client
            .event(Code::ScimChanged)
            .message(format!("{} {} {what}", draft.kind(), resource.id))
            .field("connector", self.connector.to_string())
            .field("kind", draft.kind().name())
            .field("id", resource.id.clone())
            .field("name", name.to_owned())
            .field("what", what)
            .field("active", draft.is_active())
            .field("members", draft.members().count())
    }

    /// Makes the steps of a change, with the end of users that it has, and puts both on record.
    async fn make(
        &self,
        mut steps: Vec<Op>,
        ended: Ended,
        event: Event,
        now: OffsetDateTime,
    ) -> Result<(), BackendError> {
        let first = steps.len();
        steps.extend(ended.steps);
        let is_end = !ended.events.is_empty();
        let backend = self.scim.store.backend();
        let made = if is_end {
            backend.transact_urgent(steps, now).await
        } else {
            backend.transact(steps, now).await
        };
        let revisions = made.map_err(state)?;
        for (at, user) in ended.users {
            let revision = revisions.get(first + at).copied().unwrap_or_default();
            self.scim.identities.remove_user(&user, revision);
        }
        let mut events = vec![event];
        events.extend(ended.events);
        if is_end {
            self.scim.policy.refresh_after("lock").await.map_err(failed)?;
            return self.scim.journal.record_urgent(events).await.map_err(failed);
        }
        self.scim.journal.record(events).await.map_err(failed)
    }
}

#[async_trait]
impl Backend for Directory<'_> {
    async fn get(&self, kind: Kind, id: &str) -> Result<Option<Resource>, BackendError> {
        Ok(self.stored(kind, id).await?.map(|stored| stored.value.resource))
    }

    async fn scan(&self, kind: Kind, narrow: &Narrow, each: &mut Each<'_>) -> Result<(), BackendError> {
        let _unchanged = self.scim.changing.read().await;
        let one = match narrow {
            Narrow::Id(id) => Some(id.clone()),
            Narrow::UserName(name) => {
                let now = OffsetDateTime::now_utc();
                let owner =
                    self.scim.store.get::<ScimNameRecord>(&name_key(name), now).await.map_err(state)?;
                let owner = owner.map(|owner| owner.value).filter(|owner| owner.connector == *self.connector);
                let Some(owner) = owner else { return Ok(()) };
                Some(owner.id)
            }
            Narrow::All | Narrow::ExternalId(_) | Narrow::Members(_) => None,
        };
        if let Some(id) = one {
            if let Some(stored) = self.stored(kind, &id).await? {
                each(&stored.value.resource);
            }
            return Ok(());
        }
        self.every(kind, each).await
    }

    async fn create(&self, mut draft: Draft, now: OffsetDateTime) -> Result<Resource, BackendError> {
        let _changing = self.scim.changing.write().await;
        let kind = draft.kind();
        if self.count().await? >= MAX_RESOURCES {
            return Err(BackendError::Full { kind, limit: MAX_RESOURCES });
        }
        if let Some(name) = draft.user_name() {
            self.is_free(name, None).await?;
        }
        self.name_members(&mut draft).await?;
        let id = Uuid::now_v7().to_string();
        let resource = Resource { id, draft, created: now, modified: now, revision: 1 };
        let mut steps = self.rename(&resource.id, None, resource.draft.user_name())?;
        steps.push(typed::create(&self.key(&resource), &Self::record(&resource), None).map_err(state)?);
        self.make(steps, Ended::default(), self.told(&resource, "created"), OffsetDateTime::now_utc())
            .await?;
        if let Some(count) = self.scim.counts.lock().get_mut(self.connector) {
            *count += 1;
        }
        Ok(resource)
    }

    async fn replace(
        &self,
        id: &str,
        revision: u64,
        mut draft: Draft,
        now: OffsetDateTime,
    ) -> Result<Resource, BackendError> {
        let _changing = self.scim.changing.write().await;
        // No one logs in while it is said who may.
        let _steady = self.scim.identities.change().await;
        let stored = self.found(draft.kind(), id).await?;
        let before = &stored.value.resource;
        if before.revision != revision {
            return Err(BackendError::Changed);
        }
        if let Some(name) = draft.user_name() {
            self.is_free(name, Some(id)).await?;
        }
        self.name_members(&mut draft).await?;
        let created = before.created;
        let resource = Resource {
            id: before.id.clone(),
            draft,
            created,
            modified: now,
            revision: revision.saturating_add(1),
        };
        let at = OffsetDateTime::now_utc();
        let mut ended = Ended::default();
        let (was, is) = (before.draft.is_active(), resource.draft.is_active());
        if resource.draft.kind() == Kind::User && !is {
            self.end(id, "the identity provider says that the user is not active", at, &mut ended).await?;
        }
        let mut steps = self.rename(id, before.draft.user_name(), resource.draft.user_name())?;
        let record = Self::record(&resource);
        steps.push(typed::update(&self.key(&resource), stored.revision, &record, None).map_err(state)?);
        let what = match (was, is) {
            (true, false) => "deactivated",
            (false, true) => "activated",
            _ => "changed",
        };
        self.make(steps, ended, self.told(&resource, what), at).await?;
        Ok(resource)
    }

    async fn delete(
        &self,
        kind: Kind,
        id: &str,
        revision: Option<u64>,
        now: OffsetDateTime,
    ) -> Result<(), BackendError> {
        let _changing = self.scim.changing.write().await;
        let _steady = self.scim.identities.change().await;
        let stored = self.found(kind, id).await?;
        let resource = &stored.value.resource;
        if revision.is_some_and(|revision| resource.revision != revision) {
            return Err(BackendError::Changed);
        }
        let at = OffsetDateTime::now_utc();
        let mut groups = Vec::new();
        self.every(Kind::Group, &mut |group: &Resource| {
            let mut group = group.clone();
            if group.draft.remove_member(id) {
                group.revision = group.revision.saturating_add(1);
                group.modified = now;
                groups.push(group);
            }
        })
        .await?;
        let mut steps = vec![typed::delete::<ScimRecord>(&self.key(resource), Some(stored.revision))];
        steps.extend(self.rename(id, resource.draft.user_name(), None)?);
        for group in &groups {
            steps.push(typed::put(&self.key(group), &Self::record(group), None).map_err(state)?);
        }
        let mut ended = Ended::default();
        self.end(id, "the identity provider removed the user", at, &mut ended).await?;
        self.make(steps, ended, self.told(resource, "deleted"), at).await?;
        if let Some(count) = self.scim.counts.lock().get_mut(self.connector) {
            *count = count.saturating_sub(1);
        }
        Ok(())
    }
}
