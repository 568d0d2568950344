//! The users and groups of one connector, in the authority's state; and what it means for the cluster's users when one leaves.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use sallyport_access::{ResourceName, UserName};
use sallyport_audit::{Code, Event};
use sallyport_scim::{Backend, BackendError, Draft, Each, EachMember, Kind, Narrow, Resource, fold};
use sallyport_store::{Op, StoreError, Stored, typed};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use super::held::Held;
use super::provisioning::Provisioning;
use super::records::{
    ScimBindingRecord, ScimLinkRecord, ScimNameRecord, ScimPersonRecord, ScimRecord, link_key, name_key,
    of_person, of_resource, resource_key,
};
use crate::authority::caller::Caller;
use crate::authority::devices::voiding;
use crate::authority::identities::origins::is_person;
use crate::authority::records::UserRecord;
use crate::authority::sso::connector::Connector;
use crate::authority::sso::records::ConnectorRecord;
use crate::authority::storage::{PAGE, removed};

/// Resources that are read at a time: a group of ten thousand members is a megabyte.
pub(super) const RESOURCES: usize = if cfg!(test) { 3 } else { 100 };

/// What a SCIM client of a connector reaches.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    pub(super) scim: &'a Provisioning,
    pub(super) connector: &'a ResourceName,
    pub(super) client: &'a Caller,
}

/// What the end of users takes.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) steps: Vec<Op>,
    pub(super) events: Vec<Event>,
    /// Where among the steps the change of each user is.
    pub(super) users: Vec<(usize, After)>,
}

/// What becomes of a user.
pub(super) enum After {
    Gone(UserName),
    Changed(UserRecord),
}

pub(super) fn state(error: StoreError) -> BackendError {
    match error {
        StoreError::Conflict { .. } | StoreError::Exists { .. } | StoreError::NotFound { .. } => {
            BackendError::Changed
        }
        error => BackendError::Failed(Box::new(error)),
    }
}

pub(super) fn failed(status: Status) -> BackendError {
    BackendError::Failed(Box::new(status))
}

impl<'a> Directory<'a> {
    pub(super) fn new(scim: &'a Provisioning, connector: &'a ResourceName, client: &'a Caller) -> Self {
        Self { scim, connector, client }
    }

    pub(super) async fn stored(
        &self,
        kind: Kind,
        id: &str,
    ) -> Result<Option<Stored<ScimRecord>>, BackendError> {
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

    /// How much the connector may hold. The caller holds `changing`.
    async fn max_people(&self) -> Result<usize, BackendError> {
        Ok(self.written().await?.max_people)
    }

    /// The connector as it is written: it was not removed since the request's token was looked at. The caller holds `changing`.
    pub(super) async fn written(&self) -> Result<Connector, BackendError> {
        let now = OffsetDateTime::now_utc();
        let written = self.scim.store.get::<ConnectorRecord>(self.connector.as_str(), now).await;
        let written = written.map_err(state)?;
        let written = written.ok_or_else(|| failed(Status::not_found("the connector was removed")))?;
        Connector::parse(&written.value.yaml).map_err(|error| BackendError::Failed(Box::new(error)))
    }

    /// That a user may have a name: no other user of a client has it, nor one of the cluster that did not come by this connector and is
    /// not the person whom this user is.
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
        let person = match own {
            Some(id) if !others.is_empty() => self.person_of(id).await?,
            _ => None,
        };
        // One person may come by several connectors of a provider, and has one user by whichever came last.
        let is_theirs =
            |user: &UserRecord| person.as_ref().is_some_and(|person| is_person(user, &person.value.person));
        if others.iter().all(|user| is_theirs(user)) { Ok(()) } else { Err(BackendError::UserNameTaken) }
    }

    /// The person who a client's user is.
    async fn person_of(&self, id: &str) -> Result<Option<Stored<ScimPersonRecord>>, BackendError> {
        let (key, now) = (of_resource(self.connector, id), OffsetDateTime::now_utc());
        self.scim.store.get::<ScimPersonRecord>(&key, now).await.map_err(state)
    }

    /// Whether a user of the cluster came by this connector.
    pub(super) fn is_ours(&self, user: &UserRecord) -> bool {
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
        Ok(draft.name_members(|id| kinds.get(id).copied())?)
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

    /// Ends the users of the cluster that logged in as this one, and their logins: those that are tied to it, and those of its name
    /// that came before the connector had a client. The caller holds what `Identities::change` gives.
    async fn end(
        &self,
        id: &str,
        name: Option<&str>,
        why: &str,
        now: OffsetDateTime,
        ended: &mut Ended,
    ) -> Result<(), BackendError> {
        let mut users = BTreeSet::new();
        if let Some(folded) = name.map(fold) {
            let named = |user: &UserRecord| self.is_ours(user) && fold(user.name.as_str()) == folded;
            for user in self.scim.identities.users(named) {
                if !self.is_another(&user, id, now).await? {
                    users.insert(user.name.clone());
                }
            }
        }
        let below = link_key(self.connector, id);
        let mut after = None::<String>;
        loop {
            let page = self.scim.store.list_below::<ScimLinkRecord>(&below, after.as_deref(), PAGE, now);
            let page = page.await.map_err(state)?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for link in page {
                ended.steps.extend(removed(&format!("{below}/{}", link.name), &link.value).map_err(state)?);
                users.insert(link.value.user);
            }
        }
        for name in users {
            self.end_user(id, &name, why, now, ended).await?;
        }
        Ok(())
    }

    /// Whether a user of this connector is, by the person, another of the client's users than this one.
    async fn is_another(
        &self,
        user: &UserRecord,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<bool, BackendError> {
        let Some(origin) = &user.origin else { return Ok(true) };
        let key = of_person(self.connector, &origin.person_key());
        let bound = self.scim.store.get::<ScimBindingRecord>(&key, now).await.map_err(state)?;
        // One whom the client has removed is none of its users now.
        Ok(bound.is_some_and(|bound| bound.value.removed.is_none() && bound.value.id != id))
    }

    async fn end_user(
        &self,
        id: &str,
        name: &UserName,
        why: &str,
        now: OffsetDateTime,
        ended: &mut Ended,
    ) -> Result<(), BackendError> {
        let user = self.scim.store.get::<UserRecord>(name.as_str(), now).await.map_err(state)?;
        // A user of the name whom an administrator made since is another's business.
        let Some(user) = user.filter(|user| self.is_ours(&user.value)) else { return Ok(()) };
        let logins = self.scim.logins.end_logins(self.client, name, why, now).await.map_err(failed)?;
        let event = self
            .client
            .event(Code::ScimDeprovisioned)
            .message(format!("user/{name}"))
            .field("connector", self.connector.to_string())
            .field("name", name.to_string())
            .field("id", id.to_owned())
            .field("ended_logins", logins.logins);
        ended.users.push((ended.steps.len(), After::Gone(name.clone())));
        ended.steps.push(typed::delete::<UserRecord>(name.as_str(), Some(user.revision)));
        ended.steps.extend(logins.steps);
        ended.events.push(event);
        ended.events.extend(logins.events);
        let tokens = voiding::tokens(&self.scim.store, self.client, name, why, now).await.map_err(state)?;
        ended.steps.extend(tokens.0);
        ended.events.extend(tokens.1);
        Ok(())
    }

    /// The steps that have a person be none of the client's users, as the one that they are is removed. What is kept lets them be that
    /// user again, and no other by a name alone.
    async fn unbound(&self, id: &str, name: Option<&str>) -> Result<Vec<Op>, BackendError> {
        let Some(bound) = self.person_of(id).await? else { return Ok(Vec::new()) };
        let of_person = of_person(self.connector, &bound.value.person);
        let of_resource = of_resource(self.connector, id);
        let gone = typed::delete::<ScimPersonRecord>(&of_resource, Some(bound.revision));
        let binding = ScimBindingRecord {
            removed: Some(name.map(name_key).unwrap_or_default()),
            ..ScimBindingRecord::to(id)
        };
        Ok(vec![gone, typed::put(&of_person, &binding, None).map_err(state)?])
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
        steps: Vec<Op>,
        ended: Ended,
        event: Event,
        now: OffsetDateTime,
    ) -> Result<(), BackendError> {
        self.commit(steps, ended, Some(event), now).await
    }

    pub(super) async fn commit(
        &self,
        mut steps: Vec<Op>,
        ended: Ended,
        event: Option<Event>,
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
            match user {
                After::Gone(name) => self.scim.identities.remove_user(&name, revision),
                After::Changed(user) => self.scim.identities.put_user(user, revision),
            }
        }
        let mut events = Vec::from_iter(event);
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
        self.scim.every(self.connector, kind, each).await
    }

    async fn groups_with(
        &self,
        members: &BTreeSet<String>,
        each: &mut EachMember<'_>,
    ) -> Result<(), BackendError> {
        let _unchanged = self.scim.changing.read().await;
        let known = self.scim.known(self.connector).await?;
        known.members.show(members, each);
        Ok(())
    }

    async fn create(&self, mut draft: Draft, now: OffsetDateTime) -> Result<Resource, BackendError> {
        let _changing = self.scim.changing.write().await;
        let max_people = self.max_people().await?;
        if let Some(name) = draft.user_name() {
            self.is_free(name, None).await?;
        }
        self.name_members(&mut draft).await?;
        let id = Uuid::now_v7().to_string();
        let resource = Resource { id, draft, created: now, modified: now, revision: 1 };
        let known = self.scim.known(self.connector).await?;
        let held = known.held.with(Held::of(&resource)?);
        let held = held.instead_of(known.held, resource.draft.kind(), max_people)?;
        let mut steps = self.rename(&resource.id, None, resource.draft.user_name())?;
        steps.push(typed::create(&self.key(&resource), &Self::record(&resource), None).map_err(state)?);
        let (told, at) = (self.told(&resource, "created"), OffsetDateTime::now_utc());
        let mut known = self.scim.out(self.connector, known);
        known.held = held;
        known.note(None, Some(&resource));
        self.make(steps, Ended::default(), told, at).await?;
        self.scim.keep(self.connector, known);
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
        let stored = self.found(draft.kind(), id).await?;
        let before = &stored.value.resource;
        if before.revision != revision {
            return Err(BackendError::Changed);
        }
        let is_end = draft.kind() == Kind::User && !draft.is_active();
        let folded = |draft: &Draft| draft.user_name().map(fold);
        let returns = !before.draft.is_active() && draft.is_active();
        if (returns || folded(&before.draft) != folded(&draft))
            && let Some(name) = draft.user_name()
        {
            match self.is_free(name, Some(id)).await {
                // No name keeps a client from saying that a user has left: this one stays as it was called.
                Err(BackendError::UserNameTaken) if is_end => draft.keep_user_name(&before.draft),
                taken => taken?,
            }
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
        let (was, is) = (before.draft.is_active(), resource.draft.is_active());
        let known = self.scim.known(self.connector).await?;
        let held = known.held.without(Held::of(before)?).with(Held::of(&resource)?);
        // No bound keeps a client from saying that a user has left.
        let held = match is_end {
            true => held,
            false => {
                let max_people = self.max_people().await?;
                held.instead_of(known.held, resource.draft.kind(), max_people)?
            }
        };
        let leaving = self.leaving(&known.members, before, Some(&resource)).await?;
        // None logs in while it is said that they may not.
        let _steady = match is_end || was != is || !leaving.is_empty() {
            true => Some(self.scim.identities.change().await),
            false => None,
        };
        let at = OffsetDateTime::now_utc();
        let mut known = self.scim.out(self.connector, known);
        known.held = held;
        known.note(Some(before), Some(&resource));
        let mut ended = self.without_roles(&known.members, leaving, at).await?;
        if is_end {
            let why = "the identity provider says that the user is not active";
            self.end(id, before.draft.user_name(), why, at, &mut ended).await?;
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
        self.scim.keep(self.connector, known);
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
        let stored = self.found(kind, id).await?;
        let resource = &stored.value.resource;
        if revision.is_some_and(|revision| resource.revision != revision) {
            return Err(BackendError::Changed);
        }
        let known = self.scim.known(self.connector).await?;
        let mut held = known.held.without(Held::of(resource)?);
        // Each group that it is in, as it is and as it becomes.
        let mut groups = Vec::new();
        let member = Uuid::parse_str(id).unwrap_or_default();
        for (above, _) in known.members.groups_with(member) {
            // The group itself, where one is removed, goes with its own record.
            let group = match self.stored(Kind::Group, &above.to_string()).await? {
                Some(group) if group.value.resource.id != id => group.value.resource,
                _ => continue,
            };
            let mut without = group.clone();
            without.draft.remove_member(id);
            without.revision = group.revision.saturating_add(1);
            without.modified = now;
            held = held.without(Held::of(&group)?).with(Held::of(&without)?);
            groups.push((group, without));
        }
        let leaving = self.leaving(&known.members, resource, None).await?;
        // None logs in as a user who is about to go; the groups are read by then.
        let _steady = match kind == Kind::User || !leaving.is_empty() {
            true => Some(self.scim.identities.change().await),
            false => None,
        };
        let at = OffsetDateTime::now_utc();
        let mut steps = vec![typed::delete::<ScimRecord>(&self.key(resource), Some(stored.revision))];
        steps.extend(self.rename(id, resource.draft.user_name(), None)?);
        let mut known = self.scim.out(self.connector, known);
        known.held = held;
        known.note(Some(resource), None);
        for (group, without) in &groups {
            known.note(Some(group), Some(without));
        }
        for (_, group) in &groups {
            steps.push(typed::put(&self.key(group), &Self::record(group), None).map_err(state)?);
        }
        let mut ended = self.without_roles(&known.members, leaving, at).await?;
        if kind == Kind::User {
            let (name, why) = (resource.draft.user_name(), "the identity provider removed the user");
            steps.extend(self.unbound(id, name).await?);
            self.end(id, name, why, at, &mut ended).await?;
        }
        self.make(steps, ended, self.told(resource, "deleted"), at).await?;
        self.scim.keep(self.connector, known);
        Ok(())
    }
}
