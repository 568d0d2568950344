//! Sessions that users or proxies say they have opened, each good for one permit and one certificate of each sort.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sallyport_access::{Database, DatabaseAccount, DatabasePermit, HostId, Identity, Principal};
use sallyport_ca::{OPENING_LIFE, Opener, Opening, OpeningWord, SKEW_ALLOWANCE, Trust};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use crate::authority::Inner;

/// Words that are remembered; while there are so many, no other is taken.
const MOST_REMEMBERED: usize = 200_000;

/// What a word is used for, once each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Use {
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

/// A session as its agent tells of it.
pub(super) struct Told<'a> {
    pub(super) db_user: &'a str,
    pub(super) db_name: &'a str,
    pub(super) user_certificate: &'a [u8],
    pub(super) opened: Option<&'a v1::DatabaseOpening>,
}

impl<'a> Told<'a> {
    pub(super) fn to_certify(request: &'a v1::CertifyDatabaseUserRequest) -> Self {
        Self {
            db_user: &request.db_user,
            db_name: &request.db_name,
            user_certificate: &request.user_certificate,
            opened: request.opened.as_ref(),
        }
    }

    pub(super) fn to_permit(request: &'a v1::PermitDatabaseSessionRequest) -> Self {
        Self {
            db_user: &request.db_user,
            db_name: &request.db_name,
            user_certificate: &request.user_certificate,
            opened: request.opened.as_ref(),
        }
    }
}

/// A session that was opened, and may be.
pub(super) struct Opened {
    /// The user, as they are now.
    pub(super) user: Identity,
    pub(super) permit: DatabasePermit,
    /// Who has opened it, for the record.
    pub(super) by: String,
    /// The proxy, where it has.
    pub(super) proxy: Option<Identity>,
}

impl Inner {
    /// Whether a session may be that an agent tells of: by the user whose certificate is shown as they are now, the roles and
    /// the locks.
    pub(super) fn allowed(
        &self,
        trust: &Trust,
        database: &Database,
        told: &Told<'_>,
        now: OffsetDateTime,
    ) -> Result<(Identity, DatabasePermit), Status> {
        let user = trust
            .identify_tls(told.user_certificate, now)
            .map_err(|error| Status::permission_denied(format!("the user's certificate: {error}")))?;
        let (view, user) = (self.view(), self.current(&user)?.into_owned());
        let permit = view
            .policies
            .decide(&user, database, &DatabaseAccount::new(told.db_user, told.db_name), &view.locks, now)
            .map_err(|refusal| Status::permission_denied(refusal.public_message()))?;
        Ok((user, permit))
    }

    /// [`Self::allowed`], and by the word of who has opened the session, which is used up for this use.
    pub(super) fn opened(
        &self,
        trust: &Trust,
        agent: HostId,
        database: &Database,
        told: &Told<'_>,
        for_use: Use,
        now: OffsetDateTime,
    ) -> Result<Opened, Status> {
        // The roles first: what they refuse does not use up the word.
        let (user, permit) = self.allowed(trust, database, told, now)?;
        if told.opened.is_none_or(|word| !word.certificate.is_empty()) {
            end_to_end(&permit)?;
        }
        let (by, proxy) = self.opened_by(trust, agent, database, told, for_use, now)?;
        Ok(Opened { user, permit, by, proxy })
    }

    fn opened_by(
        &self,
        trust: &Trust,
        agent: HostId,
        database: &Database,
        told: &Told<'_>,
        for_use: Use,
        now: OffsetDateTime,
    ) -> Result<(String, Option<Identity>), Status> {
        let denied = |problem: String| Status::permission_denied(problem);
        let Some(word) = told.opened else {
            return Err(denied(
                "neither the user nor a proxy says that this session was opened; a proxy of an earlier release than the \
                 authority has to be replaced by one of the same"
                    .to_owned(),
            ));
        };
        let opening = Opening {
            agent,
            database: database.name.as_str(),
            db_user: told.db_user,
            db_name: told.db_name,
            user_certificate: told.user_certificate,
        };
        let word = OpeningWord {
            certificate: word.certificate.clone(),
            at: word.at,
            nonce: word.nonce.to_vec(),
            signature: word.signature.to_vec(),
        };
        let opener = trust
            .verify_opening(&opening, &word, now)
            .map_err(|error| denied(format!("nobody who may has opened this session: {error}")))?;
        let (whose, proxy) = match opener {
            Opener::User(user) => (user, None),
            Opener::Proxy(proxy) => {
                self.check_valid(&proxy)?;
                self.is_member(&proxy)?;
                (proxy.clone(), Some(proxy))
            }
        };
        if !self.databases.openings.is_first((whose.login_id, word.nonce, for_use), now) {
            return Err(denied(match for_use {
                Use::Session => {
                    "this session was begun already; the word of who opens one is for that one alone"
                        .to_owned()
                }
                Use::Certificate | Use::Provisioning => {
                    "this session has its certificate already; each is for one session that was opened"
                        .to_owned()
                }
            }));
        }
        Ok((whose.display_name(), proxy))
    }

    /// Whether a proxy that has opened a session may have it go on: where it is locked or was removed by now, or the roles want such
    /// sessions end to end, it may not. Its certificate of then may have ended.
    pub(super) fn may_open(
        &self,
        proxy: &Identity,
        permit: &DatabasePermit,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        end_to_end(permit)?;
        self.is_member(proxy)?;
        let view = self.view();
        match view.policies.locked_out(proxy, &view.locks, now) {
            Some(refusal) => Err(Status::permission_denied(refusal.public_message())),
            None => Ok(()),
        }
    }

    fn is_member(&self, proxy: &Identity) -> Result<(), Status> {
        let Principal::Host { id, .. } = &proxy.principal else {
            return Err(Status::permission_denied("only a proxy opens sessions with databases"));
        };
        if self.names.find(&id.to_string(), None).is_empty() {
            return Err(Status::permission_denied(
                "the proxy that has opened this session was removed from the cluster",
            ));
        }
        Ok(())
    }
}

/// Refuses a session whose TLS ends at a proxy, where the roles want it end to end.
fn end_to_end(permit: &DatabasePermit) -> Result<(), Status> {
    if !permit.options().end_to_end {
        return Ok(());
    }
    Err(Status::permission_denied(format!(
        "the roles want sessions with {} end to end (db_end_to_end: required), and this one's TLS ends at a proxy",
        permit.database()
    )))
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
