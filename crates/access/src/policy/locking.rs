//! What keeps an identity out whatever its roles say: locks, and the end of its certificate.

use time::OffsetDateTime;

use super::decidable::Decidable;
use super::engine::Policies;
use super::kept_out::kept_out;
use crate::refusal::Refusal;
use crate::{Identity, Lock};

impl Policies {
    /// The lock that keeps this identity out of this resource, if any; `None` where the account is not known.
    #[must_use]
    pub fn locked<R: Decidable>(
        &self,
        identity: &Identity,
        resource: &R,
        account: Option<&R::Account>,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Option<Refusal> {
        let lock = locks.iter().find(|lock| resource.covered(lock, identity, account, now))?;
        Some(kept_out(identity, lock))
    }

    /// The lock that keeps this identity out of everything, if any.
    #[must_use]
    pub fn locked_out(&self, identity: &Identity, locks: &[Lock], now: OffsetDateTime) -> Option<Refusal> {
        let lock = locks.iter().find(|lock| lock.covers(identity, None, None, now))?;
        Some(kept_out(identity, lock))
    }

    pub(super) fn invalid(&self, identity: &Identity, now: OffsetDateTime) -> Option<Refusal> {
        let (why, hint) = if now >= identity.valid_before {
            ("the certificate has expired", "log in again: sallyport login")
        } else if now < identity.valid_after {
            ("the certificate is not valid yet", "check the clocks")
        } else {
            return None;
        };
        Some(Refusal {
            what: format!("{} may not enter", identity.display_name()),
            why: why.to_owned(),
            rule: None,
            hint: Some(hint.to_owned()),
        })
    }
}
