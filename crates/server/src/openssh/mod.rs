//! A stock OpenSSH server's membership: joining with a token, and keeping its host certificate and the authorities that
//! its sshd trusts fresh. No agent runs there; private host keys stay with sshd, and only public keys are certified.

mod given;
mod layout;
mod sshd;

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_access::{ClusterName, HostRole, NodeName, ServerTrust};
use sallyport_ca::keys::{TlsKey, public_line};
use sallyport_ca::{CaKind, Trust, TrustBundle, check_ssh_accepted, rotation};
use sallyport_sal::{Suite, selection};
use sallyport_wire::convert::time_from_proto;
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::watch_event::Event;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

pub use given::Given;
pub use layout::Layout;
pub use sshd::{Applied, Change, Plan, SshdError, apply, plan};

pub use crate::member::host_keys::default_host_key;

use crate::ServerError;
use crate::config::{HostPort, Secret};
use crate::files;
use crate::member::authority_client::{AuthorityClient, Route, first_contact};
use crate::member::cluster_cache::ClusterCache;
use crate::member::confirming;
use crate::member::host::{Credentials, HostIdentity, bundle, certificates};
use crate::member::joining::{announced, saying};

const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const WHAT: &str = "openssh";
const IDENTITY: &str = "identity.json";
const SETTINGS: &str = "server.json";

/// What a server joins with.
#[derive(Debug)]
pub struct Join {
    /// The proxy's, or the authority's, address.
    pub proxy: HostPort,
    /// A token of the kind `openssh`.
    pub token: Secret,
    /// The pin that came with it.
    pub ca_pin: String,
    /// What people call the server.
    pub name: NodeName,
    /// More names and addresses that its host certificate is good for.
    pub names: Vec<String>,
    /// Where it listens; `None` when it is registered already.
    pub address: Option<String>,
    /// The agent through which it is reached.
    pub via: Option<String>,
    /// Where the membership is kept.
    pub directory: PathBuf,
    /// sshd's side.
    pub layout: Layout,
}

/// What is kept besides the identity.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    version: u32,
    proxy: String,
    names: Vec<String>,
    layout: Layout,
    /// sshd's configuration is ours to change.
    applied: bool,
}

const SETTINGS_VERSION: u32 = 1;

fn bad(path: &Path, problem: impl std::fmt::Display) -> ServerError {
    ServerError::BadState {
        path: path.to_owned(),
        problem: problem.to_string(),
        fix: "remove the directory and join again: sallyport join openssh --token TOKEN".to_owned(),
    }
}

fn refused(problem: String) -> ServerError {
    ServerError::Join {
        what: WHAT,
        problem,
        fix: "make a token with `sallyport admin tokens add --role openssh` and join again".to_owned(),
    }
}

impl Settings {
    fn load(directory: &Path) -> Result<Self, ServerError> {
        let path = directory.join(SETTINGS);
        let bytes = files::read_private(&path)?
            .ok_or_else(|| refused(format!("this server has not joined: there is no {}", path.display())))?;
        let settings: Self = serde_json::from_slice(&bytes).map_err(|error| bad(&path, error))?;
        if settings.version != SETTINGS_VERSION {
            return Err(bad(&path, format!("it has version {}", settings.version)));
        }
        Ok(settings)
    }

    fn store(&self, directory: &Path) -> Result<(), ServerError> {
        let path = directory.join(SETTINGS);
        let json = serde_json::to_vec_pretty(self).map_err(|error| bad(&path, error))?;
        files::write_private(&path, &json)
    }
}

fn host_key(layout: &Layout) -> Result<String, ServerError> {
    let path = layout.public_key();
    let text = std::fs::read_to_string(&path).map_err(|source| ServerError::File {
        action: "read the public host key in",
        path: path.clone(),
        source,
    })?;
    public_line(&text).map_err(|error| bad(&path, error))
}

/// Asked before the authority is, which spends the token first.
fn takes(suite: Suite, host_key: &str, fix: &str) -> Result<(), ServerError> {
    check_ssh_accepted(suite, host_key).map_err(|error| ServerError::Join {
        what: WHAT,
        problem: error.to_string(),
        fix: fix.to_owned(),
    })
}

fn has_joined(directory: &Path) -> bool {
    directory.join(IDENTITY).exists()
}

/// Joins the cluster. sshd's files are not touched.
///
/// # Errors
/// [`ServerError`]: it has joined already, the cluster refuses, or something cannot be read or written.
pub fn join(join: Join) -> BoxFuture<'static, Result<Given, ServerError>> {
    Box::pin(join_cluster(join))
}

async fn join_cluster(join: Join) -> Result<Given, ServerError> {
    if has_joined(&join.directory) {
        return Err(ServerError::Join {
            what: WHAT,
            problem: format!("this server has joined already, see {}", join.directory.display()),
            fix: "renew with `sallyport join openssh --renew`, or remove that directory first".to_owned(),
        });
    }
    let ssh_public_key = host_key(&join.layout)?;
    files::private_directory(&join.directory)?;
    // With the pin no name is needed: only the authority of that CA can answer.
    let any = ClusterName::new("any").map_err(|error| certificates("cannot name a cluster", error))?;
    let channel = first_contact(&join.proxy, &join.ca_pin, &any).await?;
    let mut login = LoginClient::new(channel);
    let ping = joining(&join.proxy, login.ping(v1::PingRequest {})).await?;
    let cluster =
        ClusterName::new(&ping.cluster).map_err(|error| certificates("cannot read the answer", error))?;
    let suite = announced(&ping.suite, selection::global().is_fips());
    takes(
        suite,
        &ssh_public_key,
        "give another host key of this server: --host-key /etc/ssh/ssh_host_ecdsa_key",
    )?;
    let key = TlsKey::generate(suite).map_err(|error| certificates("cannot make a key", error))?;
    let request = v1::JoinRequest {
        token: join.token.expose().to_owned(),
        name: join.name.to_string(),
        role: HostRole::OpenSsh.name().to_owned(),
        ssh_public_key,
        tls_public_key: key.spki_der().to_vec().into(),
        public_names: join.names.clone(),
        address: join.address.clone().unwrap_or_default(),
        via: join.via.clone().unwrap_or_default(),
        trust: if join.layout.user_only { ServerTrust::User.name().to_owned() } else { String::new() },
        cluster: cluster.to_string(),
    };
    let issued = joining(&join.proxy, login.join(saying(request))).await?;
    let identity = identity(issued, &cluster, &key, suite)?;
    identity.store(&join.directory.join(IDENTITY))?;
    let settings = Settings {
        version: SETTINGS_VERSION,
        proxy: join.proxy.to_string(),
        names: join.names,
        layout: join.layout,
        applied: false,
    };
    settings.store(&join.directory)?;
    let mut member = Member::open(&join.directory)?;
    member.given(true).await
}

/// Waits for an answer to a server that has not joined yet, within bounds.
async fn joining<T>(
    address: &HostPort,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, ServerError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(ServerError::of_join(WHAT, address, &status)),
        Err(_) => Err(ServerError::unanswered_join(WHAT, address, CALL_TIMEOUT)),
    }
}

/// Waits for an answer to a member, within bounds.
async fn within<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, ServerError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(refused(format!("the authority refused: {}", status.message()))),
        Err(_) => Err(ServerError::unanswered_join(WHAT, "the proxy", CALL_TIMEOUT)),
    }
}

fn identity(
    issued: v1::HostCertificates,
    cluster: &ClusterName,
    key: &TlsKey,
    suite: Suite,
) -> Result<HostIdentity, ServerError> {
    let odd = |problem: String| certificates("cannot read the authority's answer", problem);
    let trust = bundle(issued.trust.unwrap_or_default(), cluster);
    Trust::from_bundle(&trust).map_err(|error| odd(error.to_string()))?;
    let valid_until = issued.valid_until.as_ref().and_then(time_from_proto);
    Ok(HostIdentity {
        cluster: cluster.clone(),
        id: issued.host_id.parse().map_err(|error: sallyport_access::IdError| odd(error.to_string()))?,
        name: NodeName::new(issued.name).map_err(|error| odd(error.to_string()))?,
        // It is sshd's.
        ssh_key: Secret::new(""),
        ssh_certificate: issued.ssh_certificate,
        tls_key: Secret::new(key.pkcs8_pem().as_str()),
        tls_chain: issued.tls_certificate_pem,
        trust,
        suite,
        issued: OffsetDateTime::now_utc(),
        valid_until: valid_until.ok_or_else(|| odd("no end of validity".to_owned()))?,
    })
}

/// A server that has joined.
pub struct Member {
    directory: PathBuf,
    settings: Settings,
    credentials: Credentials,
    client: AuthorityClient,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Member {
    /// Reads what an earlier join left.
    ///
    /// # Errors
    /// [`ServerError`] when there is none, or it is damaged.
    pub fn open(directory: &Path) -> Result<Self, ServerError> {
        let settings = Settings::load(directory)?;
        let path = directory.join(IDENTITY);
        let bytes = files::read_private(&path)?.unwrap_or_default();
        let named: Named = serde_json::from_slice(&bytes).map_err(|error| bad(&path, error))?;
        let identity =
            HostIdentity::load(&path, &named.cluster)?.ok_or_else(|| bad(&path, "it is missing"))?;
        let proxy: HostPort =
            settings.proxy.parse().map_err(|problem| bad(&directory.join(SETTINGS), problem))?;
        let trust = Trust::from_bundle(&identity.trust).map_err(|error| bad(&path, error))?;
        let view = ClusterCache::new(identity.cluster.clone(), identity.trust.clone(), trust)
            .map_err(|problem| bad(&path, problem))?;
        let credentials = Credentials::new(path, identity);
        let client = AuthorityClient::new(Route::At(proxy), credentials.clone(), view.into());
        Ok(Self { directory: directory.to_owned(), settings, credentials, client })
    }

    /// Learns the trust in force, and has the certificate renewed when that is due: of age, or because the CA that
    /// signed it is being left. `force` renews anyway.
    ///
    /// # Errors
    /// [`ServerError`] when the authority refuses or cannot be reached.
    pub fn renew(&mut self, force: bool) -> BoxFuture<'_, Result<Given, ServerError>> {
        Box::pin(self.renewed(force))
    }

    async fn renewed(&mut self, force: bool) -> Result<Given, ServerError> {
        let trust = self.trust().await?;
        let old = self.credentials.identity();
        let pins = Trust::from_bundle(&trust).map(|trust| trust.pins()).unwrap_or_default();
        let left = rotation::signed_by(&old.tls_chain).is_none_or(|pin| pins.first() != Some(&pin));
        let suite = announced(&trust.suite, selection::global().is_fips());
        let key = host_key(&self.settings.layout)?;
        let certified = sallyport_ca::keys::certificate(&old.ssh_certificate)
            .is_ok_and(|certificate| sallyport_ca::keys::certifies(&certificate, &key));
        let due =
            force || left || suite != old.suite || !certified || OffsetDateTime::now_utc() >= old.renew_at();
        if due {
            let fix = format!(
                "join again with another host key of this server: remove {}, make a token with `sallyport admin tokens add --role openssh \
                 --replace {}`, and join with --host-key /etc/ssh/ssh_host_ecdsa_key",
                self.directory.display(),
                old.name
            );
            takes(suite, &key, &fix)?;
            let tls = TlsKey::generate(suite).map_err(|error| certificates("cannot make a key", error))?;
            let request = v1::RenewHostRequest {
                ssh_public_key: key,
                tls_public_key: tls.spki_der().to_vec().into(),
                public_names: self.settings.names.clone(),
            };
            let issued = within(self.client.fleet().renew_host(request)).await?;
            self.credentials.replace(identity(issued, &old.cluster, &tls, suite)?)?;
        } else {
            self.credentials.adopt(trust)?;
        }
        self.given(due).await
    }

    /// The trust in force: the first word of a watch.
    async fn trust(&self) -> Result<TrustBundle, ServerError> {
        let request = v1::WatchRequest { kinds: vec!["trust".to_owned()] };
        let mut watch = within(self.client.fleet().watch(request)).await?;
        let odd = |problem: String| certificates("cannot read the trust in force", problem);
        let first = tokio::time::timeout(CALL_TIMEOUT, watch.message()).await;
        let first =
            first.map_err(|_| odd("no answer".to_owned()))?.map_err(|status| odd(status.to_string()))?;
        match first.and_then(|event| event.event) {
            Some(Event::Put(resource)) => {
                serde_json::from_str(&resource.yaml).map_err(|error| odd(error.to_string()))
            }
            _ => Err(odd("the authority said something else first".to_owned())),
        }
    }

    async fn given(&mut self, renewed: bool) -> Result<Given, ServerError> {
        let request = v1::ExportCaRequest { kind: CaKind::User.name().to_owned(), format: "krl".to_owned() };
        let revoked = within(self.client.admin().export_ca(request)).await?.data;
        let identity = self.credentials.identity();
        let trust = Trust::from_bundle(&identity.trust)
            .map_err(|error| certificates("cannot use the trust in force", error))?;
        let mut user_cas: Vec<String> = Vec::new();
        if !self.settings.layout.user_only {
            user_cas = trust.public_keys(CaKind::Openssh).ssh;
        }
        if !self.settings.layout.proxy_only {
            user_cas.extend(trust.user_ssh_lines().map(str::to_owned));
        }
        Ok(Given {
            cluster: identity.cluster.to_string(),
            id: identity.id.to_string(),
            name: identity.name.to_string(),
            host_certificate: identity.ssh_certificate.trim().to_owned(),
            user_cas,
            revoked: revoked.to_vec(),
            valid_until: identity.valid_until,
            renewed,
            layout: self.settings.layout.clone(),
            applied: self.settings.applied,
        })
    }

    /// From now on, renewals change sshd's files.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn now_applied(&mut self) -> Result<(), ServerError> {
        self.settings.applied = true;
        self.settings.store(&self.directory)
    }

    /// Tells the authority that sshd has what was given last, so that a rotation may go on; and what sshd compares of
    /// certificates.
    ///
    /// # Errors
    /// [`ServerError`] when the authority cannot be reached.
    pub fn confirm<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), ServerError>> {
        Box::pin(self.confirmed(plan))
    }

    async fn confirmed(&self, plan: &Plan) -> Result<(), ServerError> {
        let identity = self.credentials.identity();
        let mut request = confirming::request(&identity.trust, rotation::signed_by(&identity.tls_chain));
        request.takes_own_logins = plan.takes_own_logins();
        within(self.client.rotation().confirm(request)).await.map(|_| ())
    }
}

/// The part of an identity that says of which cluster it is.
#[derive(Deserialize)]
struct Named {
    cluster: ClusterName,
}
