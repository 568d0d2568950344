//! Who is in which group, as an index in memory: no group of ten thousand members is read to say what one person's groups are.

use std::collections::{BTreeSet, HashMap, HashSet};

use sallyport_scim::{EachMember, Kind, MAX_GROUP_DEPTH, Member, Resource};
use uuid::Uuid;

/// The members of all groups of one connector. With the most members that a connector may have it is some 40 MB, without the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// The groups that have a resource as a member.
    above: HashMap<Uuid, Vec<Uuid>>,
    /// What groups are called.
    names: HashMap<Uuid, Box<str>>,
}

/// The members of a group, by what is stored: identifiers are ours.
pub(super) fn members_of(group: &Resource) -> HashSet<Uuid> {
    group.draft.members().filter_map(|member| Uuid::parse_str(member).ok()).collect()
}

impl Members {
    /// Notes what becomes of a resource: made where there was none before, removed where there is none after.
    pub(super) fn note(&mut self, before: Option<&Resource>, after: Option<&Resource>) {
        let is_group = |resource: &&Resource| resource.draft.kind() == Kind::Group;
        let (before, after) = (before.filter(is_group), after.filter(is_group));
        let Some(Ok(id)) = after.or(before).map(|group| Uuid::parse_str(&group.id)) else { return };
        let (was, is) =
            (before.map(members_of).unwrap_or_default(), after.map(members_of).unwrap_or_default());
        for gone in was.difference(&is) {
            if let Some(groups) = self.above.get_mut(gone) {
                groups.retain(|group| *group != id);
                if groups.is_empty() {
                    self.above.remove(gone);
                }
            }
        }
        for come in is.difference(&was) {
            self.above.entry(*come).or_default().push(id);
        }
        match after {
            Some(group) => {
                self.names.insert(id, group.draft.display_name().unwrap_or_default().into());
            }
            None => {
                self.names.remove(&id);
            }
        }
    }

    pub(super) fn is_group(&self, id: Uuid) -> bool {
        self.names.contains_key(&id)
    }

    /// The groups that have a resource as a member.
    pub(super) fn groups_with(&self, member: Uuid) -> impl Iterator<Item = (Uuid, &str)> {
        let groups = self.above.get(&member).into_iter().flatten();
        groups.map(|group| (*group, self.names.get(group).map_or("", |name| &**name)))
    }

    /// Shows each of these as a member, as `Backend::groups_with` does.
    pub(super) fn show(&self, members: &BTreeSet<String>, each: &mut EachMember<'_>) {
        for member in members {
            let Ok(id) = Uuid::parse_str(member) else { continue };
            for (group, name) in self.groups_with(id) {
                each(Member { group: &group.to_string(), name, member });
            }
        }
    }

    /// The names of the groups that a user is in: by itself, and through groups in groups.
    pub(super) fn names_of(&self, user: Uuid) -> BTreeSet<String> {
        let (mut names, mut seen, mut next) = (BTreeSet::new(), HashSet::new(), vec![user]);
        for _ in 0..=MAX_GROUP_DEPTH {
            let mut above = Vec::new();
            for (group, name) in next.iter().flat_map(|member| self.groups_with(*member)) {
                if seen.insert(group) {
                    names.insert(name.to_owned());
                    above.push(group);
                }
            }
            if above.is_empty() {
                break;
            }
            next = above;
        }
        names
    }

    /// In one order, for comparison.
    #[cfg(test)]
    pub(super) fn sorted(mut self) -> Self {
        self.above.values_mut().for_each(|groups| groups.sort());
        self
    }
}
