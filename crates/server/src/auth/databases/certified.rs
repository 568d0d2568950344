//! Certificates with which agents log in to databases.

use sallyport_access::{DatabaseUserMode, HostId, Identity, NodeName, Principal};
use sallyport_audit::Code;
use sallyport_ca::{CaKind, CertificateKind, MIN_TTL, issue_database_client};
use sallyport_sal::PublicKey;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use super::Known;
use crate::auth::Inner;
use crate::auth::caller::Caller;
use crate::auth::hosts::shown;
use crate::auth::issued::with_certificates;

impl Inner {
    /// A database that this agent serves by the database's own record.
    fn served(&self, database: &str, id: HostId, name: &NodeName) -> Result<Known, Status> {
        let known =
            self.databases.find(database).filter(|known| known.serves(id, name)).ok_or_else(|| {
                Status::permission_denied(format!("{name} does not serve the database {}", shown(database)))
            })?;
        // A document names its agents by name, which a second node could have been given.
        let called = self.presence.find(name.as_str());
        if !known.is_static() && called.iter().any(|other| other.node.id != id) {
            return Err(Status::permission_denied(format!(
                "several nodes are called {name}, and only one of them is meant by the database {database}; remove the \
                 others (sallyport admin rm node/ID), or join this one under another name"
            )));
        }
        Ok(known)
    }

    /// Whether this host is an agent that serves a database of this name.
    pub(in crate::auth) fn serves_database(&self, agent: &Identity, database: &str) -> bool {
        let Principal::Host { id, name, .. } = &agent.principal else { return false };
        self.databases.find(database).is_some_and(|known| known.serves(*id, name))
    }

    /// A certificate of the db_client CA over an agent's key. The roles are asked here, too: what an agent says is not
    /// enough, and the certificate of the user has to be shown.
    pub(super) async fn certify_database_user(
        &self,
        caller: &Caller,
        agent: &Identity,
        request: &v1::CertifyDatabaseUserRequest,
    ) -> Result<v1::CertifyDatabaseUserResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let Principal::Host { id, name, .. } = &agent.principal else {
            return Err(Status::permission_denied("only agents log in to databases"));
        };
        let known = self.served(&request.database, *id, name)?;
        let authorities = self.with_signer(CaKind::DbClient).await?;
        let user = authorities
            .trust()
            .identify_tls(&request.user_certificate, now)
            .map_err(|error| Status::permission_denied(format!("the user's certificate: {error}")))?;
        let view = self.view();
        let (database, db_user, db_name) = (&known.database, &request.db_user, &request.db_name);
        let permit = view
            .policies
            .decide_database(&user, database, db_user, db_name, &view.locks, now)
            .map_err(|refusal| Status::permission_denied(refusal.public_message()))?;
        let makes = permit.options().user_mode != DatabaseUserMode::Off;
        let subject = match (request.provisioning, &database.admin_user) {
            (false, _) => db_user,
            (true, Some(admin)) if makes => admin,
            (true, _) => {
                return Err(Status::permission_denied(format!(
                    "no user is made for {} in the database {}: no role says so, or the database has no admin_user",
                    user.display_name(),
                    database.name
                )));
            }
        };
        let algorithm = PublicKey::from_spki_der(&request.tls_public_key)
            .map_err(|error| Status::invalid_argument(format!("the key: {error}")))?
            .algorithm();
        if !authorities.suite().accepts(algorithm) {
            return Err(Status::invalid_argument(format!(
                "the cluster's suite {} does not accept {}",
                authorities.suite(),
                algorithm.name()
            )));
        }
        let longest = self.config.lifetimes.bounds(CertificateKind::AgentToDatabase).max;
        let ttl = longest.min(user.valid_before - now).max(MIN_TTL);
        let signer = authorities.signer(CaKind::DbClient)?;
        let made = issue_database_client(signer, subject, &request.tls_public_key, now, ttl)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mut event = self
            .event(Code::CertIssued, caller)
            .user(user.display_name())
            .login(subject.as_str())
            .node(database.name.as_str())
            .message(format!("for {} on the way to the database", agent.display_name()))
            .field("db_name", db_name.clone())
            .field("ttl_seconds", ttl.whole_seconds());
        if request.provisioning {
            event = event.field("provisioning", db_user.clone());
        }
        self.record(vec![with_certificates(event, std::slice::from_ref(&made.issued))]).await?;
        Ok(v1::CertifyDatabaseUserResponse {
            valid_until: Some(convert::time_to_proto(made.issued.valid_before)),
            tls_certificate_pem: made.pem,
        })
    }
}
