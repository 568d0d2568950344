//! Sessions that proxies say they have opened, each good for one certificate of each sort.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sallyport_access::{HostId, Identity, Principal};
use sallyport_ca::{OPENING_LIFE, Opening, OpeningWord, SKEW_ALLOWANCE, Trust};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::auth::Inner;

/// Words that are remembered; while there are so many, no other is taken.
const MOST_REMEMBERED: usize = 200_000;

/// A proxy, a nonce, and which of the two sorts of certificate it was used for.
type Used = (HostId, Vec<u8>, bool);

/// The words that were used, for as long as they would count.
#[derive(Debug, Default)]
pub(super) struct Openings(Mutex<HashMap<Used, OffsetDateTime>>);

impl Openings {
    /// Notes a use; false when it was used before.
    fn is_first(&self, used: Used, now: OffsetDateTime) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, until| *until > now);
            if known.len() >= MOST_REMEMBERED {
                return false;
            }
        }
        known.insert(used, now + OPENING_LIFE + 3 * SKEW_ALLOWANCE).is_none_or(|until| until <= now)
    }
}

impl Inner {
    /// The proxy that has opened the session which an agent wants a certificate for.
    pub(super) fn opened_by(
        &self,
        trust: &Trust,
        agent: HostId,
        request: &v1::CertifyDatabaseUserRequest,
        now: OffsetDateTime,
    ) -> Result<Identity, Status> {
        let denied = |problem: String| Status::permission_denied(problem);
        let Some(word) = &request.opened else {
            return Err(denied(
                "no proxy says that it has opened this session; where the proxy is of an earlier release than the \
                 authority, it has to be replaced by one of the same"
                    .to_owned(),
            ));
        };
        let opening = Opening {
            agent,
            database: &request.database,
            db_user: &request.db_user,
            db_name: &request.db_name,
            user_certificate: &request.user_certificate,
        };
        let word = OpeningWord {
            certificate: word.proxy_certificate.clone(),
            at: word.at,
            nonce: word.nonce.to_vec(),
            signature: word.signature.to_vec(),
        };
        let proxy = trust
            .verify_opening(&opening, &word, now)
            .map_err(|error| denied(format!("no proxy has opened this session: {error}")))?;
        self.check_valid(&proxy)?;
        self.current(&proxy)?;
        let Principal::Host { id, .. } = &proxy.principal else {
            return Err(denied("only a proxy opens sessions with databases".to_owned()));
        };
        if self.names.find(&id.to_string(), None).is_empty() {
            return Err(denied(
                "the proxy that has opened this session was removed from the cluster".to_owned(),
            ));
        }
        if !self.databases.openings.is_first((*id, word.nonce, request.provisioning), now) {
            return Err(denied(
                "this session has its certificate already; each is for one session that a proxy opens"
                    .to_owned(),
            ));
        }
        Ok(proxy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_used_once_for_each_sort() {
        let openings = Openings::default();
        let now = OffsetDateTime::UNIX_EPOCH;
        let (proxy, nonce) = (HostId::new(), vec![7; 16]);
        assert!(openings.is_first((proxy, nonce.clone(), false), now));
        assert!(openings.is_first((proxy, nonce.clone(), true), now));
        assert!(openings.is_first((HostId::new(), nonce.clone(), false), now));
        assert!(!openings.is_first((proxy, nonce.clone(), false), now + OPENING_LIFE));
    }
}
