//! What is known of all that a connector's SCIM client has made.

use std::collections::HashMap;

use sallyport_scim::{Kind, Resource};

use super::held::Held;
use super::members::Members;

/// What a connector's client has here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) held: Held,
    pub(super) members: Members,
    /// How many active users have an `externalId`.
    external_ids: HashMap<Box<str>, usize>,
}

impl Known {
    /// Notes what becomes of a resource: made where there was none before, removed where there is none after.
    pub(super) fn note(&mut self, before: Option<&Resource>, after: Option<&Resource>) {
        self.members.note(before, after);
        if let Some(id) = external_id(before)
            && let Some(users) = self.external_ids.get_mut(id)
        {
            *users = users.saturating_sub(1);
            if *users == 0 {
                self.external_ids.remove(id);
            }
        }
        if let Some(id) = external_id(after) {
            *self.external_ids.entry(id.into()).or_default() += 1;
        }
    }

    /// How many active users have an `externalId`. One that a client has deactivated and made anew is no second person.
    pub(super) fn users_of(&self, external_id: &str) -> usize {
        self.external_ids.get(external_id).copied().unwrap_or_default()
    }
}

fn external_id(resource: Option<&Resource>) -> Option<&str> {
    let is_one = |resource: &&Resource| resource.draft.kind() == Kind::User && resource.draft.is_active();
    resource.filter(is_one)?.draft.external_id()
}
