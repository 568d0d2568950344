//! A directory in memory, for tests and for what is tried out: several connectors, and users that none of them made.

use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::Mutex;
use time::OffsetDateTime;

use crate::backend::{Backend, BackendError, Each, Narrow};
use crate::kind::Kind;
use crate::resource::{Draft, Resource};
use crate::text::fold;

/// Most resources of all kinds and connectors.
const MAX_RESOURCES: usize = 100_000;

/// Users and groups, each with who made it.
#[derive(Debug, Default)]
pub struct MemoryDirectory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    made: u64,
    /// By identifier, with the connector that made it.
    resources: BTreeMap<String, (String, Resource)>,
    /// Names of users, folded, with the identifier of those that a connector made.
    names: BTreeMap<String, Option<String>>,
}

/// What one connector sees of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Connector<'a> {
    directory: &'a MemoryDirectory,
    name: &'a str,
}

impl MemoryDirectory {
    /// A directory with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a user that no connector made.
    pub fn add_local(&self, user_name: &str) {
        self.state.lock().names.insert(fold(user_name), None);
    }

    /// The directory as a connector has it.
    #[must_use]
    pub fn connector<'a>(&'a self, name: &'a str) -> Connector<'a> {
        Connector { directory: self, name }
    }
}

impl State {
    fn find(&self, owner: &str, kind: Kind, id: &str) -> Result<&Resource, BackendError> {
        match self.resources.get(id) {
            Some((by, resource)) if by == owner && resource.draft.kind() == kind => Ok(resource),
            _ => Err(BackendError::NotFound { kind, id: id.to_owned() }),
        }
    }

    fn keep(&mut self, owner: &str, resource: &Resource) {
        if let Some(name) = resource.draft.user_name() {
            self.names.insert(fold(name), Some(resource.id.clone()));
        }
        self.resources.insert(resource.id.clone(), (owner.to_owned(), resource.clone()));
    }

    fn forget(&mut self, id: &str) {
        if let Some((_, resource)) = self.resources.remove(id)
            && let Some(name) = resource.draft.user_name()
        {
            self.names.remove(&fold(name));
        }
    }

    /// That a draft may be the resource with this identifier, or a new one; says what its members are.
    fn check(&self, owner: &str, id: Option<&str>, draft: &mut Draft) -> Result<(), BackendError> {
        let known = draft.user_name().and_then(|name| self.names.get(&fold(name)));
        if known.is_some_and(|by| by.is_none() || by.as_deref() != id) {
            return Err(BackendError::UserNameTaken);
        }
        let kind_of = |member: &str| match self.resources.get(member) {
            Some((by, resource)) if by == owner => Some(resource.draft.kind()),
            _ => None,
        };
        Ok(draft.name_members(kind_of)?)
    }
}

#[async_trait]
impl Backend for Connector<'_> {
    async fn get(&self, kind: Kind, id: &str) -> Result<Option<Resource>, BackendError> {
        Ok(self.directory.state.lock().find(self.name, kind, id).ok().cloned())
    }

    async fn scan(&self, kind: Kind, _narrow: &Narrow, each: &mut Each<'_>) -> Result<(), BackendError> {
        let state = self.directory.state.lock();
        for (by, resource) in state.resources.values() {
            if by == self.name && resource.draft.kind() == kind {
                each(resource);
            }
        }
        Ok(())
    }

    async fn create(&self, mut draft: Draft, now: OffsetDateTime) -> Result<Resource, BackendError> {
        let mut state = self.directory.state.lock();
        let kind = draft.kind();
        if state.resources.len() >= MAX_RESOURCES {
            return Err(BackendError::Full { kind, limit: MAX_RESOURCES, remedy: "remove some" });
        }
        state.check(self.name, None, &mut draft)?;
        state.made += 1;
        let id = format!("{:08}", state.made);
        let resource = Resource { id, draft, created: now, modified: now, revision: 1 };
        state.keep(self.name, &resource);
        Ok(resource)
    }

    async fn replace(
        &self,
        id: &str,
        revision: u64,
        mut draft: Draft,
        now: OffsetDateTime,
    ) -> Result<Resource, BackendError> {
        let mut state = self.directory.state.lock();
        let before = state.find(self.name, draft.kind(), id)?;
        if before.revision != revision {
            return Err(BackendError::Changed);
        }
        let created = before.created;
        state.check(self.name, Some(id), &mut draft)?;
        state.forget(id);
        let id = id.to_owned();
        let resource = Resource { id, draft, created, modified: now, revision: revision + 1 };
        state.keep(self.name, &resource);
        Ok(resource)
    }

    async fn delete(
        &self,
        kind: Kind,
        id: &str,
        revision: Option<u64>,
        now: OffsetDateTime,
    ) -> Result<(), BackendError> {
        let mut state = self.directory.state.lock();
        let found = state.find(self.name, kind, id)?;
        if revision.is_some_and(|revision| found.revision != revision) {
            return Err(BackendError::Changed);
        }
        state.forget(id);
        for (_, group) in state.resources.values_mut() {
            if group.draft.remove_member(id) {
                group.revision += 1;
                group.modified = now;
            }
        }
        Ok(())
    }
}
