//! Who may take part in whose live sessions.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::engine::{Combination, Policies, Question, Weighed, granting};
use super::merged::Merged;
use crate::factor::{FactorDemand, SessionTarget};
use crate::join::{JoinMode, JoinPermit};
use crate::refusal::Refusal;
use crate::role::Role;
use crate::{Identity, Kind, Lock, Node, Principal, RoleName, Traits};

/// The session that a user wants to take part in.
#[derive(Debug, Clone, Copy)]
pub struct JoinTarget<'a> {
    /// Where it runs.
    pub node: &'a Node,
    /// Whose it is: the name of a user.
    pub owner: &'a str,
    /// The owner's roles when it began.
    pub owner_roles: &'a [RoleName],
}

impl Policies {
    /// May this identity take part in this session in this mode? In one's own in every mode, in others by rule.
    ///
    /// # Errors
    /// A [`Refusal`] that names the deciding rule.
    pub fn may_join(
        &self,
        identity: &Identity,
        session: JoinTarget<'_>,
        mode: JoinMode,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Result<JoinPermit, Refusal> {
        let what = format!(
            "{} may not join a session of {} on {} as {}",
            identity.display_name(),
            session.owner,
            session.node.name,
            mode.as_str()
        );
        let roles: Vec<&str> = session.owner_roles.iter().map(RoleName::as_str).collect();
        let own = identity.user().is_some_and(|user| user.as_str() == session.owner);
        self.joining(identity, session.node, what, locks, now, |weigh| match own {
            true => {
                Weighed { allowed: true, rules: vec!["one's own session".to_owned()], errors: Vec::new() }
            }
            false => weigh(&roles, mode),
        })
    }

    /// May this identity reach a node in order to join a session there? This is what a proxy can ask, which does not
    /// know the session; the node decides about that.
    ///
    /// # Errors
    /// A [`Refusal`] when there is nothing there that it could join.
    pub fn may_reach_to_join(
        &self,
        identity: &Identity,
        node: &Node,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Result<JoinPermit, Refusal> {
        let what = format!("{} may join no session on {}", identity.display_name(), node.name);
        let own = !self.logins_on(identity, node).is_empty();
        let owners = self.joinable_owners(identity);
        self.joining(identity, node, what, locks, now, |weigh| {
            if own {
                return Weighed {
                    allowed: true,
                    rules: vec!["one's own session".to_owned()],
                    errors: Vec::new(),
                };
            }
            let questions = owners
                .iter()
                .flat_map(|role| JoinMode::ALL.into_iter().map(move |mode| (role.as_str(), mode)));
            let mut refused = Weighed { allowed: false, rules: Vec::new(), errors: Vec::new() };
            for (role, mode) in questions {
                let answer = weigh(&[role], mode);
                if answer.allowed {
                    return answer;
                }
                refused = answer;
            }
            refused
        })
    }

    /// The roles that the caller's rules name, and one that no user has, for rules about every user.
    fn joinable_owners(&self, identity: &Identity) -> BTreeSet<String> {
        let Principal::User { roles, .. } = &identity.principal else { return BTreeSet::new() };
        let combination = self.combination(roles);
        let rules = combination.roles.iter().flat_map(|role| &role.role.allow.join_sessions);
        rules.flat_map(|rule| rule.roles.iter().cloned()).collect()
    }

    fn joining(
        &self,
        identity: &Identity,
        node: &Node,
        what: String,
        locks: &[Lock],
        now: OffsetDateTime,
        decide: impl FnOnce(&dyn Fn(&[&str], JoinMode) -> Weighed) -> Weighed,
    ) -> Result<JoinPermit, Refusal> {
        let refuse = |why: &str, rule| Refusal { what: what.clone(), why: why.to_owned(), rule, hint: None };
        let Principal::User { name, roles, traits, .. } = &identity.principal else {
            return Err(refuse("only users take part in sessions", None));
        };
        if let Some(refusal) = self.invalid(identity, now) {
            return Err(refusal);
        }
        if let Some(refusal) = self.locked(identity, node, None, locks, now) {
            return Err(refusal);
        }
        let combination = self.combination(roles);
        let weighed =
            decide(&|owners, mode| self.weigh_join(&combination, name.as_str(), traits, node, owners, mode));
        if weighed.allowed {
            let mut asking: Vec<&Role> = granting(&combination, &weighed).collect();
            if asking.is_empty() {
                // One's own session: what is asked is as for a login there.
                asking = self.admitting(identity, &combination, node);
            }
            let cluster = &self.sessions.options;
            let limits = Merged::of(asking.into_iter().map(|role| &role.options), cluster).limits();
            if let Some((why, hint)) = limits.device_trust.refuses(identity.device.as_ref()) {
                return Err(Refusal { hint: Some(hint.to_owned()), ..refuse(why, None) });
            }
            if let Some((why, hint)) = limits.unpinned(identity) {
                return Err(Refusal { hint: Some(hint.to_owned()), ..refuse(why, None) });
            }
        }
        match (weighed.allowed, weighed.rules.into_iter().next()) {
            (true, rule) => Ok(JoinPermit {
                user: name.clone(),
                node: node.id,
                rule: rule.unwrap_or_default(),
                valid_until: identity.valid_before,
                factor: FactorDemand::of(self.strictest_factor(roles), || SessionTarget::join(node.id)),
            }),
            (false, Some(rule)) => Err(refuse("a role denies it", Some(rule))),
            (false, None) => Err(refuse("no role allows it (allow.join_sessions)", None)),
        }
    }

    /// The roles that let an identity log in to a node, each by itself.
    fn admitting<'c>(&self, identity: &Identity, combination: &'c Combination, node: &Node) -> Vec<&'c Role> {
        let alone = |role: &Role| {
            let mut alone = identity.clone();
            if let Principal::User { roles, .. } = &mut alone.principal {
                *roles = vec![role.name.clone()];
            }
            !self.logins_on(&alone, node).is_empty()
        };
        combination.roles.iter().map(|role| &role.role).filter(|role| alone(role)).collect()
    }

    fn weigh_join(
        &self,
        combination: &Combination,
        user: &str,
        traits: &Traits,
        node: &Node,
        owner_roles: &[&str],
        mode: JoinMode,
    ) -> Weighed {
        let question = Question::other("join", Kind::Node, node.id.to_string(), &node.labels)
            .texts("owner_roles", owner_roles)
            .texts("modes", &[mode.as_str()]);
        self.weigh(combination, user, traits, question)
    }
}
