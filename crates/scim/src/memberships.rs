//! Which groups users are in (RFC 7643 §4.1.2, `groups`): by themselves, and through groups in groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::backend::{Backend, BackendError, Member, Narrow};
use crate::kind::Kind;
use crate::resource::Resource;

/// How deep groups in groups are followed.
pub const MAX_GROUP_DEPTH: usize = 16;

/// The groups above some resources.
#[derive(Debug, Default)]
pub(crate) struct Memberships {
    /// The groups that have a resource as a member.
    above: BTreeMap<String, BTreeSet<String>>,
    /// The names of groups.
    names: BTreeMap<String, String>,
}

/// A group that a user is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Membership<'a> {
    pub(crate) group: &'a str,
    pub(crate) name: &'a str,
    /// Whether the user itself is a member.
    pub(crate) direct: bool,
}

impl Membership<'_> {
    /// The word for how the user is in the group.
    pub(crate) fn word(&self) -> &'static str {
        if self.direct { "direct" } else { "indirect" }
    }
}

impl Memberships {
    /// The groups above some resources, and those above these groups.
    pub(crate) async fn above(backend: &dyn Backend, ids: BTreeSet<String>) -> Result<Self, BackendError> {
        let mut found = Self::default();
        let mut next = ids;
        for _ in 0..=MAX_GROUP_DEPTH {
            if next.is_empty() {
                break;
            }
            for id in &next {
                found.above.entry(id.clone()).or_default();
            }
            let mut groups = BTreeSet::new();
            let mut each = |member: Member<'_>| {
                found.note(&member);
                groups.insert(member.group.to_owned());
            };
            backend.groups_with(&next, &mut each).await?;
            next = groups.into_iter().filter(|group| !found.above.contains_key(group)).collect();
        }
        Ok(found)
    }

    /// All memberships there are.
    pub(crate) async fn all(backend: &dyn Backend) -> Result<Self, BackendError> {
        let mut found = Self::default();
        let mut each = |group: &Resource| {
            let name = group.draft.display_name().unwrap_or_default();
            for member in group.draft.members() {
                found.note(&Member { group: &group.id, name, member });
            }
        };
        backend.scan(Kind::Group, &Narrow::All, &mut each).await?;
        Ok(found)
    }

    fn note(&mut self, found: &Member<'_>) {
        self.above.entry(found.member.to_owned()).or_default().insert(found.group.to_owned());
        if !self.names.contains_key(found.group) {
            self.names.insert(found.group.to_owned(), found.name.to_owned());
        }
    }

    /// The groups of a user, in the order of their identifiers. Groups that contain each other are each counted once.
    pub(crate) fn of(&self, user: &str) -> Vec<Membership<'_>> {
        let direct = self.above.get(user);
        let mut found: BTreeSet<&str> = BTreeSet::new();
        let mut next: BTreeSet<&str> = direct.into_iter().flatten().map(String::as_str).collect();
        for _ in 0..=MAX_GROUP_DEPTH {
            let fresh: Vec<&str> = next.iter().copied().filter(|group| found.insert(group)).collect();
            next = fresh
                .iter()
                .filter_map(|group| self.above.get(*group))
                .flatten()
                .map(String::as_str)
                .collect();
            if next.is_empty() {
                break;
            }
        }
        found
            .into_iter()
            .map(|group| Membership {
                group,
                name: self.names.get(group).map_or("", String::as_str),
                direct: direct.is_some_and(|direct| direct.contains(group)),
            })
            .collect()
    }
}
