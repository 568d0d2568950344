//! The proxy in front of servers that cannot record: it ends SSH with a host certificate for the server's name, decides
//! and records as a node does, and goes on to the server as the user: with a certificate of the openssh CA, or, where the
//! server trusts the user CA alone, with the user's own certificate, for which the user's agent signs.
//!
//! The authority is asked once a server, and for a user's login there as the user comes, with the word of the user's program
//! where it gives one; what it gave serves the connections of the next minutes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use metrics::{counter, histogram};
use parking_lot::Mutex;
use sallyport_access::{HostId, Identity, Login, Node, OpenSshServer, Permit, ServerTrust};
use sallyport_audit::recording::Recorders;
use sallyport_audit::{Code, Event, Sink};
use sallyport_ca::CaError;
use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::KeyPurpose;
use sallyport_sal::hpke::RecipientPublic;
use sallyport_session::LiveSessions;
use sallyport_ssh::BoxedStream;
use sallyport_ssh::agent::UserAgent;
use sallyport_ssh::client::{ClientError, Credentials, PHASE};
use sallyport_ssh::node::{
    AgentLogin, ConnectionInfo, HostIdentity, LoginBy, NodeConfig, NodeServer, ServerProof, Upstream,
    UpstreamError,
};
use sallyport_wire::convert::time_from_proto;
use sallyport_wire::v1::{CertifyForTargetRequest, CertifyTargetRequest, LoginWord};
use time::OffsetDateTime;
use tokio::sync::{AcquireError, Semaphore};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span, warn};
use uuid::Uuid;

use super::open::{ClientContext, Opener};
use super::pass::Pass;
use crate::ServerError;
use crate::files;
use crate::member::authority_client::AuthorityClient;
use crate::member::client_sightings::Sightings;
use crate::member::cluster_cache::ClusterCache;
use crate::member::directory::Known;
use crate::member::host::certificates;
use crate::member::session_factors::AuthorityFactors;
use crate::tasks;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes on their way between the stream of a user and the listener.
const STREAM_BYTES: usize = 256 * 1024;
/// A certificate with less life than this is not used for a login: clocks differ.
const LEAST_LIFE: time::Duration = time::Duration::seconds(90);
/// A certificate older than this is replaced when it is used, if the authority is there.
const FRESH: time::Duration = time::Duration::minutes(2);
/// How long the authority is not asked again for the same.
const RETRY: time::Duration = time::Duration::seconds(30);
/// Logins that are remembered; past it those that are over are forgotten, and then all.
const MOST_LOGINS: usize = 10_000;
/// Certificates that may be asked for at once.
const ASKING: usize = 16;

/// What the authority gave for one server.
struct Target {
    server: NodeServer,
    /// As the certificate names it, and the CA that signed it.
    named: (String, Option<String>),
    renew_at: OffsetDateTime,
    valid_until: OffsetDateTime,
}

/// What the authority gave for one login of a user on one server.
#[derive(Clone)]
struct HeldLogin {
    credentials: Credentials,
    fresh_until: OffsetDateTime,
    valid_until: OffsetDateTime,
}

impl HeldLogin {
    fn is_due(&self) -> bool {
        OffsetDateTime::now_utc() >= self.fresh_until
    }
}

/// Why there is no certificate for a server, or for a login there; the user reads it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCertificate {
    #[error("the authority gives no certificate: {0}")]
    Refused(String),
    /// It is away, or cannot do it now.
    #[error("the authority gives no certificate: {0}")]
    NoAnswer(String),
    /// This process is ending.
    #[error(transparent)]
    Closed(#[from] AcquireError),
    /// No key could be made for it.
    #[error(transparent)]
    Key(#[from] CaError),
    /// The thread that made the key ended.
    #[error(transparent)]
    Ended(#[from] JoinError),
    /// The listener does not take it.
    #[error(transparent)]
    Host(#[from] sallyport_ssh::node::NodeError),
    /// The client of the server does not take it.
    #[error(transparent)]
    Login(#[from] ClientError),
}

/// The server, whose login, as which account, and whether by a user's own word: where their roles want that, nothing that the
/// proxy got by its own will do.
type LoginKey = (HostId, Uuid, Login, bool);

/// One at a time asks for the same thing.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// A client that enters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enters<'a> {
    pub(crate) client: &'a ClientContext,
    /// The user's agent, where the client brings one.
    pub(crate) agent: Option<&'a UserAgent>,
    /// The user's word for a login that a proxy makes in the user's place.
    pub(crate) word: Option<&'a LoginWord>,
}

/// The listeners for registered servers whose sessions this proxy records.
pub(crate) struct RecordingProxy {
    /// This proxy, on which its sessions run.
    host: HostId,
    view: Arc<ClusterCache>,
    client: AuthorityClient,
    sink: Arc<dyn Sink>,
    sightings: Sightings,
    recorders: Recorders,
    live: LiveSessions,
    targets: Mutex<HashMap<HostId, Target>>,
    logins: Mutex<HashMap<LoginKey, HeldLogin>>,
    turns: Mutex<HashMap<HostId, Turn>>,
    asking: Semaphore,
}

impl std::fmt::Debug for RecordingProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingProxy").field("recorders", &self.recorders).finish_non_exhaustive()
    }
}

/// Whether sessions of this user on this server are recorded here.
pub(crate) fn records_here(view: &ClusterCache, identity: &Identity, node: &Node, permit: &Permit) -> bool {
    view.policies().records_at_proxy(identity, node, permit, &view.locks(), OffsetDateTime::now_utc())
}

impl RecordingProxy {
    /// With its recordings below `directory`.
    pub(crate) fn open(
        directory: &Path,
        host: HostId,
        view: Arc<ClusterCache>,
        client: AuthorityClient,
        sink: Arc<dyn Sink>,
        sightings: Sightings,
    ) -> Result<Self, ServerError> {
        let recordings = directory.join("recordings");
        files::private_directory(&recordings)?;
        let recipient = recording_key(&view)?;
        let recorders = Recorders::open(&recordings, recipient).map_err(|source| ServerError::File {
            action: "record sessions in",
            path: recordings,
            source,
        })?;
        Ok(Self {
            host,
            view,
            client,
            sink,
            sightings,
            recorders,
            live: LiveSessions::default(),
            targets: Mutex::default(),
            logins: Mutex::default(),
            turns: Mutex::default(),
            asking: Semaphore::new(ASKING),
        })
    }

    /// What writes the recordings.
    pub(crate) fn recorders(&self) -> Recorders {
        self.recorders.clone()
    }

    /// The sessions that run.
    pub(crate) fn live(&self) -> LiveSessions {
        self.live.clone()
    }

    /// Uses changed recording keys, until `stop`.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.view.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => match (changed, recording_key(&self.view)) {
                    (Err(_), _) => return,
                    (Ok(()), Ok(recipient)) => self.recorders.set_recipient(recipient),
                    (Ok(()), Err(error)) => warn!(%error, "recordings are still sealed to the former key"),
                },
                () = stop.cancelled() => return,
            }
        }
    }

    /// Ends every session, and waits for their records and until what they ran has ended, for a bounded time.
    pub(crate) async fn end_all(&self) {
        let listeners: Vec<NodeServer> =
            self.targets.lock().values().map(|target| target.server.clone()).collect();
        futures::future::join_all(listeners.iter().map(|listener| listener.drain(Duration::ZERO))).await;
    }

    /// A stream to the listener for a server. What goes wrong on the way to the server is told inside SSH.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        opener: &Opener,
        enters: Enters<'_>,
        opening: &Span,
        (node, server): (&Arc<Node>, &OpenSshServer),
        pass: &Pass,
    ) -> Result<BoxedStream, NoCertificate> {
        let listener = self.listener(node).await?;
        let upstream = Arc::new(Behind {
            recording: Arc::clone(self),
            opener: opener.clone(),
            client: enters.client.clone(),
            node: Arc::clone(node),
            server: server.clone(),
            pass: pass.clone(),
            agent: enters.agent.filter(|_| server.trust == ServerTrust::User).cloned(),
            word: enters.word.cloned(),
        });
        let (near, far) = tokio::io::duplex(STREAM_BYTES);
        let recorded = info_span!(target: PHASE, parent: opening, "proxy.front", "error.type" = Empty);
        let info = ConnectionInfo {
            client_addr: Some(enters.client.address),
            told_by_proxy: false,
            opening: Some(recorded),
        };
        tasks::start(async move { listener.serve_for(upstream, far, info).await }.in_current_span());
        Ok(Box::new(near))
    }

    /// The listener for a server. Asks no authority when there is one whose certificate is young.
    async fn listener(self: &Arc<Self>, node: &Arc<Node>) -> Result<NodeServer, NoCertificate> {
        let now = OffsetDateTime::now_utc();
        if let Some((listener, due)) = self.known_listener(node, now) {
            if due {
                let (recording, node) = (Arc::clone(self), Arc::clone(node));
                // A connection does not wait for a renewal in time.
                tasks::start(async move {
                    if let Err(problem) = recording.make_listener(&node).await {
                        warn!(server = %node.name, %problem, "no new certificate for a server yet");
                    }
                });
            }
            return Ok(listener);
        }
        self.make_listener(node).await
    }

    fn named(&self, node: &Node) -> (String, Option<String>) {
        (node.name.to_string(), self.view.trust().pins().first().cloned())
    }

    /// The listener, and whether its certificate should be renewed.
    fn known_listener(&self, node: &Node, now: OffsetDateTime) -> Option<(NodeServer, bool)> {
        let targets = self.targets.lock();
        let target = targets.get(&node.id).filter(|target| now < target.valid_until)?;
        let named = self.named(node);
        if target.named.0 != named.0 {
            return None;
        }
        Some((target.server.clone(), now >= target.renew_at || target.named != named))
    }

    fn turn(&self, node: &Node) -> Turn {
        Arc::clone(self.turns.lock().entry(node.id).or_default())
    }

    async fn make_listener(&self, node: &Arc<Node>) -> Result<NodeServer, NoCertificate> {
        let turn = self.turn(node);
        let _turn = turn.lock().await;
        // The task that had the turn before may have made it.
        if let Some((listener, false)) = self.known_listener(node, OffsetDateTime::now_utc()) {
            return Ok(listener);
        }
        let began = std::time::Instant::now();
        let named = self.named(node);
        let key = self.key(KeyPurpose::HostSsh).await?;
        let request = CertifyTargetRequest {
            node_id: node.id.to_string(),
            ssh_public_key: key.public_line().to_owned(),
        };
        let mut fleet = self.client.fleet();
        let answer = self.ask("CertifyTarget", fleet.certify_target(request)).await?;
        let host = HostIdentity::new(&key, &answer.ssh_certificate)?;
        let now = OffsetDateTime::now_utc();
        let valid_until = answer.valid_until.as_ref().and_then(time_from_proto).unwrap_or(now);
        let mut targets = self.targets.lock();
        let server = match targets.get(&node.id) {
            Some(former) => {
                former.server.set_host(&host);
                former.server.clone()
            }
            None => {
                let directory = Known {
                    view: Arc::clone(&self.view),
                    node: Arc::clone(node),
                    host: self.host,
                    sightings: self.sightings.clone(),
                    factors: AuthorityFactors::new(self.client.clone(), &self.view),
                };
                let config = NodeConfig::default();
                NodeServer::among(
                    config,
                    &host,
                    Arc::new(directory),
                    Arc::clone(&self.sink),
                    self.recorders.clone(),
                    self.live.clone(),
                )
            }
        };
        let renew_at = now + (valid_until - now) * 0.6;
        targets.insert(node.id, Target { server: server.clone(), named, renew_at, valid_until });
        histogram!("sallyport_target_certificate_seconds", "for" => "server").record(began.elapsed());
        Ok(server)
    }

    async fn key(&self, purpose: KeyPurpose) -> Result<SshKeyPair, NoCertificate> {
        let suite = self.view.trust().suite();
        let made = tokio::task::spawn_blocking(move || SshKeyPair::generate_for(suite, purpose, "proxy"));
        Ok(made.await??)
    }

    async fn ask<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, NoCertificate> {
        let _place = self.asking.acquire().await?;
        let answer = tokio::time::timeout(CALL_TIMEOUT, call).await;
        let result = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
        counter!("sallyport_authority_calls_total", "method" => method, "result" => result).increment(1);
        match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                let words = status.message().to_owned();
                Err(match status.code() {
                    tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled => {
                        NoCertificate::NoAnswer(words)
                    }
                    _ => NoCertificate::Refused(words),
                })
            }
            Err(_) => Err(NoCertificate::NoAnswer("it does not answer; try again".to_owned())),
        }
    }

    /// What a user logs in to a server with. Who has something that lives does not wait: what is not fresh any more is
    /// replaced meanwhile, if the authority is there.
    async fn credentials(
        self: &Arc<Self>,
        identity: &Identity,
        (certificate, word): (&str, Option<&LoginWord>),
        node: &Arc<Node>,
        login: &Login,
    ) -> Result<Credentials, NoCertificate> {
        let key: LoginKey = (node.id, identity.login_id, login.clone(), word.is_some());
        let Some(held) = self.held(&key) else {
            let shown = (certificate, word.cloned());
            return self.certify_login(key, shown, node, login).await;
        };
        if held.is_due() {
            self.postpone(&key);
            let (recording, node) = (Arc::clone(self), Arc::clone(node));
            let (certificate, word, login) = (certificate.to_owned(), word.cloned(), login.clone());
            tasks::start(async move {
                match recording.certify_login(key.clone(), (&certificate, word), &node, &login).await {
                    Ok(_) => {}
                    Err(problem @ NoCertificate::NoAnswer(_)) => {
                        warn!(server = %node.name, %problem, "going on with an older certificate");
                    }
                    Err(problem) => {
                        warn!(server = %node.name, %problem, "no more certificates for a login");
                        recording.logins.lock().remove(&key);
                    }
                }
            });
        }
        Ok(held.credentials)
    }

    /// One asks for what replaces it; the others do not, for a while.
    fn postpone(&self, key: &LoginKey) {
        if let Some(held) = self.logins.lock().get_mut(key) {
            held.fresh_until = OffsetDateTime::now_utc() + RETRY;
        }
    }

    async fn certify_login(
        &self,
        key: LoginKey,
        (certificate, word): (&str, Option<LoginWord>),
        node: &Node,
        login: &Login,
    ) -> Result<Credentials, NoCertificate> {
        let began = std::time::Instant::now();
        let pair = self.key(KeyPurpose::UserSsh).await?;
        let request = CertifyForTargetRequest {
            node_id: node.id.to_string(),
            login: login.to_string(),
            user_certificate: certificate.to_owned(),
            ssh_public_key: pair.public_line().to_owned(),
            word,
        };
        let mut fleet = self.client.fleet();
        let answer = self.ask("CertifyForTarget", fleet.certify_for_target(request)).await?;
        let credentials = Credentials::from_openssh(&pair.private_openssh(), &answer.ssh_certificate)?;
        let now = OffsetDateTime::now_utc();
        let valid_until = answer.valid_until.as_ref().and_then(time_from_proto).unwrap_or(now);
        let mut logins = self.logins.lock();
        if logins.len() >= MOST_LOGINS {
            logins.retain(|_, held| held.valid_until > now);
            if logins.len() >= MOST_LOGINS {
                logins.clear();
            }
        }
        let held = HeldLogin { credentials: credentials.clone(), fresh_until: now + FRESH, valid_until };
        logins.insert(key, held);
        histogram!("sallyport_target_certificate_seconds", "for" => "user").record(began.elapsed());
        Ok(credentials)
    }

    fn held(&self, key: &LoginKey) -> Option<HeldLogin> {
        let now = OffsetDateTime::now_utc();
        self.logins.lock().get(key).filter(|held| held.valid_until - now > LEAST_LIFE).cloned()
    }
}

fn recording_key(view: &ClusterCache) -> Result<RecipientPublic, ServerError> {
    view.trust().recording_key().ok_or_else(|| {
        certificates("sessions cannot be recorded", "the cluster's trust has no recording key".to_owned())
    })
}

/// The server behind the listener, for one user's connection.
struct Behind {
    recording: Arc<RecordingProxy>,
    opener: Opener,
    client: ClientContext,
    node: Arc<Node>,
    server: OpenSshServer,
    pass: Pass,
    agent: Option<UserAgent>,
    word: Option<LoginWord>,
}

impl std::fmt::Debug for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Behind").field("node", &self.node.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Upstream for Behind {
    async fn dial(&self) -> Result<BoxedStream, UpstreamError> {
        // The trace of the way here has ended, or is held by who waits for this.
        let untraced = Span::none();
        self.opener
            .server(&self.client, &untraced, &self.node, &self.server, &self.pass, None)
            .await
            .map_err(|error| UpstreamError::Unreached(error.into()))
    }

    fn proof(&self) -> ServerProof {
        ServerProof {
            // Names of servers are not unique for ever; the id is.
            name: self.node.id.to_string(),
            trust: self.recording.view.trust(),
            pinned: self.server.host_key.clone(),
        }
    }

    fn name(&self) -> String {
        self.node.name.to_string()
    }

    fn login_by(&self) -> LoginBy {
        match (self.server.trust, &self.agent) {
            (ServerTrust::Openssh, _) => LoginBy::Itself,
            (ServerTrust::User, Some(agent)) => LoginBy::Agent(agent.clone()),
            (ServerTrust::User, None) => LoginBy::ForwardedAgent,
        }
    }

    fn signed(&self, login: &AgentLogin<'_>) {
        let certificate = login.certificate;
        let agent = if login.forwarded { "forwarded" } else { "client" };
        self.recording.sink.emit(
            Event::new(Code::SessionAgentSigned, OffsetDateTime::now_utc())
                .user(login.identity.display_name())
                .login(login.login.as_str())
                .node(self.node.name.as_str())
                .source(self.client.address.to_string())
                .message(format!("{} signed the login with their own key", login.identity.display_name()))
                .field("key", login.fingerprint())
                .field("key_id", certificate.key_id())
                .field("serial", certificate.serial().to_string())
                .field("agent", agent),
        );
    }

    async fn credentials(
        &self,
        identity: &Identity,
        certificate: &str,
        login: &Login,
    ) -> Result<Credentials, UpstreamError> {
        let shown = (certificate, self.word.as_ref());
        self.recording
            .credentials(identity, shown, &self.node, login)
            .await
            .map_err(|error| UpstreamError::NoCredentials(error.into()))
    }
}
