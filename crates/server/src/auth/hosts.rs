//! Tokens, and certificates for hosts.

use sallyport_access::{HostId, HostRole, Identity, Labels, LockTarget, NodeName, Principal};
use sallyport_audit::{Code, Event};
use sallyport_ca::{CaKind, CertificateKind, HostCertificates, HostRequest, check_accepted, issue_host};
use sallyport_sal::{constant_time_eq, hash, random};
use sallyport_store::{StoreError, typed};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use super::caller::Caller;
use super::issued::with_certificates;
use super::state::{HostRecord, NodeRecord, TokenRecord};
use super::view::PAGE;
use super::{Inner, host_role, host_role_name};
use crate::backoff::chance;

/// The public part of a token is its first characters.
pub(super) const TOKEN_NAME: usize = 8;
/// Hosts that join with one token at the same moment get its uses one after the other: a whole rack may.
const JOIN_ATTEMPTS: usize = 500;
const JOIN_PAUSE: std::time::Duration = std::time::Duration::from_millis(40);
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

/// What an answer to a joining host may say, and what the log says.
struct JoinRefusal {
    status: Status,
    reason: &'static str,
}

impl Inner {
    pub(super) async fn join(
        &self,
        caller: &Caller,
        request: v1::JoinRequest,
    ) -> Result<v1::HostCertificates, Status> {
        let now = OffsetDateTime::now_utc();
        let outcome = self.try_join(caller, &request, now).await;
        match outcome {
            Ok(answer) => Ok(answer),
            Err(refusal) => {
                let event = self
                    .event(Code::JoinRefused, caller)
                    .node(shown(&request.name))
                    .message(refusal.status.message())
                    .field("reason", refusal.reason)
                    .field("role", shown(&request.role));
                self.note_caused(caller, event, refusal.reason).await?;
                Err(refusal.status)
            }
        }
    }

    async fn try_join(
        &self,
        caller: &Caller,
        request: &v1::JoinRequest,
        now: OffsetDateTime,
    ) -> Result<v1::HostCertificates, JoinRefusal> {
        let refuse = |reason, status| JoinRefusal { status, reason };
        if let Some(address) = caller.address()
            && self.guesses.is_barred(address, now)
        {
            return Err(refuse(
                "too many attempts",
                Status::resource_exhausted("too many failed attempts from this address; try again later"),
            ));
        }
        let role = host_role(&request.role).ok_or_else(|| {
            refuse(
                "role",
                Status::invalid_argument(format!(
                    "{:?} is not a role of a host; expected node, proxy or openssh",
                    shown(&request.role)
                )),
            )
        })?;
        let name = NodeName::new(request.name.clone())
            .map_err(|error| refuse("name", Status::invalid_argument(error.to_string())))?;
        let token = self.spend(request, role, now).await;
        let token = match token {
            Ok(token) => token,
            Err(refusal) => {
                if let Some(address) = caller.address() {
                    self.guesses.note(address, now);
                }
                return Err(refusal);
            }
        };
        let labels: Labels = token.labels.clone().into_iter().collect();
        let server = match role {
            HostRole::OpenSsh => {
                let server = self.joining_server(request, &name, labels, now).await;
                Some(server.map_err(|status| refuse("server", status))?)
            }
            _ => None,
        };
        let host = HostRecord {
            id: server.as_ref().map_or_else(HostId::new, |server| server.id),
            name,
            role,
            join_id: Uuid::new_v4(),
            in_process: false,
            labels: token.labels,
            public_names: public_names(role, request),
        };
        let answer = self
            .admit(caller, host, server, request, now)
            .await
            .map_err(|status| refuse("certificates", status))?;
        Ok(answer)
    }

    /// Takes one use of a token, in one step: of two hosts that come at once with a token for one, one is refused.
    async fn spend(
        &self,
        request: &v1::JoinRequest,
        role: HostRole,
        now: OffsetDateTime,
    ) -> Result<TokenRecord, JoinRefusal> {
        let refuse =
            |reason, text: &str| JoinRefusal { status: Status::permission_denied(text.to_owned()), reason };
        let next = "make a new one: sallyport admin tokens add";
        let name: String = request.token.chars().take(TOKEN_NAME).collect();
        for attempt in 0..JOIN_ATTEMPTS {
            if attempt > 0 {
                // Of those that join at this moment one got ahead; they shall not all try again at once.
                tokio::time::sleep(JOIN_PAUSE.mul_f64(chance())).await;
            }
            let stored = self
                .store
                .get::<TokenRecord>(&name, now)
                .await
                .map_err(|error| JoinRefusal { status: storage(&error), reason: "state" })?;
            let Some(stored) = stored.filter(|stored| {
                constant_time_eq(stored.value.hash.as_bytes(), hash_of(&request.token).as_bytes())
            }) else {
                return Err(refuse("wrong token", &format!("this token is not known; {next}")));
            };
            let mut token = stored.value;
            if token.expires <= now {
                return Err(refuse("stale token", &format!("this token has expired; {next}")));
            }
            if token.role != role {
                let text = format!(
                    "this token is for a {}, not a {}",
                    host_role_name(token.role),
                    host_role_name(role)
                );
                return Err(refuse("token for another role", &text));
            }
            if token.uses_left == 0 {
                return Err(refuse("spent token", &format!("this token has been used; {next}")));
            }
            // Asked before the token is spent, so that a better name can be tried with it.
            if let Some(taken) = self
                .collision(role, request, now)
                .await
                .map_err(|error| JoinRefusal { status: storage(&error), reason: "state" })?
            {
                return Err(JoinRefusal { status: Status::already_exists(taken), reason: "name" });
            }
            token.uses_left -= 1;
            match self.store.update(&name, stored.revision, &token, stored.expires, now).await {
                Ok(_) => return Ok(token),
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
                Err(error) => return Err(JoinRefusal { status: storage(&error), reason: "state" }),
            }
        }
        Err(refuse("contention", "too many hosts join with this token at this moment; try again"))
    }

    /// Why a host may not have the names that it asks for, if it may not. The name of a node is a principal of its
    /// host certificate: one called like a proxy could pass for it before everybody's `ssh -J`.
    pub(super) async fn collision(
        &self,
        role: HostRole,
        request: &v1::JoinRequest,
        now: OffsetDateTime,
    ) -> Result<Option<String>, StoreError> {
        let name = request.name.as_str();
        let serves = matches!(role, HostRole::Node | HostRole::OpenSsh);
        if serves && (name == "localhost" || name.parse::<std::net::IpAddr>().is_ok()) {
            return Ok(Some(format!("a node may not be called {name}; give it another name")));
        }
        let cluster = self.config.cluster.as_str();
        let mut after = None::<String>;
        loop {
            let page = self.store.list::<HostRecord>(after.as_deref(), PAGE, now).await?;
            for host in page.iter().map(|stored| &stored.value) {
                let taken = match (role, host.role) {
                    (HostRole::Node | HostRole::OpenSsh, HostRole::Proxy) => {
                        host.public_names.iter().any(|public| {
                            public.eq_ignore_ascii_case(name)
                                || request.public_names.iter().any(|other| public.eq_ignore_ascii_case(other))
                                || public.strip_suffix(cluster).and_then(|rest| rest.strip_suffix('.'))
                                    == Some(name)
                        })
                    }
                    // What a server is called besides its name may not be what the cluster calls another host.
                    (HostRole::OpenSsh, _) => {
                        let full = format!("{}.{cluster}", host.name);
                        let own = [host.name.as_str(), full.as_str()];
                        host.name.as_str() != name
                            && request.public_names.iter().any(|public| {
                                own.iter().any(|own| public.eq_ignore_ascii_case(own))
                                    || *public == host.id.to_string()
                            })
                    }
                    (HostRole::Proxy, HostRole::Node | HostRole::OpenSsh) => {
                        request.public_names.iter().any(|public| {
                            public.eq_ignore_ascii_case(host.name.as_str())
                                || *public == format!("{}.{cluster}", host.name)
                        })
                    }
                    _ => false,
                };
                if taken {
                    return Ok(Some(match role {
                        HostRole::Node => format!(
                            "a proxy is reached by the name {name}, so no node may have it; give it another with node.name"
                        ),
                        HostRole::OpenSsh => format!(
                            "{} {} is reached by a name of {name}, so no server may have it; give it other names",
                            host_role_name(host.role),
                            host.name
                        ),
                        _ => format!(
                            "there is a node called {}, so no proxy may be reached by that name; change proxy.public_addr",
                            host.name
                        ),
                    }));
                }
            }
            match page.into_iter().last() {
                Some(last) => after = Some(last.name),
                None => return Ok(None),
            }
        }
    }

    /// Stores a host and certifies it.
    async fn admit(
        &self,
        caller: &Caller,
        host: HostRecord,
        server: Option<NodeRecord>,
        request: &v1::JoinRequest,
        now: OffsetDateTime,
    ) -> Result<v1::HostCertificates, Status> {
        let issued = self.certify(
            &host,
            &request.ssh_public_key,
            &request.tls_public_key,
            &request.public_names,
            now,
        )?;
        let id = host.id.to_string();
        let mut steps = vec![typed::put(&id, &host, None).map_err(|error| storage(&error))?];
        let node = NodeRecord {
            id: host.id,
            name: host.name.clone(),
            labels: host.labels.clone().into_iter().collect(),
            version: String::new(),
            os_user: String::new(),
            fixed: host.labels.clone(),
            openssh: None,
        };
        let is_new_node = host.role == HostRole::Node && self.presence.get(host.id).is_none();
        let node = server.or_else(|| is_new_node.then_some(node));
        if let Some(node) = &node {
            steps.push(typed::put(&id, node, None).map_err(|error| storage(&error))?);
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        self.people.put_host(&host, revisions.first().copied().unwrap_or_default());
        self.note_certificates(host.id, issued.valid_before, now).await?;
        if let Some(node) = node {
            self.presence.put(node);
        }
        let joined = self
            .event(Code::NodeJoined, caller)
            .user(format!("{}:{}", host_role_name(host.role), host.name))
            .node(host.name.as_str())
            .field("host_id", id.clone())
            .field("role", host_role_name(host.role))
            .field("in_process", host.in_process);
        self.record(vec![joined, self.issued_event(&host, &issued, caller)]).await?;
        if host.role == HostRole::OpenSsh {
            self.with_signer(CaKind::Openssh).await?;
        }
        Ok(self.host_answer(&host, issued))
    }

    fn certify(
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
        let authorities = self.authorities();
        check_accepted(authorities.suite(), ssh_public_key, tls_spki)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let ttl = self.config.lifetimes.bounds(CertificateKind::Host).default;
        issue_host(authorities.signer(CaKind::Host)?, &request, now, ttl)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn issued_event(&self, host: &HostRecord, issued: &HostCertificates, caller: &Caller) -> Event {
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

    fn host_answer(&self, host: &HostRecord, issued: HostCertificates) -> v1::HostCertificates {
        v1::HostCertificates {
            cluster: self.config.cluster.to_string(),
            host_id: host.id.to_string(),
            name: host.name.to_string(),
            ssh_certificate: issued.ssh,
            tls_certificate_pem: issued.tls_pem,
            trust: Some(self.trust_bundle()),
            valid_until: Some(convert::time_to_proto(issued.valid_before)),
        }
    }

    /// New certificates for a host that is still known.
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
        let issued = self.certify(
            &host,
            &request.ssh_public_key,
            &request.tls_public_key,
            &request.public_names,
            now,
        )?;
        self.note_certificates(host.id, issued.valid_before, now).await?;
        self.record(vec![self.issued_event(&host, &issued, caller)]).await?;
        if host.role == HostRole::OpenSsh {
            self.with_signer(CaKind::Openssh).await?;
        }
        Ok(self.host_answer(&host, issued))
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
        let name = NodeName::new(request.name.clone())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let known = self.store.list::<HostRecord>(None, PAGE, now).await.map_err(|error| storage(&error))?;
        let mut known = known
            .into_iter()
            .map(|stored| stored.value)
            .find(|host| host.in_process && host.role == role && host.name == name);
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
        });
        let host = HostRecord { public_names: public_names(role, &request), ..host };
        self.admit(&Caller::LocalAdmin, host, None, &request, now).await
    }
}

/// The names that a proxy or a server asks for; a node's are not looked at.
fn public_names(role: HostRole, request: &v1::JoinRequest) -> Vec<String> {
    match role {
        HostRole::Proxy | HostRole::OpenSsh => request.public_names.clone(),
        HostRole::Node | HostRole::Auth => Vec::new(),
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
