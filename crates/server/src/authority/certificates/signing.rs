//! Certificates that an administrator has signed for servers and programs which cannot ask for their own.

use sallyport_access::{Identity, Principal, UserName};
use sallyport_audit::Code;
use sallyport_ca::{
    Authority as CertAuthority, CaError, CaKind, CertificateKind, DatabaseServerRequest, Issued,
    OpensshHostRequest, SpiffeId, TokenSubject, check_accepted, check_ssh_accepted, check_tls_accepted,
    issue_database_client, issue_database_server, issue_jwt, issue_jwt_svid, issue_oidc, issue_openssh_host,
    issue_openssh_user, issue_svid, issue_user, name_covers,
};
use sallyport_sal::Suite;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::{Caller, shown};
use crate::authority::certificates::register::{CertificateRegister, info};
use crate::authority::identities::logins::{Opened, OpenedBy, open_login};
use crate::authority::issuance::issued::{CertificateRecord, with_certificates};
use crate::authority::records::UserRecord;
use crate::authority::storage::storage;

const METHOD: &str = "Certificates.SignCertificate";
/// Names of a server, or audiences, in one certificate.
const MOST_NAMES: usize = 100;

/// What an authority made, before it is known how it travels.
#[derive(Default)]
struct Made {
    ssh: String,
    tls_pem: String,
    token: String,
    issued: Vec<Issued>,
}

/// Whether the suite accepts the keys that a certificate of this kind is for: the same as of users and hosts that bring their own.
fn takes(kind: CertificateKind, suite: Suite, asked: &v1::SignCertificateRequest) -> Result<(), Status> {
    let (line, spki) = (asked.ssh_public_key.as_str(), asked.tls_public_key.as_ref());
    let checked = match kind {
        CertificateKind::User => check_accepted(suite, line, spki),
        CertificateKind::OpensshUser | CertificateKind::OpensshHost => check_ssh_accepted(suite, line),
        CertificateKind::DatabaseServer | CertificateKind::AgentToDatabase | CertificateKind::Svid => {
            check_tls_accepted(suite, spki)
        }
        // Tokens have no key of their subject; others are not made by hand.
        _ => Ok(()),
    };
    checked.map_err(|error| Status::invalid_argument(error.to_string()))
}

impl CertificateRegister {
    pub(crate) async fn sign_certificate(
        &self,
        caller: &Caller,
        asked: v1::SignCertificateRequest,
    ) -> Result<v1::SignCertificateResponse, Status> {
        let bad = |text: String| Status::invalid_argument(text);
        let kind: CertificateKind =
            asked.kind.parse().map_err(|error: sallyport_ca::UnknownKind| bad(error.to_string()))?;
        if asked.names.len() > MOST_NAMES {
            return Err(bad(format!(
                "{} names in one certificate, at most {MOST_NAMES} are allowed",
                asked.names.len()
            )));
        }
        let now = OffsetDateTime::now_utc();
        let ttl = asked.ttl.as_ref().and_then(convert::duration_from_proto);
        // Until the login is known as open, nothing that ends it may come between.
        let _changing = self.identities.steady().await;
        let mut end = None;
        let identity = match kind {
            CertificateKind::User | CertificateKind::OpensshUser | CertificateKind::Jwt => {
                let (identity, until) = self.known_user(caller, &asked.subject, now).await?;
                end = until;
                Some(identity)
            }
            // Which users a database, or a third party, knows by these names is not for roles to say.
            CertificateKind::AgentToDatabase | CertificateKind::Oidc => {
                self.delegation.must_administer(caller, METHOD, &format!("sign {kind} certificates")).await?;
                None
            }
            CertificateKind::DatabaseServer | CertificateKind::OpensshHost => {
                self.check_foreign(kind, &asked.names)?;
                None
            }
            _ => None,
        };
        let ttl = self.lifetime(kind, ttl, identity.as_ref())?;
        // A user of single sign-on is one for a time: what is signed for them is good no longer.
        let ttl = end.map_or(ttl, |end: OffsetDateTime| ttl.min(end - now));
        let authorities = self.issuance.with_signer(kind.authority()).await?;
        takes(kind, authorities.suite(), &asked)?;
        let signer = authorities.signer(kind.authority())?;
        let made = self.make(kind, signer, &asked, identity.as_ref(), now, ttl)?;
        if let (CertificateKind::User, Some(identity)) = (kind, &identity)
            && let Some(user) = identity.user()
        {
            let opened = Opened::new(caller, OpenedBy::Signed(caller.name()), "", &made.issued, now);
            let step = open_login(user, identity.login_id, now + ttl, Some(opened));
            let step = step.map_err(|error| storage(&error))?;
            self.store.backend().transact(vec![step], now).await.map_err(|error| storage(&error))?;
        }
        let peers = match kind {
            CertificateKind::DatabaseServer => Some(CaKind::DbClient),
            CertificateKind::AgentToDatabase => Some(CaKind::Db),
            CertificateKind::OpensshHost => Some(CaKind::Openssh),
            CertificateKind::OpensshUser => Some(CaKind::Host),
            _ => None,
        };
        let peers = match peers {
            Some(kind) => self.issuance.with_signer(kind).await?.trust().public_keys(kind),
            None => sallyport_ca::PublicKeys::default(),
        };
        let own = authorities.trust().public_keys(kind.authority());

        let subject = made.issued.first().map(|issued| issued.subject.clone()).unwrap_or_default();
        let event = caller
            .event(Code::CertSigned)
            .message(format!("{kind} {}", shown(&subject)))
            .field("kind", kind.name())
            .field("subject", subject)
            .field("ttl_seconds", ttl.whole_seconds());
        let event = with_certificates(event, &made.issued);
        let record = |issued: &Issued| CertificateRecord {
            issued: issued.clone(),
            at: event.time,
            by: event.user.clone(),
            source: event.source.clone(),
        };
        let issued = made.issued.iter().map(|issued| info(&record(issued), None)).collect();
        let end = made.issued.iter().map(|issued| issued.valid_before).min();
        self.journal.record(vec![event]).await?;
        Ok(v1::SignCertificateResponse {
            ssh_certificate: made.ssh,
            tls_certificate_pem: made.tls_pem,
            token: made.token,
            ca_certificates_pem: own.tls,
            ca_ssh_keys: own.ssh,
            peer_certificates_pem: peers.tls,
            peer_ssh_keys: peers.ssh,
            valid_until: end.map(convert::time_to_proto),
            issued,
        })
    }

    fn make(
        &self,
        kind: CertificateKind,
        signer: &CertAuthority,
        asked: &v1::SignCertificateRequest,
        identity: Option<&Identity>,
        now: OffsetDateTime,
        ttl: time::Duration,
    ) -> Result<Made, Status> {
        let wrong = |error: CaError| Status::invalid_argument(error.to_string());
        let (line, spki) = (asked.ssh_public_key.as_str(), asked.tls_public_key.as_ref());
        let ssh = |made: sallyport_ca::SshCertificate| Made {
            ssh: made.line,
            issued: vec![made.issued],
            ..Made::default()
        };
        let tls = |made: sallyport_ca::TlsCertificate| Made {
            tls_pem: made.pem,
            issued: vec![made.issued],
            ..Made::default()
        };
        let token = |made: sallyport_ca::Token| Made {
            token: made.text,
            issued: vec![made.issued],
            ..Made::default()
        };
        let user = || identity.ok_or_else(|| Status::internal("a user is needed"));
        match kind {
            CertificateKind::User => {
                let options = self.policy.ssh_options(user()?);
                let made = issue_user(signer, user()?, line, spki, now, ttl, &options).map_err(wrong)?;
                Ok(Made { ssh: made.ssh, tls_pem: made.tls_pem, token: String::new(), issued: made.issued })
            }
            CertificateKind::OpensshUser => {
                issue_openssh_user(signer, user()?, line, now, ttl, &self.policy.ssh_options(user()?), None)
                    .map(ssh)
                    .map_err(wrong)
            }
            CertificateKind::OpensshHost => {
                let request = OpensshHostRequest { names: &asked.names, ssh_public_key: line };
                issue_openssh_host(signer, &request, now, ttl).map(ssh).map_err(wrong)
            }
            CertificateKind::DatabaseServer => {
                let request = DatabaseServerRequest { names: &asked.names, tls_spki: spki };
                issue_database_server(signer, &request, now, ttl).map(tls).map_err(wrong)
            }
            CertificateKind::AgentToDatabase => {
                issue_database_client(signer, &asked.subject, spki, now, ttl).map(tls).map_err(wrong)
            }
            CertificateKind::Svid => {
                let id = self.spiffe_id(&asked.subject)?;
                issue_svid(signer, &id, spki, now, ttl).map(tls).map_err(wrong)
            }
            CertificateKind::JwtSvid => {
                let id = self.spiffe_id(&asked.subject)?;
                issue_jwt_svid(signer, &id, &asked.names, now, ttl).map(token).map_err(wrong)
            }
            CertificateKind::Jwt => {
                let issuer = self.issuer()?;
                let subject = TokenSubject { issuer: &issuer, audience: &asked.names };
                issue_jwt(signer, subject, user()?, now, ttl).map(token).map_err(wrong)
            }
            CertificateKind::Oidc => {
                let issuer = self.issuer()?;
                let subject = TokenSubject { issuer: &issuer, audience: &asked.names };
                issue_oidc(signer, subject, &asked.subject, now, ttl).map(token).map_err(wrong)
            }
            other => Err(Status::invalid_argument(format!(
                "{other} certificates are not made by hand; their holder asks for them with its own key"
            ))),
        }
    }

    /// The lifetime that is asked for, within the policy; for a user also within the roles.
    fn lifetime(
        &self,
        kind: CertificateKind,
        asked: Option<std::time::Duration>,
        identity: Option<&Identity>,
    ) -> Result<time::Duration, Status> {
        let range = |_| Status::invalid_argument("the lifetime is out of range");
        let asked = asked.map(time::Duration::try_from).transpose().map_err(range)?;
        let policy = &self.config.lifetimes;
        let ttl = policy
            .choose(kind, asked)
            .map_err(|error| Status::invalid_argument(format!("{kind}: {error}")))?;
        let Some(Principal::User { roles, .. }) = identity.map(|identity| &identity.principal) else {
            return Ok(ttl);
        };
        let cache = self.policy.cache();
        let longest = cache
            .policies
            .login_ttl(roles, None)
            .map_err(|error| Status::invalid_argument(error.public_message()))?;
        let longest = time::Duration::try_from(longest).map_err(range)?;
        match asked {
            Some(asked) if asked > longest => Err(Status::invalid_argument(format!(
                "the roles of the user allow {} s at most",
                longest.whole_seconds()
            ))),
            _ => Ok(policy.bounded(kind, ttl.min(longest))),
        }
    }

    /// A user of the cluster with today's roles, unless a lock keeps them out, and until when they are one. The caller holds at least
    /// as much.
    async fn known_user(
        &self,
        caller: &Caller,
        name: &str,
        now: OffsetDateTime,
    ) -> Result<(Identity, Option<OffsetDateTime>), Status> {
        let name = UserName::new(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let stored =
            self.store.get::<UserRecord>(name.as_str(), now).await.map_err(|error| storage(&error))?;
        let stored = stored.ok_or_else(|| Status::not_found(format!("there is no user {name}")))?;
        self.delegation.must_hold(caller, METHOD, &stored.value).await?;
        let identity = self.identities.identity_of(&stored.value, now);
        let cache = self.policy.cache();
        match cache.policies.locked_out(&identity, &cache.locks, now) {
            Some(locked) => Err(Status::failed_precondition(locked.public_message())),
            None => Ok((identity, stored.expires)),
        }
    }

    /// Refuses names by which the cluster's own hosts are reached: one of the two would be taken for the other. In TLS
    /// that is what proxies are called in public; in SSH every host answers to its name.
    fn check_foreign(&self, kind: CertificateKind, names: &[String]) -> Result<(), Status> {
        for name in names {
            // Every proxy is `localhost` to itself, and so is every database.
            let covers = |own: &str| {
                let is_local =
                    own == "localhost" || own.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
                !is_local && name_covers(name, own)
            };
            let in_ssh = kind == CertificateKind::OpensshHost;
            if let Some(host) = self.registry.names.holder(in_ssh, &self.config.cluster, covers) {
                return Err(Status::invalid_argument(format!(
                    "{} is a name of the {} {} of this cluster; its certificate comes with its own key",
                    shown(name),
                    host.role.name(),
                    host.name
                )));
            }
        }
        Ok(())
    }

    /// A whole SPIFFE ID, or the path of one of this cluster.
    fn spiffe_id(&self, text: &str) -> Result<SpiffeId, Status> {
        let id = if text.starts_with('/') { SpiffeId::new(&self.config.cluster, text) } else { text.parse() };
        id.map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// The issuer that tokens name: where the keys can be had that verify them.
    fn issuer(&self) -> Result<String, Status> {
        sallyport_ca::jwt::issuer(&self.config.public_addr).ok_or_else(|| {
            Status::failed_precondition(
                "tokens name the cluster's public address as their issuer, and the authority knows none; set \
                 proxy.public_addr, or auth.public_addr where no proxy runs in its process",
            )
        })
    }
}
