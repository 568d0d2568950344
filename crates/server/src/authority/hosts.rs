//! Tokens, and certificates for hosts that are registered. How a host joins is in [`super::joining`].

use sallyport_access::{Bounds, HostId, HostRole, Identity, LockTarget, NodeName, Principal};
use sallyport_audit::{Code, Event};
use sallyport_ca::{CaKind, CertificateKind, HostCertificates, HostRequest, check_accepted, issue_host};
use sallyport_sal::{hash, random};
use sallyport_store::StoreError;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use super::caller::Caller;
use super::issued::with_certificates;
use super::joining::Joining;
use super::names::{Claim, canonical, public_names, registered_name};
use super::state::HostRecord;
use super::view::PAGE;
use super::{Inner, host_role, host_role_name};

/// The public part of a token is its first characters.
pub(super) const TOKEN_NAME: usize = 8;
/// Names that a host asked for in vain and that are told.
const NAMES_TOLD: usize = 32;
/// A token is remembered for so long after its end, to say "stale" and not "unknown".
pub(super) const REMEMBERED: time::Duration = time::Duration::hours(24);

/// A fresh token: its text, which is shown once, and its name.
pub(super) fn fresh_token() -> Result<(String, String, String), Status> {
    let text = random::token(20).map_err(|error| Status::internal(error.to_string()))?;
    let name = text.chars().take(TOKEN_NAME).collect();
    let hash = hash_of(&text);
    Ok((text, name, hash))
}

pub(super) fn hash_of(secret: &str) -> String {
    data_encoding::HEXLOWER.encode(&hash::sha256(secret.as_bytes()))
}

/// How long a proxy's certificates live at most, whatever hosts' may. A proxy that was taken over can keep a lock on it from agents
/// that reach the authority through it alone; it serves them no longer than this. It renews after an eighth of it
/// (`HostIdentity::renew_at`), so that it can be off, or without the authority, over a weekend.
const PROXY_TTL: time::Duration = time::Duration::days(3);

impl Inner {
    /// Certifies a host for its registered name and for `public_names`, which the caller has taken from what is stored.
    pub(super) fn certify(
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
        self.takes_keys(ssh_public_key, tls_spki)?;
        let authorities = self.authorities();
        let mut ttl = self.config.lifetimes.bounds(CertificateKind::Host).default;
        if host.role == HostRole::Proxy {
            ttl = ttl.min(PROXY_TTL);
        }
        issue_host(authorities.signer(CaKind::Host)?, &request, now, ttl)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// Whether the cluster's suite accepts a host's keys.
    pub(super) fn takes_keys(&self, ssh_public_key: &str, tls_spki: &[u8]) -> Result<(), Status> {
        check_accepted(self.authorities().suite(), ssh_public_key, tls_spki)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    pub(super) fn issued_event(
        &self,
        host: &HostRecord,
        issued: &HostCertificates,
        caller: &Caller,
    ) -> Event {
        let event = self
            .event(Code::HostCertIssued, caller)
            .user(format!("{}:{}", host_role_name(host.role), host.name))
            .node(host.name.as_str())
            .field("host_id", host.id.to_string())
            .field("ssh_serial", issued.serials.ssh.to_string())
            .field("tls_serial", issued.serials.tls.clone())
            .field("ttl_seconds", (issued.valid_before - issued.valid_after).whole_seconds());
        with_certificates(event, &issued.issued)
    }

    pub(super) fn host_answer(&self, host: &HostRecord, issued: HostCertificates) -> v1::HostCertificates {
        v1::HostCertificates {
            cluster: self.config.cluster.to_string(),
            host_id: host.id.to_string(),
            name: host.name.to_string(),
            ssh_certificate: issued.ssh,
            tls_certificate_pem: issued.tls_pem,
            trust: Some(self.trust_bundle()),
            valid_until: Some(convert::time_to_proto(issued.valid_before)),
            refused_names: Vec::new(),
        }
    }

    /// The names that a host is reached by, as an administrator or its join token has allowed them.
    fn allowed_names(&self, host: &HostRecord) -> Vec<String> {
        let known = (host.role == HostRole::OpenSsh).then(|| self.presence.get(host.id)).flatten();
        match known.as_ref().and_then(super::view::Known::openssh) {
            // An administrator may have changed them since.
            Some(server) => server.names.clone(),
            None => host.public_names.clone(),
        }
    }

    /// New certificates for a host that is still known: for the names that are stored of it, of which the host may leave
    /// some out, and for no other.
    pub(super) async fn renew(
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
            && let Some(taken) = self.names.disputed(host.id)
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
        self.note_certificates(host.id, issued.valid_before, now).await?;
        let mut event = self.issued_event(&host, &issued, caller);
        if !refused.is_empty() {
            event = event.field("names_refused", refused.clone());
        }
        self.record(vec![event]).await?;
        if host.role == HostRole::OpenSsh {
            self.with_signer(CaKind::Openssh).await?;
        }
        Ok(v1::HostCertificates { refused_names: refused, ..self.host_answer(&host, issued) })
    }

    /// A proxy or node in this process needs no token: whoever runs the authority runs it.
    pub(super) async fn issue_in_process(
        &self,
        request: v1::JoinRequest,
    ) -> Result<v1::HostCertificates, Status> {
        let now = OffsetDateTime::now_utc();
        // The authority's own listener needs a certificate as well; nobody joins as one.
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
            && self.view().locks.iter().any(|lock| lock.target == LockTarget::LoginId(host.join_id))
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
        let reserved =
            self.names.reserve(claim, None).map_err(|taken| Status::already_exists(taken.advice(role)))?;
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
    pub(super) fn asked_names(
        &self,
        role: HostRole,
        request: &v1::JoinRequest,
    ) -> Result<Vec<String>, Status> {
        match role {
            HostRole::Proxy | HostRole::OpenSsh => public_names(&request.public_names, &self.config.cluster),
            HostRole::Node | HostRole::Auth => Ok(Vec::new()),
        }
    }
}

/// Kinds whose names callers write themselves. Keys of others are the authority's own.
const NAMED: [&str; 7] = ["db", "lock", "node", "role", "session_policy", "token", "user"];

/// What the caller may read of a failing state.
pub(super) fn storage(error: &StoreError) -> Status {
    let named = |key: &str| key.split('/').next().is_some_and(|kind| NAMED.contains(&kind));
    match error {
        StoreError::NotFound { key } | StoreError::Exists { key } | StoreError::Conflict { key, .. }
            if !named(key) =>
        {
            tracing::debug!(%error, "a change was overtaken by another");
            Status::aborted("this was changed at the same moment by another call; ask again")
        }
        StoreError::NotFound { .. } => Status::not_found(error.to_string()),
        StoreError::Exists { .. } => Status::already_exists(error.to_string()),
        StoreError::Conflict { .. } => Status::aborted(error.to_string()),
        StoreError::Full { .. } => {
            tracing::error!(%error, "the state cannot be changed");
            Status::resource_exhausted(
                "the authority's disk is full: make room on it. Locks, ends of sessions and deletions still work",
            )
        }
        StoreError::NoInode { .. } => {
            tracing::error!(%error, "the state cannot be changed");
            Status::resource_exhausted(
                "the authority's disk is full, since it has no free inode (df -i): remove files from it. Locks, ends of sessions and \
                 deletions still work",
            )
        }
        other => {
            tracing::error!(error = %other, "the state cannot be used");
            Status::unavailable("the authority cannot use its state; its log says why")
        }
    }
}

/// Text of an unknown caller, short enough for a log.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(128).collect()
}
