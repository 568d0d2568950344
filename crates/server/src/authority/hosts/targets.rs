//! The certificates with which proxies stand before registered OpenSSH servers.

use std::sync::Arc;

use sallyport_access::{HostRole, Identity, Login, Principal};
use sallyport_audit::Code;
use sallyport_ca::{
    CaKind, CertificateKind, HostRequest, MIN_TTL, SshOptions, check_ssh_accepted, issue_openssh_user,
    issue_target_host, keys,
};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::config::AuthConfig;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::login_words::LoginWords;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::issuance::issued::with_certificates;
use crate::authority::rotation::confirmations::Confirmations;

/// How long a proxy may stand for a server by one certificate. It renews well before.
const TARGET_TTL: time::Duration = time::Duration::hours(24);

/// How long a proxy may log in for a user by one certificate. It is needed for a login alone: what has begun goes on without.
const FOR_TARGET_TTL: time::Duration = time::Duration::minutes(5);

/// Certifies proxies for registered servers.
#[derive(Debug)]
pub(crate) struct TargetCertificates {
    config: Arc<AuthConfig>,
    journal: Arc<Journal>,
    gate: Arc<Gate>,
    issuance: Arc<Issuance>,
    registry: Arc<HostRegistry>,
    confirmations: Arc<Confirmations>,
    login_words: LoginWords,
}

impl TargetCertificates {
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        journal: &Arc<Journal>,
        gate: &Arc<Gate>,
        issuance: &Arc<Issuance>,
        registry: &Arc<HostRegistry>,
        confirmations: &Arc<Confirmations>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
            issuance: Arc::clone(issuance),
            registry: Arc::clone(registry),
            confirmations: Arc::clone(confirmations),
            login_words: LoginWords::default(),
        })
    }

    /// A host certificate for the name of a registered server, over a proxy's key.
    pub(crate) async fn certify_target(
        &self,
        caller: &Caller,
        identity: &Identity,
        request: &v1::CertifyTargetRequest,
    ) -> Result<v1::CertifyTargetResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let target = self.registry.registered(&request.node_id)?;
        let authorities = self.issuance.authorities();
        let wrong = |error: sallyport_ca::CaError| Status::invalid_argument(error.to_string());
        check_ssh_accepted(authorities.suite(), &request.ssh_public_key).map_err(wrong)?;
        let names = target.openssh().map(|openssh| openssh.names.clone()).unwrap_or_default();
        let asked = HostRequest {
            id: target.node.id,
            name: &target.node.name,
            role: HostRole::OpenSsh,
            join_id: identity.login_id,
            public_names: &names,
            ssh_public_key: &request.ssh_public_key,
            tls_spki: &[],
        };
        let ttl = TARGET_TTL.min(self.config.lifetimes.bounds(CertificateKind::Host).max);
        let made = issue_target_host(authorities.signer(CaKind::Host)?, &asked, now, ttl).map_err(wrong)?;
        let event = caller
            .event(Code::HostCertIssued)
            .user(identity.display_name())
            .node(target.node.name.as_str())
            .message("for a proxy that stands before the server")
            .field("host_id", target.node.id.to_string())
            .field("ttl_seconds", ttl.whole_seconds());
        self.journal.record(vec![with_certificates(event, std::slice::from_ref(&made.issued))]).await?;
        Ok(v1::CertifyTargetResponse {
            ssh_certificate: made.line,
            valid_until: Some(convert::time_to_proto(made.issued.valid_before)),
        })
    }

    /// A certificate of the openssh CA for a user's login on a registered server, over a proxy's key. The roles are
    /// asked here, too: what a proxy says is not enough.
    pub(crate) async fn certify_for_target(
        &self,
        caller: &Caller,
        proxy: &Identity,
        request: &v1::CertifyForTargetRequest,
    ) -> Result<v1::CertifyForTargetResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let target = self.registry.registered(&request.node_id)?;
        let login =
            Login::new(&request.login).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let wrong = |error: sallyport_ca::CaError| Status::invalid_argument(error.to_string());
        let user = keys::certificate(&request.user_certificate).map_err(wrong)?;
        let authorities = self.issuance.with_signer(CaKind::Openssh).await?;
        let user = authorities
            .trust()
            .verify_user_ssh(&user, now)
            .map_err(|error| Status::permission_denied(format!("the user's certificate: {error}")))?;
        let (mut user, permit) = self.gate.permit_shown(&user, &target.node, &login, now)?;
        check_ssh_accepted(authorities.suite(), &request.ssh_public_key).map_err(wrong)?;
        let options = permit.options();
        // After the roles: what they refuse does not use up the word.
        let asked = (&target.node, login.as_str());
        let word = self.login_words.take(
            authorities.trust(),
            &self.config.cluster,
            asked,
            &request.user_certificate,
            request.word.as_ref(),
            now,
        );
        let by = match word {
            Ok(()) => user.display_name(),
            Err(problem) if options.require_login_word => {
                return Err(Status::permission_denied(format!(
                    "the roles of {} want the word of their own program for this login (require_login_word), and {problem}; \
                     connect with sallyport ssh, or with ssh as sallyport config writes it",
                    user.display_name()
                )));
            }
            Err(_) => proxy.display_name(),
        };
        let (tcp, sockets) = (options.port_forwarding, options.stream_local_forwarding);
        let allowed = SshOptions {
            permit_pty: true,
            port_forwarding: tcp.local || tcp.remote || sockets.local || sockets.remote,
            agent_forwarding: options.forward_agent,
            x11_forwarding: options.x11_forwarding,
        };
        let ttl = FOR_TARGET_TTL.min(user.valid_before - now).max(MIN_TTL);
        let Principal::User { logins, .. } = &mut user.principal else {
            return Err(Status::permission_denied("only users log in to servers"));
        };
        *logins = vec![login.clone()];
        let signer = authorities.signer(CaKind::Openssh)?;
        // Of servers that joined with an earlier release, sshd compares the login alone.
        let only_at = self.confirmations.takes_own_logins(target.node.id).then_some(target.node.id);
        let made = issue_openssh_user(signer, &user, &request.ssh_public_key, now, ttl, &allowed, only_at)
            .map_err(wrong)?;
        let event = caller
            .event(Code::CertIssued)
            .user(user.display_name())
            .login(login.as_str())
            .node(target.node.name.as_str())
            .message(format!("for {} on the way to the server", proxy.display_name()))
            .field("ttl_seconds", ttl.whole_seconds())
            .field("word_of", by);
        self.journal.record(vec![with_certificates(event, std::slice::from_ref(&made.issued))]).await?;
        Ok(v1::CertifyForTargetResponse {
            ssh_certificate: made.line,
            valid_until: Some(convert::time_to_proto(made.issued.valid_before)),
        })
    }
}
