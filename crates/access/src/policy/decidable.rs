//! What each kind of resource answers when it is decided about.

use time::OffsetDateTime;

use super::engine::{Combination, Policies, Question, Weighed};
use super::merged::Merged;
use crate::limits::Limits;
use crate::role::Role;
use crate::{Identity, Lock, Resource, Traits, UserName};

/// A user in front of a resource, with all roles together.
pub struct Seeker<'s> {
    pub(super) policies: &'s Policies,
    pub(super) combination: &'s Combination,
    pub(super) user: &'s UserName,
    pub(super) traits: &'s Traits,
}

impl Seeker<'_> {
    /// What the roles say to an account on a resource.
    pub(super) fn weigh<R: Decidable>(&self, resource: &R, account: &R::Account) -> Weighed {
        let question = resource.question(self, account);
        self.policies.weigh(self.combination, self.user.as_str(), self.traits, question)
    }
}

/// A resource that [`Policies::decide`] decides about. What is here differs from kind to kind; everything else is the same.
pub trait Decidable: Resource {
    /// What one of them is called in messages.
    const WORD: &'static str;

    /// What a session with it is, after "may": "log in as root on web-1".
    fn act(&self, account: &Self::Account) -> String;

    /// What Cedar is asked.
    fn question<'q>(&'q self, seeker: &'q Seeker<'_>, account: &Self::Account) -> Question<'q>;

    /// What is wrong with the account, whatever the roles say.
    ///
    /// # Errors
    /// What a message says of it.
    fn check(_: &Self::Account) -> Result<(), String> {
        Ok(())
    }

    /// Its own options for a session that these roles grant.
    fn options(
        &self,
        seeker: &Seeker<'_>,
        granting: &[&Role],
        merged: &Merged<'_>,
        account: &Self::Account,
    ) -> Self::Options;

    /// Whether a lock keeps the identity out of it; `None` where the account is not known.
    fn covered(
        &self,
        lock: &Lock,
        identity: &Identity,
        account: Option<&Self::Account>,
        now: OffsetDateTime,
    ) -> bool;

    /// What a refused user may use in its place.
    fn hint(&self, seeker: &Seeker<'_>) -> Option<String>;

    /// What an explanation calls it.
    fn title(&self) -> String {
        format!("{} {}", Self::WORD, self.name())
    }

    /// Which part of a role's `allow` does not fit.
    fn missing(&self, role: &Role, seeker: &Seeker<'_>, account: &Self::Account) -> String;

    /// What an explanation says of the options before they are listed.
    fn remark(_: &Self::Options) -> Option<String> {
        None
    }

    /// The limits and options of a permit, for people.
    fn show(limits: &Limits, options: &Self::Options) -> Vec<String>;
}
