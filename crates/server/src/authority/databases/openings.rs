//! The words by which sessions were opened, each good for one permit and one certificate of each sort.

use std::collections::HashMap;

use parking_lot::Mutex;
use sallyport_ca::{OPENING_LIFE, SKEW_ALLOWANCE};
use time::OffsetDateTime;
use uuid::Uuid;

/// Words that are remembered; while there are so many, no other is taken.
const MOST_REMEMBERED: usize = 200_000;

/// What a word is used for, once each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// To begin the session.
    Session,
    /// For a certificate as its database user.
    Certificate,
    /// For one as the account that makes users.
    Provisioning,
}

/// Whose word, its nonce, and what it was used for.
type Used = (Uuid, Vec<u8>, Use);

/// The words that were used, for as long as they would count.
#[derive(Debug, Default)]
pub(crate) struct Openings(Mutex<HashMap<Used, OffsetDateTime>>);

impl Openings {
    /// Notes a use; false when it was used before.
    pub(crate) fn is_first(&self, used: Used, now: OffsetDateTime) -> bool {
        let mut known = self.0.lock();
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, until| *until > now);
            if known.len() >= MOST_REMEMBERED {
                return false;
            }
        }
        known.insert(used, now + OPENING_LIFE + 3 * SKEW_ALLOWANCE).is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_used_once_for_each_sort() {
        let openings = Openings::default();
        let now = OffsetDateTime::UNIX_EPOCH;
        let (proxy, nonce) = (Uuid::new_v4(), vec![7; 16]);
        for for_use in [Use::Session, Use::Certificate, Use::Provisioning] {
            assert!(openings.is_first((proxy, nonce.clone(), for_use), now));
        }
        assert!(openings.is_first((Uuid::new_v4(), nonce.clone(), Use::Session), now));
        assert!(!openings.is_first((proxy, nonce.clone(), Use::Session), now + OPENING_LIFE));
    }
}
