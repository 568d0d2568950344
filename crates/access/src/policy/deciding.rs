//! The one decision about sessions, for every kind of resource.

use time::OffsetDateTime;

use super::decidable::{Decidable, Seeker};
use super::engine::{Policies, granting, no_role_allows};
use super::explaining::{Explanation, show_labels};
use super::merged::Merged;
use crate::factor::{FactorDemand, FactorRule};
use crate::limits::{Limits, RecordAt};
use crate::permit::Permit;
use crate::refusal::Refusal;
use crate::role::{Role, TraitRef};
use crate::{Identity, Lock, Principal, RoleName};

impl Policies {
    /// The decision: may this identity use this resource as this account, now?
    ///
    /// # Errors
    /// A [`Refusal`] that names the deciding rule.
    pub fn decide<R: Decidable>(
        &self,
        identity: &Identity,
        resource: &R,
        account: &R::Account,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Result<Permit<R>, Refusal> {
        let refuse = |why: String, rule: Option<String>| Refusal {
            what: format!("{} may not {}", identity.display_name(), resource.act(account)),
            why,
            rule,
            hint: None,
        };
        let Principal::User { name, roles, traits, .. } = &identity.principal else {
            return Err(refuse("only users have sessions".to_owned(), None));
        };
        if let Some(refusal) = self.invalid(identity, now) {
            return Err(refusal);
        }
        if let Some(refusal) = self.locked(identity, resource, Some(account), locks, now) {
            return Err(refusal);
        }
        R::check(account).map_err(|error| refuse(error.to_string(), None))?;
        let combination = self.combination(roles);
        let seeker = Seeker { policies: self, combination: &combination, user: name, traits };
        let weighed = seeker.weigh(resource, account);
        if !weighed.allowed {
            let refusal = match weighed.rules.into_iter().next() {
                Some(rule) => refuse("a role denies it".to_owned(), Some(rule)),
                None => refuse(no_role_allows(&combination, &weighed.errors), None),
            };
            return Err(Refusal { hint: resource.hint(&seeker), ..refusal });
        }
        let granting: Vec<&Role> = granting(&combination, &weighed).collect();
        let merged = Merged::of(granting.iter().map(|role| &role.options), &self.sessions.options);
        let (limits, opening) = self.opening(&seeker, resource, merged.limits(), &granting);
        if let Some((why, hint)) = limits.device_trust.refuses(identity.device.as_ref()) {
            let rule = opening.iter().find(|role| role.options.device_trust == Some(limits.device_trust));
            let rule = rule.map(|role| format!("role \"{}\" options.device_trust", role.name));
            return Err(Refusal { hint: Some(hint.to_owned()), ..refuse(why.to_owned(), rule) });
        }
        if let Some((why, hint)) = limits.unpinned(identity) {
            let rule = opening.iter().find(|role| role.options.pin_source_ip == Some(true));
            let rule = rule.map(|role| format!("role \"{}\" options.pin_source_ip", role.name));
            return Err(Refusal { hint: Some(hint.to_owned()), ..refuse(why.to_owned(), rule) });
        }
        Ok(Permit {
            user: name.clone(),
            resource: resource.id(),
            account: account.clone(),
            factor: FactorDemand::of(limits.factor, || resource.session_target(account)),
            limits,
            options: resource.options(&seeker, &granting, &merged, account),
            rule: weighed.rules.into_iter().next().unwrap_or_default(),
            valid_until: identity.valid_before,
        })
    }

    /// The limits of a way that is opened, and the roles that they are of. Where what is behind it decides about the account, the way may
    /// be used as any that the roles allow there, whichever it was asked for: what has to hold before it is opened is then the strictest of
    /// all. Where a proxy records, it is in front of that, and knows by which account; which device it is and from where stays as for that one.
    fn opening<'r, R: Decidable>(
        &self,
        seeker: &Seeker<'r>,
        resource: &R,
        limits: Limits,
        granting: &[&'r Role],
    ) -> (Limits, Vec<&'r Role>) {
        let mut roles = granting.to_vec();
        if roles.len() == seeker.combination.roles.len() {
            return (limits, roles);
        }
        for account in resource.accounts_behind(seeker) {
            let weighed = seeker.weigh(resource, &account);
            for role in self::granting(seeker.combination, &weighed) {
                if !roles.iter().any(|known| known.name == role.name) {
                    roles.push(role);
                }
            }
        }
        if roles.len() == granting.len() {
            return (limits, roles);
        }
        let all = Merged::of(roles.iter().map(|role| &role.options), &self.sessions.options).limits();
        let (device_trust, pin_source_ip) = match all.recording.at {
            RecordAt::Proxy => (limits.device_trust, limits.pin_source_ip),
            RecordAt::Off | RecordAt::Node => (all.device_trust, all.pin_source_ip),
        };
        (Limits { factor: all.factor, device_trust, pin_source_ip, ..limits }, roles)
    }

    /// The strictest second factor that any of these roles or the cluster demands of sessions, and the shortest time.
    #[must_use]
    pub fn strictest_factor(&self, roles: &[RoleName]) -> FactorRule {
        let combination = self.combination(roles);
        let options = combination.roles.iter().map(|role| &role.role.options);
        Merged::of(options, &self.sessions.options).limits().factor
    }

    /// Why an identity may or may not use a resource as an account, with everything that was weighed.
    #[must_use]
    pub fn explain<R: Decidable>(
        &self,
        identity: &Identity,
        resource: &R,
        account: &R::Account,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Explanation {
        let mut details =
            vec![format!("{} has the labels {}", resource.title(), show_labels(resource.labels()))];
        if let Principal::User { name, roles, traits, .. } = &identity.principal {
            for (name, values) in traits {
                details.push(format!("trait {} is {}", TraitRef::full_name(name), values.join(", ")));
            }
            let combination = self.combination(roles);
            for role in &combination.roles {
                let alone = self.combination(std::slice::from_ref(&role.role.name));
                let seeker = Seeker { policies: self, combination: &alone, user: name, traits };
                let weighed = seeker.weigh(resource, account);
                let verdict = match (weighed.allowed, weighed.rules.first()) {
                    (true, _) => "allows it".to_owned(),
                    (false, Some(rule)) => format!("denies it: {rule}"),
                    (false, None) => {
                        format!("does not allow it: {}", resource.missing(&role.role, &seeker, account))
                    }
                };
                details.push(format!("role \"{}\" {verdict}", role.role.name));
            }
            for role in &combination.unknown {
                details.push(format!("role \"{role}\" does not exist"));
            }
        }
        for lock in locks.iter().filter(|lock| resource.covered(lock, identity, Some(account), now)) {
            details.push(format!("lock \"{}\" covers {}", lock.name, lock.target));
        }
        match self.decide(identity, resource, account, locks, now) {
            Ok(permit) => {
                details.extend(R::remark(permit.options()));
                let options = R::show(permit.limits(), permit.options());
                details.push(format!("options: {}", options.join(", ")));
                let act = resource.act(account);
                let summary = format!("{} may {act}: {} allows it", permit.user(), permit.rule());
                Explanation { allowed: true, summary, details }
            }
            Err(refusal) => Explanation { allowed: false, summary: refusal.public_message(), details },
        }
    }
}
