//! How much a connector's SCIM client has here, and may have.

use sallyport_scim::{BackendError, Kind, Resource};

/// Most users and groups of a connector,
pub(super) const MAX_RESOURCES: usize = 100_000;
/// members of all its groups together,
const MAX_MEMBERS: usize = 1_000_000;
/// and bytes of all of them: every search reads through the groups.
const MAX_BYTES: usize = 256 << 20;

/// What to do where there are more resources than there may be.
const REMOVE: &str = "remove some";
/// And where there are more users.
const REMOVE_USERS: &str = "remove some, or have max_people raised in the document of the connector";

/// Resources, the members among them, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) resources: usize,
    /// The users among the resources.
    pub(super) users: usize,
    pub(super) members: usize,
    pub(super) bytes: usize,
}

impl Held {
    /// What one resource comes to.
    pub(super) fn of(resource: &Resource) -> Result<Self, BackendError> {
        let written = serde_json::to_vec(resource).map_err(|error| BackendError::Failed(Box::new(error)))?;
        let users = usize::from(resource.draft.kind() == Kind::User);
        Ok(Self { resources: 1, users, members: resource.draft.members().count(), bytes: written.len() })
    }

    pub(super) fn with(self, more: Self) -> Self {
        Self {
            resources: self.resources.saturating_add(more.resources),
            users: self.users.saturating_add(more.users),
            members: self.members.saturating_add(more.members),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }

    pub(super) fn without(self, less: Self) -> Self {
        Self {
            resources: self.resources.saturating_sub(less.resources),
            users: self.users.saturating_sub(less.users),
            members: self.members.saturating_sub(less.members),
            bytes: self.bytes.saturating_sub(less.bytes),
        }
    }

    /// That what is to be held is no more than may be. What only gets less is taken in any case.
    ///
    /// # Errors
    /// [`BackendError::Full`] or [`BackendError::TooMuch`].
    pub(super) fn instead_of(
        self,
        before: Self,
        kind: Kind,
        max_people: usize,
    ) -> Result<Self, BackendError> {
        if self.users > max_people && self.users > before.users {
            return Err(BackendError::Full { kind, limit: max_people, remedy: REMOVE_USERS });
        }
        if self.resources > MAX_RESOURCES && self.resources > before.resources {
            return Err(BackendError::Full { kind, limit: MAX_RESOURCES, remedy: REMOVE });
        }
        let members = (self.members, before.members, "members", MAX_MEMBERS);
        let bytes = (self.bytes, before.bytes, "bytes", MAX_BYTES);
        for (got, before, unit, limit) in [members, bytes] {
            if got > limit && got > before {
                return Err(BackendError::TooMuch { got, unit, limit });
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PEOPLE: usize = 1000;

    #[test]
    fn a_connector_holds_so_much_and_may_always_hold_less() {
        let full = Held { resources: MAX_RESOURCES, users: PEOPLE, members: MAX_MEMBERS, bytes: MAX_BYTES };
        assert_eq!(full.instead_of(Held::default(), Kind::Group, PEOPLE).unwrap(), full);
        let more = |resources, users, members, bytes| full.with(Held { resources, users, members, bytes });
        for (held, limit) in [(more(1, 0, 0, 0), MAX_RESOURCES), (more(1, 1, 0, 0), PEOPLE)] {
            let error = held.instead_of(full, Kind::User, PEOPLE).unwrap_err();
            assert!(matches!(error, BackendError::Full { limit: at, .. } if at == limit), "{error}");
        }
        for (held, limit) in [(more(0, 0, 1, 0), MAX_MEMBERS), (more(0, 0, 0, 1), MAX_BYTES)] {
            let error = held.instead_of(full, Kind::Group, PEOPLE).unwrap_err();
            assert!(matches!(error, BackendError::TooMuch { limit: at, .. } if at == limit), "{error}");
            // One that has more already, by an earlier release or a higher bound, gets rid of it step by step.
            held.instead_of(more(0, 0, 2, 2), Kind::Group, PEOPLE).unwrap();
        }
        full.instead_of(full, Kind::User, 1).unwrap();
    }
}
