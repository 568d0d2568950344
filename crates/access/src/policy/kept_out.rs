//! What a lock says to whom it keeps out.

use crate::refusal::Refusal;
use crate::{Identity, Lock, LockTarget, Principal};

pub(super) fn kept_out(identity: &Identity, lock: &Lock) -> Refusal {
    let mut why = format!("{} is locked", lock.target);
    if !lock.message.is_empty() {
        why.push_str(&format!(": {}", lock.message));
    }
    // A lock on one login leaves the way to the next.
    let hint = match (&lock.target, &identity.principal) {
        (LockTarget::LoginId(_), Principal::User { .. }) => "log in again: sallyport login",
        (LockTarget::Device(_), Principal::User { .. }) => {
            "log in from another device, or ask an administrator"
        }
        _ => "ask an administrator",
    };
    Refusal {
        what: format!("{} is kept out", identity.display_name()),
        why,
        rule: Some(format!("lock \"{}\"", lock.name)),
        hint: Some(hint.to_owned()),
    }
}
