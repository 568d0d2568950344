//! Certificates with which agents log in to databases.

use sallyport_access::{Database, DatabaseUserMode, HostId, Identity, NodeName, Principal};
use sallyport_audit::Code;
use sallyport_ca::{CaKind, CertificateKind, MIN_TTL, Trust, check_tls_accepted, issue_database_client};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use crate::authority::audit::refusals::Who;
use crate::authority::caller::{Caller, shown};
use crate::authority::catalogue::table::KnownDatabase;
use crate::authority::databases::holders::{Holder, Holding};
use crate::authority::databases::opened::{DatabaseSessions, Opened, Told};
use crate::authority::databases::openings::Use;
use crate::authority::issuance::issued::with_certificates;

/// How long an agent has to close a user whose owner may no longer come, and to end at the database what a session has left there
/// whose user's certificate has ended.
const CLOSING: time::Duration = time::Duration::minutes(5);

/// Permits of one agent for one user that are on record one by one in a minute; more are counted.
const PERMITS_ON_RECORD: u64 = 120;

/// Whom a certificate is for, and how long it may be good at most.
struct ForWhom {
    name: String,
    until: OffsetDateTime,
    /// The login of the user's certificate, and what the agent holds for it from now on; none where a user is closed.
    opened: Option<(Uuid, Holding)>,
    /// Who has opened the session by this word.
    opened_by: Option<String>,
}

impl DatabaseSessions {
    /// The user whose certificate is shown, if the session may be and was opened to this agent.
    fn for_whom(
        &self,
        trust: &Trust,
        agent: HostId,
        database: &Database,
        request: &v1::CertifyDatabaseUserRequest,
        now: OffsetDateTime,
    ) -> Result<ForWhom, Status> {
        let told = Told::to_certify(request);
        if request.renews {
            let (user, permit) = self.allowed(trust, database, &told, now)?;
            let holder = Holder {
                agent,
                login_id: user.login_id,
                database: &database.name,
                db_user: &request.db_user,
            };
            let Some(held) = self.holders.find(&holder, now) else {
                return Err(Status::permission_denied(format!(
                    "this agent has no certificate of {} as {} in {} that it could renew",
                    user.display_name(),
                    shown(&request.db_user),
                    database.name
                )));
            };
            if let Some(proxy) = &held.opened_by {
                self.may_open(proxy, &permit, now)?;
            }
            let Some(held) = held.renewed(now) else {
                return Err(Status::resource_exhausted(format!(
                    "this agent has had its certificate of {} as {} in {} renewed often enough in this minute",
                    user.display_name(),
                    shown(&request.db_user),
                    database.name
                )));
            };
            return Ok(ForWhom {
                name: user.display_name(),
                until: user.valid_before,
                opened: Some((user.login_id, held)),
                opened_by: None,
            });
        }
        let for_use = if request.provisioning { Use::Provisioning } else { Use::Certificate };
        let Opened { user, permit, by, proxy } = self.opened(trust, agent, database, &told, for_use, now)?;
        if request.provisioning && permit.options().user_mode == DatabaseUserMode::Off {
            return Err(Status::permission_denied(format!(
                "no user is made for {} in the database {}: no role says so, or the database has no admin_user",
                user.display_name(),
                database.name
            )));
        }
        Ok(ForWhom {
            name: user.display_name(),
            until: user.valid_before,
            opened: Some((user.login_id, Holding::new(now, proxy, now))),
            opened_by: Some(by),
        })
    }

    /// A database that this agent serves by the database's own record.
    fn served(&self, database: &str, id: HostId, name: &NodeName) -> Result<KnownDatabase, Status> {
        let known =
            self.databases.find(database).filter(|known| known.serves(id, name)).ok_or_else(|| {
                Status::permission_denied(format!("{name} does not serve the database {}", shown(database)))
            })?;
        // A document names its agents by name, which a second node could have been given.
        let called = self.registry.presence.find(name.as_str());
        if !known.is_static() && called.iter().any(|other| other.node.id != id) {
            return Err(Status::permission_denied(format!(
                "several nodes are called {name}, and only one of them is meant by the database {database}; remove the \
                 others (sallyport admin rm node/ID), or join this one under another name"
            )));
        }
        Ok(known)
    }

    /// Whether a session begins that a proxy has opened to this agent for a client whose TLS ends at the proxy. Each answer is
    /// for that one session.
    pub(crate) async fn permit_database_session(
        &self,
        caller: &Caller,
        agent: &Identity,
        request: &v1::PermitDatabaseSessionRequest,
    ) -> Result<v1::PermitDatabaseSessionResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let Principal::Host { id, name, .. } = &agent.principal else {
            return Err(Status::permission_denied("only agents serve databases"));
        };
        let known = self.served(&request.database, *id, name)?;
        let (authorities, told) = (self.issuance.authorities(), Told::to_permit(request));
        let database = &known.resource;
        let opened = self.opened(authorities.trust(), *id, database, &told, Use::Session, now)?;
        let event = caller
            .event(Code::DatabaseSessionPermitted)
            .user(opened.user.display_name())
            .login(request.db_user.as_str())
            .node(database.name.as_str())
            .message(format!("to {}, by the word of {}", agent.display_name(), opened.by))
            .field("db_name", request.db_name.clone())
            .field("opened_by", opened.by);
        let (who, whose) = (Who::of(caller), opened.user.display_name());
        self.journal.note_caused_times(event, who, &whose, PERMITS_ON_RECORD, 1).await?;
        Ok(v1::PermitDatabaseSessionResponse {})
    }

    /// A certificate of the db_client CA over an agent's key, for one session that was opened to this agent. The
    /// roles are asked here, too: what an agent says is not enough. Nor is the user's certificate, which every node sees
    /// that the user ever comes to.
    pub(crate) async fn certify_database_user(
        &self,
        caller: &Caller,
        agent: &Identity,
        request: &v1::CertifyDatabaseUserRequest,
    ) -> Result<v1::CertifyDatabaseUserResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let Principal::Host { id, name, .. } = &agent.principal else {
            return Err(Status::permission_denied("only agents log in to databases"));
        };
        if request.renews && request.provisioning {
            return Err(Status::invalid_argument(
                "the certificate of an account that makes users is for one session, and is not renewed",
            ));
        }
        let known = self.served(&request.database, *id, name)?;
        let authorities = self.issuance.with_signer(CaKind::DbClient).await?;
        let database = &known.resource;
        let made = (*id, database.name.clone(), request.db_user.clone());
        let user = match self.for_whom(authorities.trust(), *id, database, request, now) {
            Ok(user) => {
                if request.provisioning {
                    self.makers.remember(made, now);
                }
                user
            }
            // Who had a user made may be locked out by now, or gone: that user is to be closed.
            Err(_) if request.provisioning && self.makers.knows(&made, now) => {
                ForWhom { name: request.db_user.clone(), until: now, opened: None, opened_by: None }
            }
            Err(refused) => return Err(refused),
        };
        let admin = database.admin_user.as_ref().filter(|_| request.provisioning);
        if request.provisioning && admin.is_none() {
            return Err(Status::permission_denied(format!(
                "the database {} has no admin_user",
                database.name
            )));
        }
        let subject = admin.unwrap_or(&request.db_user);
        check_tls_accepted(authorities.suite(), &request.tls_public_key)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let longest = self.config.lifetimes.bounds(CertificateKind::AgentToDatabase).max;
        let ttl = longest.min(user.until + CLOSING - now).max(MIN_TTL);
        let signer = authorities.signer(CaKind::DbClient)?;
        let issued = issue_database_client(signer, subject, &request.tls_public_key, now, ttl)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mut event = caller
            .event(Code::CertIssued)
            .user(user.name)
            .login(subject.as_str())
            .node(database.name.as_str())
            .message(format!("for {} on the way to the database", agent.display_name()))
            .field("db_name", request.db_name.clone())
            .field("ttl_seconds", ttl.whole_seconds());
        if request.provisioning {
            event = event.field("provisioning", request.db_user.clone());
        }
        if let Some(by) = user.opened_by {
            event = event.field("opened_by", by);
        }
        if request.renews {
            event = event.field("renews", true);
        }
        self.journal.record(vec![with_certificates(event, std::slice::from_ref(&issued.issued))]).await?;
        if let Some((login_id, held)) = user.opened.filter(|_| !request.provisioning) {
            let holder = Holder { agent: *id, login_id, database: &database.name, db_user: &request.db_user };
            let held = held.until(issued.issued.valid_before);
            self.holders.remember(&holder, held, now);
        }
        Ok(v1::CertifyDatabaseUserResponse {
            valid_until: Some(convert::time_to_proto(issued.issued.valid_before)),
            tls_certificate_pem: issued.pem,
        })
    }
}
