//! Sessions that users or proxies say that they have opened, as their agents tell of them.

use std::sync::Arc;

use sallyport_access::{Database, DatabaseAccount, DatabasePermit, HostId, Identity, Principal};
use sallyport_ca::{Opener, Opening, OpeningWord, Trust};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::catalogue::register::DatabaseRegister;
use crate::authority::config::AuthConfig;
use crate::authority::databases::holders::Holders;
use crate::authority::databases::makers::Makers;
use crate::authority::databases::openings::{Openings, Use};
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::issuance::in_force::Issuance;

/// A session as its agent tells of it.
pub(crate) struct Told<'a> {
    pub(crate) db_user: &'a str,
    pub(crate) db_name: &'a str,
    pub(crate) user_certificate: &'a [u8],
    pub(crate) opened: Option<&'a v1::DatabaseOpening>,
}

impl<'a> Told<'a> {
    pub(crate) fn to_certify(request: &'a v1::CertifyDatabaseUserRequest) -> Self {
        Self {
            db_user: &request.db_user,
            db_name: &request.db_name,
            user_certificate: &request.user_certificate,
            opened: request.opened.as_ref(),
        }
    }

    pub(crate) fn to_permit(request: &'a v1::PermitDatabaseSessionRequest) -> Self {
        Self {
            db_user: &request.db_user,
            db_name: &request.db_name,
            user_certificate: &request.user_certificate,
            opened: request.opened.as_ref(),
        }
    }
}

/// A session that was opened, and may be.
pub(crate) struct Opened {
    /// The user, as they are now.
    pub(crate) user: Identity,
    pub(crate) permit: DatabasePermit,
    /// Who has opened it, for the record.
    pub(crate) by: String,
    /// The proxy, where it has.
    pub(crate) proxy: Option<Identity>,
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

/// Permits sessions with databases and certifies agents for them.
#[derive(Debug)]
pub(crate) struct DatabaseSessions {
    pub(super) config: Arc<AuthConfig>,
    pub(super) journal: Arc<Journal>,
    pub(super) gate: Arc<Gate>,
    pub(super) issuance: Arc<Issuance>,
    pub(super) registry: Arc<HostRegistry>,
    pub(super) databases: Arc<DatabaseRegister>,
    pub(super) makers: Makers,
    pub(super) holders: Holders,
    pub(super) openings: Openings,
}

impl DatabaseSessions {
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        journal: &Arc<Journal>,
        gate: &Arc<Gate>,
        issuance: &Arc<Issuance>,
        registry: &Arc<HostRegistry>,
        databases: &Arc<DatabaseRegister>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
            issuance: Arc::clone(issuance),
            registry: Arc::clone(registry),
            databases: Arc::clone(databases),
            makers: Makers::default(),
            holders: Holders::default(),
            openings: Openings::default(),
        })
    }

    /// Whether a session may be that an agent tells of: by the user whose certificate is shown as they are now, the roles and
    /// the locks.
    pub(crate) fn allowed(
        &self,
        trust: &Trust,
        database: &Database,
        told: &Told<'_>,
        now: OffsetDateTime,
    ) -> Result<(Identity, DatabasePermit), Status> {
        let user = trust
            .identify_tls(told.user_certificate, now)
            .map_err(|error| Status::permission_denied(format!("the user's certificate: {error}")))?;
        let account = DatabaseAccount::new(told.db_user, told.db_name);
        self.gate.permit_shown(&user, database, &account, now)
    }

    /// [`Self::allowed`], and by the word of who has opened the session, which is used up for this use.
    pub(crate) fn opened(
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
        let opener = trust.verify_opening(&opening, &word, now).map_err(|error| {
            denied(format!(
                "neither the user nor a proxy of this cluster is proven to have opened this session: {error}"
            ))
        })?;
        let (whose, proxy) = match opener {
            Opener::User(user) => (user, None),
            Opener::Proxy(proxy) => {
                self.gate.check_valid(&proxy)?;
                self.is_member(&proxy)?;
                (proxy.clone(), Some(proxy))
            }
        };
        if !self.openings.is_first((whose.login_id, word.nonce, for_use), now) {
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
    pub(crate) fn may_open(
        &self,
        proxy: &Identity,
        permit: &DatabasePermit,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        end_to_end(permit)?;
        self.is_member(proxy)?;
        self.gate.check_locks(proxy, now)
    }

    fn is_member(&self, proxy: &Identity) -> Result<(), Status> {
        let Principal::Host { id, .. } = &proxy.principal else {
            return Err(Status::permission_denied("only a proxy opens sessions with databases"));
        };
        if self.registry.names.find(&id.to_string(), None).is_empty() {
            return Err(Status::permission_denied(
                "the proxy that has opened this session was removed from the cluster",
            ));
        }
        Ok(())
    }
}
