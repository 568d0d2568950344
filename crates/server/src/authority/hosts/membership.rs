//! Certificates for hosts that are registered: given, renewed, and for the hosts of the authority's own process. How another host
//! joins is in [`super::joining`].

use std::sync::Arc;

use sallyport_access::{Bounds, HostId, HostRole, Identity, Lock, LockTarget, NodeName, Principal};
use sallyport_audit::{Code, Event};
use sallyport_ca::{CaKind, CertificateKind, HostCertificates, HostRequest, SKEW_ALLOWANCE, issue_host};
use sallyport_store::{Op, Store, StoreError, typed};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::catalogue::register::{Catalogue, DatabaseRegister};
use crate::authority::config::AuthConfig;
use crate::authority::gate::guesses::Guesses;
use crate::authority::hosts::names::{Claim, canonical, public_names, registered_name};
use crate::authority::hosts::presence::KnownNode;
use crate::authority::hosts::registry::{HostRegistry, host_role};
use crate::authority::hosts::servers::Servers;
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::Logins;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::issuance::issued::with_certificates;
use crate::authority::policy::Policy;
use crate::authority::records::{HostRecord, LockRecord, NodeRecord};
use crate::authority::rotation::confirmations::Confirmations;
use crate::authority::storage::{PAGE, storage};

/// Names that a host asked for in vain and that are told.
const NAMES_TOLD: usize = 32;

/// How long a proxy's certificates live at most, whatever hosts' may. A proxy that was taken over can keep a lock on it from agents
/// that reach the authority through it alone; it serves them no longer than this. It renews after an eighth of it
/// (`HostIdentity::renew_at`), so that it can be off, or without the authority, over a weekend.
const PROXY_TTL: time::Duration = time::Duration::days(3);

/// A host that is about to be registered.
pub(crate) struct Joining {
    pub(crate) host: HostRecord,
    /// For a stock server, what is registered of it.
    pub(crate) server: Option<NodeRecord>,
    /// The host whose place it takes.
    pub(crate) replaced: Option<HostRecord>,
}

/// Which hosts belong to the cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) guesses: Arc<Guesses>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) logins: Arc<Logins>,
    pub(super) issuance: Arc<Issuance>,
    pub(super) confirmations: Arc<Confirmations>,
    pub(super) registry: Arc<HostRegistry>,
    pub(super) databases: Arc<DatabaseRegister>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) servers: Arc<Servers>,
}

impl Membership {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        guesses: &Arc<Guesses>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        logins: &Arc<Logins>,
        issuance: &Arc<Issuance>,
        confirmations: &Arc<Confirmations>,
        registry: &Arc<HostRegistry>,
        databases: &Arc<DatabaseRegister>,
        catalogue: &Arc<Catalogue>,
        servers: &Arc<Servers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            guesses: Arc::clone(guesses),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            logins: Arc::clone(logins),
            issuance: Arc::clone(issuance),
            confirmations: Arc::clone(confirmations),
            registry: Arc::clone(registry),
            databases: Arc::clone(databases),
            catalogue: Arc::clone(catalogue),
            servers: Arc::clone(servers),
        })
    }

    /// Certifies a host for its registered name and for `public_names`, which the caller has taken from what is stored.
    pub(crate) fn certify(
        &self,
        host: &HostRecord,
        ssh_public_key: &str,
        tls_spki: &[u8],
        public_names: &[String],
        now: OffsetDateTime,
    ) -> Result<HostCertificates, Status> {
        let request = HostRequest {
            id: host.id,
            name: &host.name,
            role: host.role,
            join_id: host.join_id,
            public_names,
            ssh_public_key,
            tls_spki,
        };
        self.issuance.takes_keys(ssh_public_key, tls_spki)?;
        let authorities = self.issuance.authorities();
        let mut ttl = self.config.lifetimes.bounds(CertificateKind::Host).default;
        if host.role == HostRole::Proxy {
            ttl = ttl.min(PROXY_TTL);
        }
        issue_host(authorities.signer(CaKind::Host)?, &request, now, ttl)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    pub(crate) fn issued_event(
        &self,
        host: &HostRecord,
        issued: &HostCertificates,
        caller: &Caller,
    ) -> Event {
        let event = caller
            .event(Code::HostCertIssued)
            .user(format!("{}:{}", host.role.name(), host.name))
            .node(host.name.as_str())
            .field("host_id", host.id.to_string())
            .field("ssh_serial", issued.serials.ssh.to_string())
            .field("tls_serial", issued.serials.tls.clone())
            .field("ttl_seconds", (issued.valid_before - issued.valid_after).whole_seconds());
        with_certificates(event, &issued.issued)
    }

    pub(crate) fn host_answer(&self, host: &HostRecord, issued: HostCertificates) -> v1::HostCertificates {
        v1::HostCertificates {
            cluster: self.config.cluster.to_string(),
            host_id: host.id.to_string(),
            name: host.name.to_string(),
            ssh_certificate: issued.ssh,
            tls_certificate_pem: issued.tls_pem,
            trust: Some(self.issuance.trust_bundle()),
            valid_until: Some(convert::time_to_proto(issued.valid_before)),
            refused_names: Vec::new(),
        }
    }

    /// The names that a host is reached by, as an administrator or its join token has allowed them.
    fn allowed_names(&self, host: &HostRecord) -> Vec<String> {
        let known = (host.role == HostRole::OpenSsh).then(|| self.registry.presence.get(host.id)).flatten();
        match known.as_ref().and_then(KnownNode::openssh) {
            // An administrator may have changed them since.
            Some(server) => server.names.clone(),
            None => host.public_names.clone(),
        }
    }

    /// New certificates for a host that is still known: for the names that are stored of it, of which the host may leave
    /// some out, and for no other.
    pub(crate) async fn renew(
        &self,
        caller: &Caller,
        identity: &Identity,
        request: v1::RenewHostRequest,
    ) -> Result<v1::HostCertificates, Status> {
        let Principal::Host { id, .. } = &identity.principal else {
            return Err(Status::permission_denied("only hosts renew host certificates"));
        };
        let now = OffsetDateTime::now_utc();
        let stored =
            self.store.get::<HostRecord>(&id.to_string(), now).await.map_err(|error| storage(&error))?;
        let Some(stored) = stored.filter(|stored| stored.value.join_id == identity.login_id) else {
            return Err(Status::permission_denied(
                "this host was removed from the cluster; join again with a new token: sallyport admin tokens add",
            ));
        };
        let host = stored.value;
        // Hosts that joined earlier can have names that are refused today.
        if let Err(confusing) = registered_name(host.role, host.name.as_str(), &self.config.cluster)
            && let Some(taken) = self.registry.names.disputed(host.id)
        {
            return Err(Status::permission_denied(format!(
                "{}, and {taken}; join again under another name: sallyport admin tokens add",
                confusing.message()
            )));
        }
        let mut names = self.allowed_names(&host);
        let is_among = |name: &str, of: &[String]| of.iter().any(|one| canonical(one) == canonical(name));
        let refused: Vec<String> = request
            .public_names
            .iter()
            .filter(|asked| host.role != HostRole::Node && !is_among(asked, &names))
            .map(|asked| shown(asked))
            .take(NAMES_TOLD)
            .collect();
        names.retain(|name| is_among(name, &request.public_names));
        let issued = self.certify(&host, &request.ssh_public_key, &request.tls_public_key, &names, now)?;
        self.confirmations.note_certificates(host.id, issued.valid_before, now).await?;
        let mut event = self.issued_event(&host, &issued, caller);
        if !refused.is_empty() {
            event = event.field("names_refused", refused.clone());
        }
        self.journal.record(vec![event]).await?;
        if host.role == HostRole::OpenSsh {
            self.issuance.with_signer(CaKind::Openssh).await?;
        }
        Ok(v1::HostCertificates { refused_names: refused, ..self.host_answer(&host, issued) })
    }

    /// A proxy or node in this process needs no token: the authority's operator runs it.
    pub(crate) async fn issue_in_process(
        &self,
        request: v1::JoinRequest,
    ) -> Result<v1::HostCertificates, Status> {
        let now = OffsetDateTime::now_utc();
        // The authority's own listener needs a certificate as well; no host joins as one.
        let role = match request.role.as_str() {
            "auth" => HostRole::Auth,
            other => {
                host_role(other).ok_or_else(|| Status::invalid_argument("the role is node, proxy or auth"))?
            }
        };
        let name = registered_name(role, &request.name, &self.config.cluster)?;
        let mut known = self.in_process(role, &name, now).await?;
        // A denied certificate of this host must not keep the host itself out for ever: it begins anew.
        if let Some(host) = &mut known
            && self.policy.cache().locks.iter().any(|lock| lock.target == LockTarget::LoginId(host.join_id))
        {
            host.join_id = Uuid::new_v4();
        }
        let host = known.unwrap_or_else(|| HostRecord {
            id: HostId::new(),
            name,
            role,
            join_id: Uuid::new_v4(),
            in_process: true,
            labels: std::collections::BTreeMap::new(),
            public_names: Vec::new(),
            bounds: Bounds::default(),
        });
        // Its configuration is the administrator's.
        let public_names = self.asked_names(role, &request)?;
        let host = HostRecord { public_names, bounds: Bounds::none(), ..host };
        let claim = Claim::of(&host, &self.config.cluster);
        let reserved = self
            .registry
            .names
            .reserve(claim, None)
            .map_err(|taken| Status::already_exists(taken.advice(role)))?;
        let joining = Joining { host, server: None, replaced: None };
        let answer = self.admit(&Caller::LocalAdmin, joining, &request, now).await?;
        reserved.keep();
        Ok(answer)
    }

    /// The host of this process with a role and name, from an earlier start.
    async fn in_process(
        &self,
        role: HostRole,
        name: &NodeName,
        now: OffsetDateTime,
    ) -> Result<Option<HostRecord>, Status> {
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list::<HostRecord>(after.as_deref(), PAGE, now).await;
            let page = page.map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { return Ok(None) };
            after = Some(last.name.clone());
            let mut hosts = page.into_iter().map(|stored| stored.value);
            let found = hosts.find(|host| host.in_process && host.role == role && host.name == *name);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// The names that a proxy or a server asks to be reached by; a node's are not looked at.
    pub(crate) fn asked_names(
        &self,
        role: HostRole,
        request: &v1::JoinRequest,
    ) -> Result<Vec<String>, Status> {
        match role {
            HostRole::Proxy | HostRole::OpenSsh => public_names(&request.public_names, &self.config.cluster),
            HostRole::Node | HostRole::Auth => Ok(Vec::new()),
        }
    }

    /// Stores a host and certifies it, and lets go of the one that it replaces.
    pub(crate) async fn admit(
        &self,
        caller: &Caller,
        joining: Joining,
        request: &v1::JoinRequest,
        now: OffsetDateTime,
    ) -> Result<v1::HostCertificates, Status> {
        let Joining { host, server, replaced } = joining;
        let issued =
            self.certify(&host, &request.ssh_public_key, &request.tls_public_key, &host.public_names, now)?;
        let id = host.id.to_string();
        let mut steps = Vec::new();
        let mut events = Vec::new();
        if let Some(old) = &replaced {
            let (removal, event) = self.replace(caller, old, &host, now)?;
            steps.extend(removal);
            events.extend(event);
        }
        let at = steps.len();
        steps.push(typed::put(&id, &host, None).map_err(|error| storage(&error))?);
        let node = NodeRecord {
            id: host.id,
            name: host.name.clone(),
            labels: host.labels.clone().into_iter().collect(),
            version: String::new(),
            os_user: String::new(),
            fixed: host.labels.clone(),
            openssh: None,
            databases_end_to_end: false,
            kinds: Vec::new(),
        };
        let is_new_node = host.role == HostRole::Node && self.registry.presence.get(host.id).is_none();
        let node = server.or_else(|| is_new_node.then_some(node));
        if let Some(node) = &node {
            steps.push(typed::put(&id, node, None).map_err(|error| storage(&error))?);
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        let revision = revisions.get(at).copied().unwrap_or_default();
        if let Some(old) = &replaced {
            self.identities.remove_host(old.id, revision);
        }
        self.identities.put_host(&host, revision);
        self.confirmations.note_certificates(host.id, issued.valid_before, now).await?;
        if let Some(old) = &replaced {
            self.let_go(caller, old, host.id, now).await?;
        }
        if let Some(node) = node {
            self.registry.presence.put(node);
        }
        let joined = caller
            .event(Code::NodeJoined)
            .user(format!("{}:{}", host.role.name(), host.name))
            .node(host.name.as_str())
            .field("host_id", id.clone())
            .field("role", host.role.name())
            .field("in_process", host.in_process);
        events.extend([joined, self.issued_event(&host, &issued, caller)]);
        self.journal.record(events).await?;
        if host.role == HostRole::OpenSsh {
            self.issuance.with_signer(CaKind::Openssh).await?;
        }
        Ok(self.host_answer(&host, issued))
    }

    /// Removes the host that another one replaces, and locks its certificates: the steps, and what is said of them.
    fn replace(
        &self,
        caller: &Caller,
        old: &HostRecord,
        by: &HostRecord,
        now: OffsetDateTime,
    ) -> Result<(Vec<Op>, Vec<Event>), Status> {
        let failed = |error: StoreError| storage(&error);
        let longest = self.config.lifetimes.bounds(CertificateKind::Host).max;
        let target = match old.id == by.id {
            // A registered server keeps its id; its certificates go back to another join.
            true => LockTarget::LoginId(old.join_id),
            false => LockTarget::host(old.id),
        };
        let lock = Lock {
            name: format!("replaced-{}", old.join_id),
            target,
            message: format!("the {} {} was replaced", old.role.name(), old.name),
            // Its last certificate has ended by then.
            expires: Some(now + longest + 2 * SKEW_ALLOWANCE),
        };
        let yaml = lock.to_yaml();
        let record = LockRecord { yaml: yaml.clone() };
        let mut steps = vec![typed::put(&lock.name, &record, lock.expires).map_err(failed)?];
        if old.id != by.id {
            let id = old.id.to_string();
            steps.push(typed::delete::<HostRecord>(&id, None));
            if self.registry.presence.get(old.id).is_some() {
                steps.push(typed::delete::<NodeRecord>(&id, None));
            }
        }
        let replaced = caller
            .event(Code::NodeReplaced)
            .user(format!("{}:{}", by.role.name(), by.name))
            .node(by.name.as_str())
            .message(format!("{} takes the place of {}", by.id, old.id))
            .field("host_id", by.id.to_string())
            .field("replaced_host_id", old.id.to_string());
        let locked = caller
            .event(Code::LockCreated)
            .message(format!("lock/{}", lock.name))
            .field("name", lock.name.clone())
            .field("yaml", yaml);
        Ok((steps, vec![replaced, locked]))
    }

    /// Forgets a host that was replaced; the lock on it is in force from here on.
    async fn let_go(
        &self,
        caller: &Caller,
        old: &HostRecord,
        by: HostId,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        self.policy.refresh_after("lock").await?;
        if old.id != by {
            self.registry.presence.remove(old.id);
            self.registry.names.release(old.id);
            self.databases.forget_reporter(&caller.name(), old.id, now).await?;
            self.catalogue.forget_reporter(&caller.name(), old.id, now).await?;
        }
        self.confirmations.look_again();
        Ok(())
    }
}
