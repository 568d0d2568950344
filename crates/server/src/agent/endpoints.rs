//! The two endpoints of this machine's node: SSH, and the native one, which is mutual TLS from the user's program to
//! here. The first byte of a stream tells them apart, where the proxy does not know that it is SSH: a node that has to wait
//! for it greets half a round trip later. The proxy sees ciphertext either way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use metrics::counter;
use parking_lot::Mutex;
use sallyport_access::{Identity, Lock, Principal};
use sallyport_audit::{Code, Event, Sink};
use sallyport_ca::{SKEW_ALLOWANCE, Trust};
use sallyport_sal::hash::sha256;
use sallyport_ssh::endpoint::{Accepted, Early, Parting, TLS_HANDSHAKE, Tickets, accept};
use sallyport_ssh::node::{ConnectionInfo, NativeLogin, NodeServer};
use sallyport_wire::{alpn, tunnel};
use time::OffsetDateTime;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_rustls::rustls::ServerConfig;
use tracing::{debug, warn};

use super::client_context::ClientContext;
use crate::ServerError;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::{Credentials, HostIdentity};

/// Programs send their first byte together with the question for the node. A client that waits for the other end's
/// greeting instead wants SSH.
const FIRST_BYTE_PATIENCE: Duration = Duration::from_secs(1);
/// From the first byte to a proven user.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(15);

/// Both endpoints. Where there is no native one, the SSH server greets every client, and so do nodes that are older:
/// that is how clients learn to come by SSH.
pub(super) struct Endpoints {
    pub(super) server: NodeServer,
    pub(super) credentials: Credentials,
    pub(super) view: Arc<ClusterCache>,
    pub(super) sink: Arc<dyn Sink>,
    /// Whether there is a native one.
    pub(super) native_door: bool,
    /// Whether what comes with a ticket is done before the client has answered.
    pub(super) early: Early,
    pub(super) native: Native,
}

/// What the native door accepts with, made again when anything behind it has changed.
#[derive(Default)]
pub(super) struct Native(Mutex<Option<Built>>);

#[derive(Clone)]
struct Built {
    identity: Arc<HostIdentity>,
    trust: Arc<Trust>,
    locks: Arc<[Lock]>,
    config: Arc<ServerConfig>,
    /// Worth nothing after another certificate, trust, suite or lock: then each client proves everything again.
    tickets: Arc<Tickets>,
}

impl Native {
    fn current(&self, credentials: &Credentials, view: &ClusterCache) -> Result<Built, ServerError> {
        let (identity, trust, locks) = (credentials.identity(), view.trust(), view.locks());
        let mut built = self.0.lock();
        if let Some(built) = built.as_ref()
            && built.identity.is_alike(&identity)
            && Arc::ptr_eq(&built.trust, &trust)
            && Arc::ptr_eq(&built.locks, &locks)
        {
            return Ok(built.clone());
        }
        let config = credentials.node_server(&trust, alpn::NATIVE)?;
        let tickets = built.as_ref().map(|before| before.tickets.renewed()).unwrap_or_default();
        let fresh = Built { identity, trust, locks, config, tickets: Arc::new(tickets) };
        *built = Some(fresh.clone());
        Ok(fresh)
    }
}

impl Endpoints {
    /// Serves a stream of the tunnel to its end.
    pub(super) async fn serve(&self, stream: tunnel::Stream, comer: ClientContext) {
        let ClientContext { client, ssh_alone, opening } = comer;
        let info = ConnectionInfo { client_addr: Some(client), told_by_proxy: true, opening: Some(opening) };
        if ssh_alone || !self.native_door {
            return self.serve_ssh(stream, info).await;
        }
        // One byte is looked at; what follows is read past this buffer.
        let mut stream = BufReader::with_capacity(1, stream);
        let first = tokio::time::timeout(FIRST_BYTE_PATIENCE, stream.fill_buf()).await;
        match first {
            Ok(Ok([TLS_HANDSHAKE, ..])) => {
                counter!("sallyport_node_connections_total", "door" => "native").increment(1);
                let accepted = Box::pin(self.prove(stream, client));
                let Some((accepted, identity)) = accepted.await else { return };
                let certificate = certificate(&accepted);
                let login = NativeLogin { proof: fingerprint(&accepted), identity, certificate };
                // A minute of difference between clocks is forgiven here as everywhere.
                let until = login.identity.valid_before + SKEW_ALLOWANCE;
                let early = self.early(&login.identity, accepted.is_resumed());
                let stream = Parting::new(accepted.admit(until, early));
                self.server.serve_native(stream, login, info).await;
            }
            _ => self.serve_ssh(stream, info).await,
        }
    }

    /// Whether what the client says with a ticket is done at once: not where this node or the user's roles want an answer
    /// from the client first. The roles are those of now, and not those of when the ticket was given.
    fn early(&self, identity: &Identity, resumed: bool) -> Early {
        let at_once = matches!(&identity.principal, Principal::User { roles, .. }
            if self.view.policies().early_data_for(roles));
        let early = if at_once { self.early } else { Early::AfterHandshake };
        if resumed {
            let read = match early {
                Early::AtOnce => "at_once",
                Early::AfterHandshake => "after_handshake",
            };
            counter!("sallyport_node_tickets_total", "early_data" => read).increment(1);
        }
        early
    }

    async fn serve_ssh(&self, stream: impl sallyport_ssh::Stream + 'static, info: ConnectionInfo) {
        counter!("sallyport_node_connections_total", "door" => "ssh").increment(1);
        self.server.serve(stream, info).await;
    }

    /// Whose connection it is. A ticket is no proof by itself: the certificates behind it are verified as they are now.
    async fn prove<S>(&self, stream: S, client: SocketAddr) -> Option<(Accepted<S>, Identity)>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let built = match self.native.current(&self.credentials, &self.view) {
            Ok(built) => built,
            Err(error) => {
                warn!(error = %ServerError::chain(&error), "cannot accept native connections");
                return None;
            }
        };
        let now = OffsetDateTime::now_utc();
        let accepting = accept(stream, &built.config, &built.tickets, now);
        let accepted = match tokio::time::timeout(HANDSHAKE_PATIENCE, accepting).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => {
                self.refuse(client, &error.to_string());
                return None;
            }
            Err(_) => {
                debug!("the client did not finish the handshake");
                return None;
            }
        };
        match built.trust.identify_peer(accepted.certificates(), now) {
            Ok(identity) if identity.user().is_some() => Some((accepted, identity)),
            Ok(identity) => {
                self.refuse(
                    client,
                    &format!("{} is a host, and hosts open no sessions", identity.display_name()),
                );
                None
            }
            Err(error) => {
                self.refuse(client, &error.to_string());
                None
            }
        }
    }

    fn refuse(&self, client: SocketAddr, reason: &str) {
        debug!(%client, reason, "a native connection was refused");
        let event = Event::new(Code::SessionRefused, OffsetDateTime::now_utc())
            .node(self.credentials.identity().name.as_str())
            .source(client.to_string())
            .source_by_proxy()
            .message(format!("the client proved no certificate of this cluster that is valid now: {reason}"))
            .field("front", "native");
        self.sink.emit(event);
    }
}

/// What a certificate is called where it is refused.
/// The client's certificate, as it was presented.
fn certificate<S>(accepted: &Accepted<S>) -> Bytes {
    accepted.certificates().first().map(|leaf| Bytes::copy_from_slice(leaf)).unwrap_or_default()
}

fn fingerprint<S>(accepted: &Accepted<S>) -> String {
    accepted.certificates().first().map(|leaf| HEXLOWER.encode(&sha256(leaf))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sallyport_access::{ClusterName, HostId, HostRole, NodeName};
    use sallyport_ca::keys::{SshKeyPair, TlsKey};
    use sallyport_ca::{Authority, CaKind, HostRequest, issue_host};
    use sallyport_sal::custody::{SealedCustody, SealingKey};
    use sallyport_sal::{KeyPurpose, Suite};

    use super::*;
    use crate::config::Secret;
    use crate::member::cluster_cache::{Change, Held};

    fn known() -> (Credentials, ClusterCache) {
        let directory = tempfile::tempdir().unwrap();
        let sealing = SealingKey::create(&directory.path().join("seal")).unwrap();
        let custody = SealedCustody::new(Arc::new(sealing));
        let (cluster, now) = (ClusterName::new("test.example").unwrap(), OffsetDateTime::now_utc());
        let make = |kind| Authority::generate(kind, &cluster, &custody, Suite::BalancedV1, now).unwrap();
        let (users, hosts) = (make(CaKind::User), make(CaKind::Host));
        let trust = Trust::from_authorities(&[&users, &hosts], None).unwrap();
        let ssh = SshKeyPair::generate_for(Suite::BalancedV1, KeyPurpose::HostSsh, "web-1").unwrap();
        let tls = TlsKey::generate_for(Suite::BalancedV1, KeyPurpose::HostTls).unwrap();
        let (id, name) = (HostId::new(), NodeName::new("web-1").unwrap());
        let request = HostRequest {
            id,
            name: &name,
            role: HostRole::Node,
            join_id: uuid::Uuid::new_v4(),
            public_names: &[],
            ssh_public_key: ssh.public_line(),
            tls_spki: tls.spki_der(),
        };
        let issued = issue_host(&hosts, &request, now, time::Duration::HOUR).unwrap();
        let identity = HostIdentity {
            cluster: cluster.clone(),
            id,
            name,
            ssh_key: Secret::new(ssh.private_openssh().as_str()),
            ssh_certificate: issued.ssh,
            tls_key: Secret::new(tls.pkcs8_pem().as_str()),
            tls_chain: issued.tls_pem,
            trust: trust.to_bundle(),
            suite: Suite::BalancedV1,
            issued: now,
            valid_until: now + time::Duration::HOUR,
        };
        let view = ClusterCache::new(cluster, trust.to_bundle(), trust).unwrap();
        (Credentials::new("/nonexistent".into(), identity), view)
    }

    #[test]
    fn tickets_are_forgotten_with_every_lock_and_trust_and_with_nothing_else() {
        let (credentials, view) = known();
        let native = Native::default();
        let tickets = || native.current(&credentials, &view).unwrap().tickets;
        let put = |kind: &str, name: &str, yaml: &str| {
            let (kind, name, yaml) = (kind.to_owned(), name.to_owned(), yaml.to_owned());
            view.apply(Change::Put(Held { kind, name, yaml }));
        };
        let first = tickets();
        assert!(Arc::ptr_eq(&first, &tickets()));
        put(
            "role",
            "dev",
            "kind: role\nversion: v1\nmetadata:\n  name: dev\nspec:\n  allow:\n    logins: [root]\n",
        );
        assert!(Arc::ptr_eq(&first, &tickets()), "roles are asked for every session");
        put(
            "lock",
            "stolen",
            "kind: lock\nversion: v1\nmetadata:\n  name: stolen\nspec:\n  target:\n    user: alice\n  message: x\n",
        );
        let locked = tickets();
        assert!(!Arc::ptr_eq(&first, &locked));
        let mut bundle = view.bundle();
        Suite::PqV1.name().clone_into(&mut bundle.suite);
        view.trust_in(&bundle);
        assert!(!Arc::ptr_eq(&locked, &tickets()));
    }
}
