//! A caller gives, signs, resets and edits no more than it holds: asked before each change that hands out rights.

use std::sync::Arc;

use sallyport_access::role::Rules;
use sallyport_access::{HostRole, Identity, Policies, Principal, Refusal, Role, RoleName, Traits, UserName};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::{Caller, unauthenticated};
use crate::authority::gate::calls::Gate;
use crate::authority::identities::known::Identities;
use crate::authority::policy::{Policy, not_compiled};
use crate::authority::records::UserRecord;

fn lacking(refusal: Refusal) -> Status {
    Status::permission_denied(refusal.public_message())
}

/// What callers hold, before they hand out rights.
#[derive(Debug)]
pub(crate) struct Delegation {
    gate: Arc<Gate>,
    policy: Arc<Policy>,
    identities: Arc<Identities>,
}

impl Delegation {
    pub(crate) fn new(gate: &Arc<Gate>, policy: &Arc<Policy>, identities: &Arc<Identities>) -> Arc<Self> {
        Arc::new(Self {
            gate: Arc::clone(gate),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
        })
    }

    /// Refuses, on record, unless `decide` finds that the caller holds enough. The local administrator holds everything.
    async fn held(
        &self,
        caller: &Caller,
        method: &'static str,
        decide: impl FnOnce(&Identity) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let held = match caller {
            Caller::LocalAdmin => return Ok(()),
            Caller::Anonymous { .. } | Caller::Behind { .. } => Err(unauthenticated()),
            Caller::Certified { identity, .. } => self.gate.valid(identity).and_then(|now| decide(&now)),
        };
        match held {
            Ok(()) => Ok(()),
            Err(status) => Err(self.gate.refuse(caller, method, status).await),
        }
    }

    /// The caller holds at least what this user does.
    pub(crate) async fn must_hold(
        &self,
        caller: &Caller,
        method: &'static str,
        user: &UserRecord,
    ) -> Result<(), Status> {
        let decide = |identity: &Identity| {
            let (cache, other) =
                (self.policy.cache(), self.identities.identity_of(user, OffsetDateTime::now_utc()));
            cache.policies.holds(identity, &cache.policies, &other, user.name.as_str()).map_err(lacking)
        };
        self.held(caller, method, decide).await
    }

    /// The caller holds at least what a host of this role does.
    pub(crate) async fn must_hold_host(
        &self,
        caller: &Caller,
        method: &'static str,
        role: HostRole,
    ) -> Result<(), Status> {
        let decide =
            |identity: &Identity| self.policy.cache().policies.holds_host(identity, role).map_err(lacking);
        self.held(caller, method, decide).await
    }

    /// The caller may do everything with everything.
    pub(crate) async fn must_administer(
        &self,
        caller: &Caller,
        method: &'static str,
        what: &str,
    ) -> Result<(), Status> {
        let decide = |identity: &Identity| {
            if self.policy.cache().policies.administers(identity) {
                return Ok(());
            }
            Err(Status::permission_denied(format!(
                "{} may not {what}: it is as good as every right, so it takes every right with every kind of resource; \
                 ask an administrator who has it",
                identity.display_name()
            )))
        };
        self.held(caller, method, decide).await
    }

    /// The caller holds at least what a role gives to every user who has it, as it is and as it is to be.
    pub(crate) async fn must_hold_role(
        &self,
        caller: &Caller,
        method: &'static str,
        name: &RoleName,
        after: Option<&Role>,
    ) -> Result<(), Status> {
        self.held(caller, method, |identity| self.holds_role(identity, name, after)).await
    }

    fn holds_role(&self, holder: &Identity, name: &RoleName, after: Option<&Role>) -> Result<(), Status> {
        let cache = self.policy.cache();
        if cache.policies.administers(holder) {
            return Ok(());
        }
        let Principal::User { name: own, traits, .. } = &holder.principal else {
            return Err(Status::permission_denied("hosts write no roles"));
        };
        let before = cache.roles.get(name.as_str());
        if let Some(denial) = before.and_then(|before| lost_denial(&before.deny, after)) {
            return Err(Status::permission_denied(format!(
                "{own} may not change role {name}: a denial of it would be lost ({denial}), which takes every right with \
                 every kind of resource; ask an administrator who has it"
            )));
        }
        let next = match after {
            Some(after) => {
                let others = cache.roles.values().filter(|role| role.name != after.name);
                let roles: Vec<Role> = others.chain([after]).cloned().collect();
                let compiled = Policies::compile_with(&roles, cache.policies.sessions().clone());
                Some(compiled.map_err(|error| not_compiled(&error))?)
            }
            None => None,
        };
        // Templates stand for the traits of the users who have the role, and of the caller, who may get it.
        let mut whom: Vec<(UserName, Traits)> = vec![(own.clone(), traits.clone())];
        let having = self.identities.users(|user| user.roles.contains(name));
        whom.extend(having.into_iter().map(|user| (user.name.clone(), user.traits.clone())));
        for (user, traits) in whom {
            let principal =
                Principal::User { name: user, roles: vec![name.clone()], logins: Vec::new(), traits };
            let other = Identity { principal, ..holder.clone() };
            let whose = format!("role {name}");
            cache.policies.holds(holder, &cache.policies, &other, &whose).map_err(lacking)?;
            if let Some(next) = &next {
                cache.policies.holds(holder, next, &other, &whose).map_err(lacking)?;
            }
        }
        Ok(())
    }
}

/// What a role denies and would not deny any more.
fn lost_denial(before: &Rules, after: Option<&Role>) -> Option<&'static str> {
    let nothing = Rules::default();
    let after = after.map_or(&nothing, |role| &role.deny);
    fn all<T: PartialEq>(before: &[T], after: &[T]) -> bool {
        before.iter().all(|one| after.contains(one))
    }
    // Labels deny together: one more of them denies less.
    let lost = before.labels.iter().find(|(kind, labels)| after.labels.of(*kind) != *labels);
    if let Some((kind, _)) = lost {
        return Some(kind.row().labels);
    }
    [
        ("logins", all(&before.logins, &after.logins)),
        ("db_names", all(&before.db_names, &after.db_names)),
        ("db_users", all(&before.db_users, &after.db_users)),
        ("db_roles", all(&before.db_roles, &after.db_roles)),
        ("join_sessions", all(&before.join_sessions, &after.join_sessions)),
        ("rules", all(&before.rules, &after.rules)),
    ]
    .into_iter()
    .find_map(|(name, kept)| (!kept).then_some(name))
}
