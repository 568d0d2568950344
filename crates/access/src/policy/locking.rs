//! What keeps an identity out whatever its roles say: locks, and the end of its certificate.

use time::OffsetDateTime;

use super::Policies;
use super::kept_out::kept_out;
use crate::permit::Refusal;
use crate::{Identity, Lock, Login, Node};

impl Policies {
    /// The lock that covers this, if any.
    #[must_use]
    pub fn locked(
        &self,
        identity: &Identity,
        node: Option<&Node>,
        login: Option<&Login>,
        locks: &[Lock],
        now: OffsetDateTime,
    ) -> Option<Refusal> {
        let lock = locks.iter().find(|lock| lock.covers(identity, node, login, now))?;
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
