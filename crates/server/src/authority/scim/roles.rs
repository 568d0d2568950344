//! The roles that users have by the groups of a SCIM client, and lose with them. They are computed at each login, from the groups as
//! they are then; and again when the client takes a person out of a group: who has less by that loses it at once, with the logins
//! that are open. What a group gives more counts from the next login on, so that no session ends for it.

use std::collections::{BTreeSet, HashSet};

use sallyport_access::Traits;
use sallyport_audit::Code;
use sallyport_scim::{BackendError, Kind, Resource};
use sallyport_store::{Stored, typed};
use time::OffsetDateTime;
use uuid::Uuid;

use super::directory::{After, Directory, Ended, failed, state};
use super::members::{Members, members_of};
use super::records::{ScimPersonRecord, of_resource};
use crate::authority::identities::origins::{PersonRecord, SaidRecord, is_person};
use crate::authority::records::UserRecord;
use crate::authority::sso::claims::{judge_again, reads_groups};
use crate::authority::sso::connector::Connector;

/// Users whose roles change in one transaction.
const USERS: usize = if cfg!(test) { 3 } else { 100 };

const WHY: &str = "the identity provider took the user out of a group that gave roles or traits";

impl Directory<'_> {
    /// The client's users who are in fewer groups when a resource becomes another, or is removed; none where the mapping reads no
    /// groups. `members` are those before.
    pub(super) async fn leaving(
        &self,
        members: &Members,
        before: &Resource,
        after: Option<&Resource>,
    ) -> Result<BTreeSet<Uuid>, BackendError> {
        let mut users = BTreeSet::new();
        if before.draft.kind() != Kind::Group || !reads_groups(&self.written().await?) {
            return Ok(users);
        }
        let was = members_of(before);
        let mut next: Vec<Uuid> = match after {
            // Of another name, it is another group to the mapping.
            Some(after) if after.draft.display_name() == before.draft.display_name() => {
                was.difference(&members_of(after)).copied().collect()
            }
            _ => was.into_iter().collect(),
        };
        let mut seen = HashSet::new();
        while let Some(id) = next.pop() {
            if !members.is_group(id) {
                users.insert(id);
            } else if seen.insert(id)
                && let Some(group) = self.stored(Kind::Group, &id.to_string()).await?
            {
                next.extend(members_of(&group.value.resource));
            }
        }
        Ok(users)
    }

    /// What it takes that these have no more than the groups give them in which `members` has them. The caller holds what
    /// `Identities::change` gives. Of many, the first ones have it done by then: a change that fails after that leaves users with less
    /// than they may have, until they log in again, and never with more.
    pub(super) async fn without_roles(
        &self,
        members: &Members,
        leaving: BTreeSet<Uuid>,
        now: OffsetDateTime,
    ) -> Result<Ended, BackendError> {
        let mut ended = Ended::default();
        if leaving.is_empty() {
            return Ok(ended);
        }
        let connector = self.written().await?;
        for id in leaving {
            if let Some((person, user)) = self.user_of(id, now).await? {
                let groups = members.names_of(id);
                self.lose(&connector, (id, &person), user, groups, now, &mut ended).await?;
            }
            if ended.users.len() >= USERS {
                self.commit(Vec::new(), std::mem::take(&mut ended), None, now).await?;
            }
        }
        Ok(ended)
    }

    /// The user here who a client's user is, with the key of the person.
    async fn user_of(
        &self,
        id: Uuid,
        now: OffsetDateTime,
    ) -> Result<Option<(String, Stored<UserRecord>)>, BackendError> {
        let store = &self.scim.store;
        let key = of_resource(self.connector, &id.to_string());
        let Some(bound) = store.get::<ScimPersonRecord>(&key, now).await.map_err(state)? else {
            return Ok(None);
        };
        let key = bound.value.person;
        let Some(person) = store.get::<PersonRecord>(&key, now).await.map_err(state)? else {
            return Ok(None);
        };
        let user = store.get::<UserRecord>(person.value.user.as_str(), now).await.map_err(state)?;
        Ok(user
            .filter(|user| self.is_ours(&user.value) && is_person(&user.value, &key))
            .map(|user| (key, user)))
    }

    async fn lose(
        &self,
        connector: &Connector,
        (id, person): (Uuid, &str),
        user: Stored<UserRecord>,
        groups: BTreeSet<String>,
        now: OffsetDateTime,
        ended: &mut Ended,
    ) -> Result<(), BackendError> {
        // Without what the provider said at the login, what the groups give is all that is known.
        let said = self.scim.store.get::<SaidRecord>(person, now).await.map_err(state)?;
        let said = said.map(|said| said.value).unwrap_or_default();
        let cache = self.scim.policy.cache();
        let again = judge_again(connector, &said, groups, |role| cache.roles.contains_key(role));
        let before = &user.value;
        let lost: Vec<String> =
            before.roles.iter().filter(|role| !again.roles.contains(role)).map(ToString::to_string).collect();
        if lost.is_empty() && is_within(&before.traits, &again.traits) {
            return Ok(());
        }
        let name = before.name.clone();
        let logins = self.scim.logins.end_logins(self.client, &name, WHY, now).await.map_err(failed)?;
        let event = self
            .client
            .event(Code::ScimRolesTaken)
            .message(format!("user/{name}"))
            .field("connector", self.connector.to_string())
            .field("name", name.to_string())
            .field("id", id.to_string())
            .field("lost", lost.join(", "))
            .field("roles", again.roles.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            .field("trace", again.told())
            .field("ended_logins", logins.logins);
        let after = UserRecord { roles: again.roles, traits: again.traits, ..user.value };
        let at = ended.steps.len();
        // A user without any role is none, as at a login.
        if after.roles.is_empty() {
            ended.steps.push(typed::delete::<UserRecord>(name.as_str(), Some(user.revision)));
            ended.users.push((at, After::Gone(name)));
        } else {
            let step = typed::update(name.as_str(), user.revision, &after, user.expires).map_err(state)?;
            ended.steps.push(step);
            ended.users.push((at, After::Changed(after)));
        }
        ended.steps.extend(logins.steps);
        ended.events.push(event);
        ended.events.extend(logins.events);
        Ok(())
    }
}

/// Whether every value of every trait is among others.
fn is_within(traits: &Traits, others: &Traits) -> bool {
    traits.iter().all(|(name, values)| {
        let others = others.get(name);
        values.iter().all(|value| others.is_some_and(|others| others.contains(value)))
    })
}
