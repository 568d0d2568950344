//! What each kind of resource answers when it is decided about.

use time::OffsetDateTime;

use super::engine::{Combination, Policies, Question, Weighed};
use super::explaining::{show_span, unfit_labels};
use super::merged::Merged;
use crate::database::NameError;
use crate::factor::{FactorRule, SessionFactor, SessionTarget};
use crate::limits::Limits;
use crate::role::Role;
use crate::{Identity, Lock, Resource, Traits, UserName};

/// A user in front of a resource, with all roles together.
#[derive(Debug)]
pub struct Seeker<'s> {
    pub(super) policies: &'s Policies,
    pub(super) combination: &'s Combination,
    pub(super) user: &'s UserName,
    pub(super) traits: &'s Traits,
}

impl Seeker<'_> {
    /// Who.
    #[must_use]
    pub fn user(&self) -> &UserName {
        self.user
    }

    /// What the user's certificate says of the user.
    #[must_use]
    pub fn traits(&self) -> &Traits {
        self.traits
    }

    /// Whether the roles allow an account on a resource; locks aside.
    #[must_use]
    pub fn allows<R: Decidable>(&self, resource: &R, account: &R::Account) -> bool {
        self.weigh(resource, account).allowed
    }

    /// What the roles say to an account on a resource.
    pub(super) fn weigh<R: Decidable>(&self, resource: &R, account: &R::Account) -> Weighed {
        let question = resource.question(self, account);
        self.policies.weigh(self.combination, self.user.as_str(), self.traits, question)
    }
}

/// An account that no role can grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// No database server can have a user of this name.
    #[error("the user {0}")]
    User(NameError),
    /// No database server can have a database of this name.
    #[error("the database name {0}")]
    DatabaseName(NameError),
}

/// A resource that [`Policies::decide`] decides about. What is here differs from kind to kind; everything else is the same. What is
/// given here is right for a kind that labels alone grant.
pub trait Decidable: Resource {
    /// What a session with it is, after "may": "log in as root on web-1".
    fn act(&self, _: &Self::Account) -> String {
        format!("use the {} {}", self.kind().row().word, self.name())
    }

    /// Which session a second factor is proven for.
    fn session_target(&self, _: &Self::Account) -> SessionTarget {
        SessionTarget::any(self.kind(), self.name())
    }

    /// The accounts of which a session may have any once the way to it is open, whichever the way was asked for: where what is behind it
    /// decides about the account, and nothing before it hears of it. None: the way is for the account that was asked for.
    fn accounts_behind(&self, _: &Seeker<'_>) -> Vec<Self::Account> {
        Vec::new()
    }

    /// What Cedar is asked.
    fn question(&self, _: &Seeker<'_>, _: &Self::Account) -> Question<'_> {
        Question::session(self.kind(), self.name(), self.labels())
    }

    /// Checks the account before the roles are asked.
    ///
    /// # Errors
    /// [`AccountError`] for one that no role can grant.
    fn check(_: &Self::Account) -> Result<(), AccountError> {
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
        _: Option<&Self::Account>,
        now: OffsetDateTime,
    ) -> bool {
        lock.covers_resource(identity, self.kind(), self.name(), now)
    }

    /// What a refused user may use in its place.
    fn hint(&self, _: &Seeker<'_>) -> Option<String> {
        None
    }

    /// What an explanation calls it.
    fn title(&self) -> String {
        format!("{} {}", self.kind().row().word, self.name())
    }

    /// Which part of a role's `allow` does not fit.
    fn missing(&self, role: &Role, _: &Seeker<'_>, _: &Self::Account) -> String {
        match role.allow.labels.of(self.kind()).is_empty() {
            true => format!("it grants no {}", self.kind().row().word),
            false => unfit_labels(self.kind(), role),
        }
    }

    /// What an explanation says of the options before they are listed.
    fn remark(_: &Self::Options) -> Option<String> {
        None
    }

    /// The limits and options of a permit, for people.
    fn show(limits: &Limits, _: &Self::Options) -> Vec<String> {
        vec![
            format!("record_session {}", limits.record_session.as_str()),
            format!("session_recording {}", limits.recording.as_str()),
            format!("client_idle_timeout {}", show_span(limits.client_idle_timeout)),
            format!("max_session_duration {}", show_span(limits.max_session_duration)),
            format!("disconnect_expired_cert {}", limits.disconnect_expired_cert),
            format!("device_trust {}", limits.device_trust.as_str()),
            format!("pin_source_ip {}", limits.pin_source_ip),
        ]
        .into_iter()
        .chain(show_factor(&limits.factor))
        .collect()
    }
}

/// The second factor before each session, for people; nothing where none is demanded.
pub(super) fn show_factor(rule: &FactorRule) -> Vec<String> {
    if rule.factor == SessionFactor::No {
        return Vec::new();
    }
    vec![
        format!("require_session_mfa {}", rule.factor.as_str()),
        format!("session_mfa_ttl {}", crate::yaml::show(rule.grace)),
    ]
}
