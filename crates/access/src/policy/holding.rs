//! Whether an identity holds at least what another would. Who could give, sign, reset or edit more than they hold would
//! hold it a moment later.

use std::collections::BTreeSet;

use super::api::{host_is_told, host_may};
use super::engine::Policies;
use crate::refusal::Refusal;
use crate::role::{
    JoinRule, LabelRules, LoginMatcher, NameMatcher, RESOURCES, Role, Rules, TraitRef, ValueMatcher, Verb,
};
use crate::{HostRole, Identity, Kind, Nature, Principal, Traits};

/// Roles with the traits that their templates stand for.
struct Side<'s> {
    roles: Vec<&'s Role>,
    traits: &'s Traits,
}

impl Side<'_> {
    fn values(&self, reference: &TraitRef) -> BTreeSet<&str> {
        let of = self.traits.iter().filter(|(key, _)| TraitRef::full_name(key) == reference.name());
        of.flat_map(|(_, values)| values.iter().map(String::as_str)).collect()
    }
}

impl Policies {
    /// Whether this identity may do everything with every kind of resource. It may write any role and give it to
    /// itself, so it holds everything.
    #[must_use]
    pub fn administers(&self, identity: &Identity) -> bool {
        RESOURCES
            .iter()
            .all(|resource| Verb::ALL.into_iter().all(|verb| self.may(identity, resource, verb).is_ok()))
    }

    /// Whether this identity holds at least what `other` holds under `theirs`, which are these policies or those that
    /// they are to become. `whose` is what messages call `other`.
    ///
    /// Rights to the API are compared by asking about each. Of logins, databases and sessions to be joined, a role of
    /// the other's has to be one of the holder's own, or to lie within one: nodes that join tomorrow count as well.
    ///
    /// # Errors
    /// A [`Refusal`] that names the first thing that the holder lacks.
    pub fn holds(
        &self,
        holder: &Identity,
        theirs: &Policies,
        other: &Identity,
        whose: &str,
    ) -> Result<(), Refusal> {
        let refuse = |why| Err(lacks(holder, whose, why));
        let Principal::User { roles, traits, .. } = &holder.principal else {
            return refuse("hosts hand out nothing".to_owned());
        };
        let Principal::User { roles: their_roles, traits: their_traits, .. } = &other.principal else {
            return refuse("it is a host".to_owned());
        };
        if self.administers(holder) {
            return Ok(());
        }
        for (resource, verb) in every_right() {
            if theirs.may(other, resource, verb).is_ok() && self.may(holder, resource, verb).is_err() {
                return refuse(format!("{} may not {} {resource}", holder.display_name(), verb.as_str()));
            }
        }
        let (own, given) = (self.combination(roles), theirs.combination(their_roles));
        let own = Side { roles: own.roles.iter().map(|role| &role.role).collect(), traits };
        let given = Side { roles: given.roles.iter().map(|role| &role.role).collect(), traits: their_traits };
        for role in given.roles.iter().filter(|role| grants_sessions(&role.allow)) {
            if !self.covered(role, &given, &own) {
                return refuse(format!(
                    "role \"{}\" allows logins, databases or sessions that no role of {} does",
                    role.name,
                    holder.display_name()
                ));
            }
        }
        // What keeps the holder out has to keep the other out.
        let denying = own.roles.iter().find(|role| {
            role.deny != Rules { rules: role.deny.rules.clone(), ..Rules::default() }
                && !given.roles.iter().any(|theirs| {
                    theirs.deny == role.deny
                        && references(&role.deny)
                            .iter()
                            .all(|reference| own.values(reference).is_subset(&given.values(reference)))
                })
        });
        match denying {
            Some(role) => refuse(format!(
                "role \"{}\" denies {} logins, databases or sessions and would not deny them there",
                role.name,
                holder.display_name()
            )),
            None => Ok(()),
        }
    }

    /// Whether this identity holds what a host of this role does: all of it to make a proxy, which speaks for users; to
    /// make another host, the reading of what the host reads or is told in whole.
    ///
    /// # Errors
    /// A [`Refusal`] that names the first thing that the holder lacks.
    pub fn holds_host(&self, holder: &Identity, role: HostRole) -> Result<(), Refusal> {
        if self.administers(holder) {
            return Ok(());
        }
        let whose = format!("a {}", role.name());
        let refuse = |why| Err(lacks(holder, &whose, why));
        if !matches!(role, HostRole::Node | HostRole::OpenSsh) {
            return refuse(
                "it speaks for every user, so it takes every right with every kind of resource".to_owned(),
            );
        }
        // What a host is told of in part takes no right: of databases and the catalogue it is told no more than what its token lets it
        // serve, or an administrator gives it.
        let reading = every_right().filter(|(_, verb)| matches!(verb, Verb::List | Verb::Read));
        for (resource, verb) in reading {
            let reads = host_may(role, resource, verb) || host_is_told(role, resource);
            if reads && self.may(holder, resource, verb).is_err() {
                return refuse(format!("{} may not {} {resource}", holder.display_name(), verb.as_str()));
            }
        }
        Ok(())
    }

    fn covered(&self, role: &Role, given: &Side<'_>, own: &Side<'_>) -> bool {
        let same = |held: &Role| {
            held.allow == role.allow
                && held.options == role.options
                && references(&role.allow)
                    .iter()
                    .all(|reference| given.values(reference).is_subset(&own.values(reference)))
        };
        own.roles.iter().any(|held| {
            same(held)
                || (role.options.within(&held.options, &self.sessions.options)
                    && within(&role.allow, given, &held.allow, own))
        })
    }
}

fn lacks(holder: &Identity, whose: &str, why: String) -> Refusal {
    Refusal {
        what: format!("{} does not hold all that {whose} holds", holder.display_name()),
        why,
        rule: None,
        hint: Some("ask an administrator who holds it".to_owned()),
    }
}

fn every_right() -> impl Iterator<Item = (&'static str, Verb)> {
    RESOURCES.into_iter().flat_map(|resource| Verb::ALL.into_iter().map(move |verb| (resource, verb)))
}

/// Accounts without a node count: they are principals of certificates, which stock servers read alone.
fn grants_sessions(allow: &Rules) -> bool {
    let labels = allow.labels.iter().any(|(kind, _)| kind != Kind::Node);
    !allow.logins.is_empty() || labels || !allow.join_sessions.is_empty()
}

/// The traits that one side of a role refers to.
fn references(rules: &Rules) -> Vec<&TraitRef> {
    let logins = rules.logins.iter().filter_map(|matcher| match matcher {
        LoginMatcher::Trait(reference) => Some(reference),
        LoginMatcher::Literal(_) | LoginMatcher::Any => None,
    });
    let labels = rules.labels.iter().flat_map(|(_, labels)| labels.values()).flatten();
    let labels = labels.filter_map(|matcher| match matcher {
        ValueMatcher::Trait(reference) => Some(reference),
        ValueMatcher::Literal(_) | ValueMatcher::Glob(_) | ValueMatcher::Regex(_) => None,
    });
    let names = rules.db_names.iter().chain(&rules.db_users).chain(&rules.db_roles);
    let names = names.filter_map(|matcher| match matcher {
        NameMatcher::Trait(reference) => Some(reference),
        NameMatcher::Literal(_) | NameMatcher::Any => None,
    });
    logins.chain(labels).chain(names).collect()
}

/// Whether everything that `rules` allow the one is something that `held` allow the other.
fn within(rules: &Rules, given: &Side<'_>, held: &Rules, own: &Side<'_>) -> bool {
    let labels = |kind| labels_within(rules.labels.of(kind), given, held.labels.of(kind), own);
    let sessions = Kind::ALL.iter().all(|kind| match kind.row().nature {
        Nature::Node => {
            rules.logins.is_empty()
                || (logins_within(&rules.logins, given, &held.logins, own) && labels(*kind))
        }
        Nature::Database => {
            rules.labels.of(*kind).is_empty()
                || (labels(*kind)
                    && names_within(&rules.db_users, given, &held.db_users, own)
                    && names_within(&rules.db_names, given, &held.db_names, own)
                    && names_within(&rules.db_roles, given, &held.db_roles, own))
        }
        Nature::Listed => rules.labels.of(*kind).is_empty() || labels(*kind),
    });
    sessions && rules.join_sessions.iter().all(|rule| joins_within(rule, &held.join_sessions))
}

fn logins_within(logins: &[LoginMatcher], given: &Side<'_>, held: &[LoginMatcher], own: &Side<'_>) -> bool {
    let may = |login: &str| {
        held.iter().any(|matcher| match matcher {
            LoginMatcher::Any => true,
            LoginMatcher::Literal(literal) => literal.as_str() == login,
            LoginMatcher::Trait(reference) => own.values(reference).contains(login),
        })
    };
    logins.iter().all(|matcher| match matcher {
        LoginMatcher::Any => held.contains(&LoginMatcher::Any),
        LoginMatcher::Literal(login) => may(login.as_str()),
        LoginMatcher::Trait(reference) => given.values(reference).into_iter().all(may),
    })
}

fn names_within(names: &[NameMatcher], given: &Side<'_>, held: &[NameMatcher], own: &Side<'_>) -> bool {
    let may = |name: &str| {
        held.iter().any(|matcher| match matcher {
            NameMatcher::Any => true,
            NameMatcher::Literal(literal) => literal == name,
            NameMatcher::Trait(reference) => own.values(reference).contains(name),
        })
    };
    names.iter().all(|matcher| match matcher {
        NameMatcher::Any => held.contains(&NameMatcher::Any),
        NameMatcher::Literal(name) => may(name),
        NameMatcher::Trait(reference) => given.values(reference).into_iter().all(may),
    })
}

/// Every label that the held rules demand has to be demanded by the others, of no more values.
fn labels_within(labels: &LabelRules, given: &Side<'_>, held: &LabelRules, own: &Side<'_>) -> bool {
    if labels.is_empty() || held.is_empty() {
        // Without labels nothing is allowed anywhere; its accounts are in certificates all the same.
        return !held.is_empty();
    }
    held.iter().filter(|(label, _)| *label != "*").all(|(label, held)| {
        let may = |value: &str| {
            held.iter().any(|matcher| match matcher {
                ValueMatcher::Literal(literal) => literal == value,
                ValueMatcher::Trait(reference) => own.values(reference).contains(value),
                ValueMatcher::Glob(glob) => glob == "*",
                ValueMatcher::Regex(_) => false,
            })
        };
        labels.get(label).is_some_and(|asked| {
            asked.iter().all(|matcher| match matcher {
                ValueMatcher::Literal(value) => may(value),
                ValueMatcher::Trait(reference) => given.values(reference).into_iter().all(may),
                ValueMatcher::Glob(_) | ValueMatcher::Regex(_) => {
                    held.contains(matcher) || held.contains(&ValueMatcher::Glob("*".to_owned()))
                }
            })
        })
    })
}

fn joins_within(rule: &JoinRule, held: &[JoinRule]) -> bool {
    held.iter().any(|held| {
        let owners = |role: &String| held.roles.iter().any(|own| own == "*" || own == role);
        rule.roles.iter().all(owners) && rule.modes.iter().all(|mode| held.modes.contains(mode))
    })
}
