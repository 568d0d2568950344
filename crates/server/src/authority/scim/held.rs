//! How much a connector's SCIM client has here, and may have.

use sallyport_scim::{BackendError, Kind, Resource};

/// Most users and groups of a connector,
pub(super) const MAX_RESOURCES: usize = 100_000;
/// members of all its groups together,
const MAX_MEMBERS: usize = 1_000_000;
/// and bytes of all of them: every search reads through the groups.
const MAX_BYTES: usize = 256 << 20;

/// Resources, the members among them, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) resources: usize,
    pub(super) members: usize,
    pub(super) bytes: usize,
}

impl Held {
    /// What one resource comes to.
    pub(super) fn of(resource: &Resource) -> Result<Self, BackendError> {
        let written = serde_json::to_vec(resource).map_err(|error| BackendError::Failed(Box::new(error)))?;
        Ok(Self { resources: 1, members: resource.draft.members().count(), bytes: written.len() })
    }

    pub(super) fn with(self, more: Self) -> Self {
        Self {
            resources: self.resources.saturating_add(more.resources),
            members: self.members.saturating_add(more.members),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }

    pub(super) fn without(self, less: Self) -> Self {
        Self {
            resources: self.resources.saturating_sub(less.resources),
            members: self.members.saturating_sub(less.members),
            bytes: self.bytes.saturating_sub(less.bytes),
        }
    }

    /// That what is to be held is no more than may be. What only gets less is taken in any case.
    ///
    /// # Errors
    /// [`BackendError::Full`] or [`BackendError::TooMuch`].
    pub(super) fn instead_of(self, before: Self, kind: Kind) -> Result<Self, BackendError> {
        if self.resources > MAX_RESOURCES && self.resources > before.resources {
            return Err(BackendError::Full { kind, limit: MAX_RESOURCES });
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

    #[test]
    fn a_connector_holds_so_much_and_may_always_hold_less() {
        let full = Held { resources: MAX_RESOURCES, members: MAX_MEMBERS, bytes: MAX_BYTES };
        assert_eq!(full.instead_of(Held::default(), Kind::Group).unwrap(), full);
        let more = |resources, members, bytes| full.with(Held { resources, members, bytes });
        let resource = more(1, 0, 0).instead_of(full, Kind::User).unwrap_err();
        assert!(matches!(resource, BackendError::Full { limit: MAX_RESOURCES, .. }), "{resource}");
        for (held, limit) in [(more(0, 1, 0), MAX_MEMBERS), (more(0, 0, 1), MAX_BYTES)] {
            let error = held.instead_of(full, Kind::Group).unwrap_err();
            assert!(matches!(error, BackendError::TooMuch { limit: at, .. } if at == limit), "{error}");
            // One that has more already, by an earlier release, gets rid of it step by step.
            held.instead_of(more(0, 2, 2), Kind::Group).unwrap();
        }
    }
}
