//! The identity of this host: keys and certificates on disk, and the TLS settings made from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::{ClusterName, HostId, NodeName};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::tls::ClientAuth;
use sallyport_ca::tls::node::node_server_config;
use sallyport_ca::{CaError, CaKind, PublicKeys, RotationStatus, Trust, TrustBundle, rotation};
use sallyport_sal::Suite;
use sallyport_wire::convert::time_from_proto;
use sallyport_wire::v1;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tracing::warn;

use crate::ServerError;
use crate::config::Secret;
use crate::files;
use crate::member::host_keys;

/// What a host proves itself with.
#[derive(Debug, Clone)]
pub(crate) struct HostIdentity {
    pub(crate) cluster: ClusterName,
    pub(crate) id: HostId,
    pub(crate) name: NodeName,
    /// OpenSSH private key.
    pub(crate) ssh_key: Secret,
    /// OpenSSH one-line certificate.
    pub(crate) ssh_certificate: String,
    /// PKCS#8 PEM.
    pub(crate) tls_key: Secret,
    /// PEM, leaf first.
    pub(crate) tls_chain: String,
    pub(crate) trust: TrustBundle,
    /// The suite that chose the algorithms of the keys.
    pub(crate) suite: Suite,
    pub(crate) issued: OffsetDateTime,
    pub(crate) valid_until: OffsetDateTime,
}

/// The file's shape.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    cluster: ClusterName,
    id: HostId,
    name: NodeName,
    ssh_key: String,
    ssh_certificate: String,
    tls_key: String,
    tls_chain: String,
    trust: TrustBundle,
    /// Releases that did not say knew one suite.
    #[serde(default = "only_suite")]
    suite: Suite,
    #[serde(with = "time::serde::rfc3339")]
    issued: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    valid_until: OffsetDateTime,
}

const STORED_VERSION: u32 = 1;

fn only_suite() -> Suite {
    Suite::BalancedV1
}

/// Lives of certificates that are renewed early.
const SHORT_LIVES: std::ops::RangeInclusive<time::Duration> =
    time::Duration::hours(1)..=time::Duration::hours(73);

impl HostIdentity {
    /// Whether TLS presents the same with both, whatever else is stored beside it.
    pub(crate) fn is_alike(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.tls_chain == other.tls_chain
    }

    /// When to ask for new certificates: well before two thirds of the life are over, so that a week-long outage of
    /// the authority does not matter to month-long certificates. Those of proxies live for days, and are renewed after an
    /// eighth of that, so that a weekend's outage does not matter to them either.
    pub(crate) fn renew_at(&self) -> OffsetDateTime {
        let life = self.valid_until - self.issued;
        let part = if SHORT_LIVES.contains(&life) { 0.125 } else { 0.6 };
        self.issued + life * part
    }

    /// Loads the identity; `None` when this host has not joined yet.
    pub(crate) fn load(path: &Path, cluster: &ClusterName) -> Result<Option<Self>, ServerError> {
        let Some(bytes) = files::read_private(path)? else { return Ok(None) };
        let bad = |problem: String| ServerError::BadState {
            path: path.to_owned(),
            problem,
            fix: "restore it from a backup, or remove it and join again with a new token".to_owned(),
        };
        let stored: Stored = serde_json::from_slice(&bytes)
            .map_err(|error| bad(format!("the host identity is damaged ({error})")))?;
        if stored.version != STORED_VERSION {
            return Err(bad(format!(
                "it has version {}, this release reads {STORED_VERSION}",
                stored.version
            )));
        }
        if &stored.cluster != cluster {
            return Err(bad(format!(
                "it belongs to cluster {}, the configuration names {cluster}",
                stored.cluster
            )));
        }
        Ok(Some(Self {
            cluster: stored.cluster,
            id: stored.id,
            name: stored.name,
            ssh_key: Secret::new(stored.ssh_key),
            ssh_certificate: stored.ssh_certificate,
            tls_key: Secret::new(stored.tls_key),
            tls_chain: stored.tls_chain,
            trust: stored.trust,
            suite: stored.suite,
            issued: stored.issued,
            valid_until: stored.valid_until,
        }))
    }

    /// Writes the identity, replacing the former.
    pub(crate) fn store(&self, path: &Path) -> Result<(), ServerError> {
        let stored = Stored {
            version: STORED_VERSION,
            cluster: self.cluster.clone(),
            id: self.id,
            name: self.name.clone(),
            ssh_key: self.ssh_key.expose().to_owned(),
            ssh_certificate: self.ssh_certificate.clone(),
            tls_key: self.tls_key.expose().to_owned(),
            tls_chain: self.tls_chain.clone(),
            trust: self.trust.clone(),
            suite: self.suite,
            issued: self.issued,
            valid_until: self.valid_until,
        };
        let json = serde_json::to_vec_pretty(&stored).map_err(|error| ServerError::BadState {
            path: path.to_owned(),
            problem: format!("the host identity cannot be written: {error}"),
            fix: "please report this".to_owned(),
        })?;
        files::write_private(path, &json)
    }
}

/// Two fresh keys that wait for their certificates.
pub(crate) struct FreshKeys {
    ssh: SshKeyPair,
    tls: TlsKey,
    suite: Suite,
}

impl FreshKeys {
    pub(crate) fn generate(name: &str, suite: Suite) -> Result<Self, ServerError> {
        let failed =
            |source: CaError| certificates(format!("cannot make host keys of the suite {suite}"), source);
        let (ssh, tls) = host_keys::take(suite).map_err(|error| failed(error.into()))?;
        Ok(Self {
            ssh: SshKeyPair::from_key(ssh, name).map_err(failed)?,
            tls: TlsKey::from_key(&tls).map_err(failed)?,
            suite,
        })
    }

    pub(crate) fn ssh_public(&self) -> String {
        self.ssh.public_line().to_owned()
    }

    pub(crate) fn tls_public(&self) -> Vec<u8> {
        self.tls.spki_der().to_vec()
    }

    /// Joins keys and certificates, after checking that the certificates are this cluster's.
    pub(crate) fn certified(
        self,
        issued: v1::HostCertificates,
        cluster: &ClusterName,
        now: OffsetDateTime,
    ) -> Result<HostIdentity, ServerError> {
        let wrong = |problem: String| ServerError::Join {
            what: "this host",
            problem,
            fix: "check cluster: in the configuration, and that the token is of that cluster".to_owned(),
        };
        if issued.cluster != cluster.as_str() {
            return Err(wrong(format!("the authority is of cluster {:?}, not {cluster}", issued.cluster)));
        }
        let id = issued
            .host_id
            .parse()
            .map_err(|error| wrong(format!("the authority sent no host id: {error}")))?;
        let name = NodeName::new(issued.name)
            .map_err(|error| wrong(format!("the authority sent no name: {error}")))?;
        let trust = bundle(issued.trust.unwrap_or_default(), cluster);
        Trust::from_bundle(&trust)
            .map_err(|error| certificates("the authority sent no usable trust", error))?;
        let valid_until = issued
            .valid_until
            .as_ref()
            .and_then(time_from_proto)
            .ok_or_else(|| wrong("the authority sent no end of validity".to_owned()))?;
        Ok(HostIdentity {
            cluster: cluster.clone(),
            id,
            name,
            ssh_key: Secret::new(self.ssh.private_openssh().as_str()),
            ssh_certificate: issued.ssh_certificate,
            tls_key: Secret::new(self.tls.pkcs8_pem().as_str()),
            tls_chain: issued.tls_certificate_pem,
            trust,
            suite: self.suite,
            issued: now,
            valid_until,
        })
    }
}

/// The wire's bundle as the certificate layer's.
pub(crate) fn bundle(wire: v1::TrustBundle, cluster: &ClusterName) -> TrustBundle {
    TrustBundle {
        cluster: cluster.as_str().to_owned(),
        user_ssh_keys: wire.user_ssh_keys,
        host_ssh_keys: wire.host_ssh_keys,
        user_tls_certificates: wire.user_tls_certificates,
        host_tls_certificates: wire.host_tls_certificates,
        recording_key: wire.recording_key.to_vec(),
        others: CaKind::keyed(wire.others, |keys| {
            Some(PublicKeys { ssh: keys.ssh, tls: keys.tls, jwt: keys.jwt })
        }),
        suite: wire.suite,
        rotations: CaKind::keyed(wire.rotations, |status| {
            Some(RotationStatus { generation: status.generation, phase: status.phase.parse().ok()? })
        }),
    }
}

pub(crate) fn certificates(
    context: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ServerError {
    ServerError::Certificates { context: context.into(), source: source.into() }
}

/// Puts an identity to use where it is not asked for with every connection.
pub(crate) type Present = Box<dyn Fn(&HostIdentity) -> Result<(), ServerError> + Send + Sync>;

/// The identity in force, shared by everything that makes or accepts TLS connections; changes when it is renewed.
#[derive(Clone)]
pub(crate) struct Credentials {
    path: PathBuf,
    current: Arc<watch::Sender<Arc<HostIdentity>>>,
    use_of: Arc<Mutex<Use>>,
}

/// Held while the identity changes, so that one change follows the other.
#[derive(Default)]
struct Use {
    presenters: Vec<Present>,
    /// The pin of the CA behind what every presenter presents.
    presented: Option<String>,
}

impl Use {
    fn present(&mut self, identity: &HostIdentity) {
        let mut all = true;
        for present in &self.presenters {
            if let Err(error) = present(identity) {
                warn!(error = %ServerError::chain(&error), "a part of this process keeps its old host certificate");
                all = false;
            }
        }
        if all {
            self.presented = rotation::signed_by(&identity.tls_chain);
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Makes the settings of a listener from trust, chain, key, protocols and what is asked of clients.
type Configure = fn(&Trust, &str, &str, &[&[u8]], ClientAuth) -> Result<ServerConfig, CaError>;

impl Credentials {
    pub(crate) fn new(path: PathBuf, identity: HostIdentity) -> Self {
        let presented = rotation::signed_by(&identity.tls_chain);
        let use_of = Use { presenters: Vec::new(), presented };
        Self {
            path,
            current: Arc::new(watch::Sender::new(Arc::new(identity))),
            use_of: Arc::new(Mutex::new(use_of)),
        }
    }

    pub(crate) fn identity(&self) -> Arc<HostIdentity> {
        Arc::clone(&self.current.borrow())
    }

    /// Wakes whenever the identity was replaced.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<HostIdentity>> {
        self.current.subscribe()
    }

    /// Calls `present` with every later identity, before those that follow its changes hear of it.
    pub(crate) fn present_with(&self, present: Present) {
        self.lock().presenters.push(present);
    }

    /// The pin of the host CA that signed what this process presents to the next peer that connects.
    pub(crate) fn presented(&self) -> Option<String> {
        self.lock().presented.clone()
    }

    /// Stores and uses a renewed identity.
    pub(crate) fn replace(&self, identity: HostIdentity) -> Result<(), ServerError> {
        let mut use_of = self.lock();
        identity.store(&self.path)?;
        use_of.present(&identity);
        self.current.send_replace(Arc::new(identity));
        Ok(())
    }

    /// Stores a newer trust beside the identity, so that the next start has it.
    pub(crate) fn adopt(&self, trust: TrustBundle) -> Result<(), ServerError> {
        let _use_of = self.lock();
        let current = self.identity();
        if current.trust == trust {
            return Ok(());
        }
        let identity = HostIdentity { trust, ..(*current).clone() };
        identity.store(&self.path)?;
        self.current.send_replace(Arc::new(identity));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Use> {
        self.use_of.lock()
    }

    /// Settings to dial a host of the cluster with this identity.
    pub(crate) fn client(&self, trust: &Trust, alpn: &[u8]) -> Result<Arc<ClientConfig>, ServerError> {
        let identity = self.identity();
        let pair = Some((identity.tls_chain.as_str(), identity.tls_key.expose()));
        sallyport_ca::tls::client_config(trust, pair, &[alpn])
            .map(Arc::new)
            .map_err(|error| certificates("cannot use this host's certificate as a client", error))
    }

    /// Settings to accept connections with this identity.
    pub(crate) fn server(
        &self,
        trust: &Trust,
        alpn: &[&[u8]],
        clients: ClientAuth,
    ) -> Result<Arc<ServerConfig>, ServerError> {
        self.serve_by(sallyport_ca::tls::server_config, trust, alpn, clients)
    }

    /// Settings to accept a node's users with this identity.
    pub(crate) fn node_server(&self, trust: &Trust, alpn: &[u8]) -> Result<Arc<ServerConfig>, ServerError> {
        let identity = self.identity();
        node_server_config(trust, &identity.tls_chain, identity.tls_key.expose(), alpn)
            .map(Arc::new)
            .map_err(|error| certificates("cannot use this host's certificate as a server", error))
    }

    /// The same for a listener that has guests from outside the cluster, who need not follow its suite.
    pub(crate) fn public_server(
        &self,
        trust: &Trust,
        alpn: &[&[u8]],
        clients: ClientAuth,
    ) -> Result<Arc<ServerConfig>, ServerError> {
        self.serve_by(sallyport_ca::tls::public_server_config, trust, alpn, clients)
    }

    fn serve_by(
        &self,
        configure: Configure,
        trust: &Trust,
        alpn: &[&[u8]],
        clients: ClientAuth,
    ) -> Result<Arc<ServerConfig>, ServerError> {
        let identity = self.identity();
        configure(trust, &identity.tls_chain, identity.tls_key.expose(), alpn, clients)
            .map(Arc::new)
            .map_err(|error| certificates("cannot use this host's certificate as a server", error))
    }
}
