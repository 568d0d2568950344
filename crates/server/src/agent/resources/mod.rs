//! Resources of the catalogue that this agent serves, whatever their kind: the user proves the certificate to this agent, what is
//! asked for is decided about again, and only what the authority says that this agent serves is dialled.

mod client;
mod dial;
mod refusal;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use metrics::counter;
use prost::Message;
use sallyport_access::{
    ClusterName, HostId, Identity, Kind, Listed, NodeName, Permit, Refusal as Refused, SessionId,
};
use sallyport_audit::recording::{Recorders, SessionMetadata};
use sallyport_audit::{Event, PHASE, Sink};
use sallyport_session::factor::Shown;
use sallyport_session::serving::{Carried, Serving, Tally};
use sallyport_session::{About, Denied, End, Evidence, Host, How, LiveSessions, Session, Watched};
use sallyport_wire::stream_header::{HeaderError, ResourceTarget};
use sallyport_wire::v1::{ResourceOpened, ResourceOpening};
use sallyport_wire::{preamble, tunnel};
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch::Receiver;
use tracing::{Span, info, info_span, warn};

use self::client::Client;
use self::refusal::Refusal;
use super::end_to_end::{Endpoint, Proven};
use super::health::{self, Name, Unwell};
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::Credentials;
use crate::member::session_factors::AuthorityFactors;
use crate::proxy::open::shown;

/// What users read whose session is cut when this agent stops.
const STOPPING: &str = "the agent is shutting down";
/// How long a program has to take why nothing is opened.
const GRACE: Duration = Duration::from_secs(3);

/// How often a drain looks whether the last session has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What the service of resources starts from.
pub(crate) struct Start {
    pub(crate) cluster: ClusterName,
    pub(crate) id: HostId,
    /// By its configuration.
    pub(crate) name: NodeName,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) host: Credentials,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) recorders: Recorders,
    pub(crate) live: LiveSessions,
    pub(crate) factors: AuthorityFactors,
}

/// The resources of this agent.
#[derive(Clone)]
pub(crate) struct AgentResources(Arc<Inner>);

struct Inner {
    cluster: ClusterName,
    id: HostId,
    name: NodeName,
    view: Arc<ClusterCache>,
    host: Credentials,
    sink: Arc<dyn Sink>,
    sessions: Host,
    factors: AuthorityFactors,
    endpoints: BTreeMap<Kind, Served>,
}

/// One kind.
struct Served {
    serving: &'static Serving,
    endpoint: Endpoint,
}

impl std::fmt::Debug for AgentResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentResources").field("sessions", &self.0.sessions).finish_non_exhaustive()
    }
}

impl AgentResources {
    pub(crate) fn new(start: Start) -> Self {
        let Start { cluster, id, name, view, host, sink, recorders, live, factors } = start;
        let sessions = Host::new(Arc::clone(&sink), recorders, live, "agent", STOPPING);
        let endpoints = sallyport_protocols::ALL.iter().filter_map(|row| {
            let (serving, alpn) = (row.catalogued?, row.inner_alpn?);
            Some((row.kind, Served { serving, endpoint: Endpoint::new(alpn) }))
        });
        let endpoints = endpoints.collect();
        Self(Arc::new(Inner { cluster, id, name, view, host, sink, sessions, factors, endpoints }))
    }

    /// Serves one stream to its end: TLS from the user's program, whatever the proxy says of it.
    pub(crate) async fn serve(
        self,
        target: ResourceTarget,
        stream: tunnel::Stream,
        source: SocketAddr,
        opening: Span,
    ) {
        let kind = Kind::of_document(&target.kind);
        let Some((kind, served)) = kind.and_then(|kind| Some((kind, self.0.endpoints.get(&kind)?))) else {
            let kind = target.kind.chars().take(32).collect();
            let error = HeaderError::Resource(kind);
            opening.record("error.type", "unknown_kind");
            warn!(%error, "a stream is refused");
            return stream.reset(&error.to_string());
        };
        let shaking = info_span!(target: PHASE, parent: &opening, "resource.handshake");
        let accepted = served.endpoint.accept(&self.0.host, &self.0.view, stream).await;
        drop(shaking);
        let Proven { stream, identity, certificate, said } = match accepted {
            Ok(proven) => proven,
            Err(error) => {
                opening.record("error.type", "refused");
                let problem = format!("the user's program proved no certificate of this cluster: {error}");
                warn!(problem, "a stream for a resource is refused");
                counted(kind, "unproven");
                let event = self.0.refused(served.serving, &target.name, source).field("reason", "unproven");
                return self.0.sink.emit(event.message(problem));
            }
        };
        let serving = served.serving;
        let asked = Asked { inner: &self.0, kind, serving, target, identity, certificate, source };
        let mut client = Client::new(stream);
        match asked.begin(&said).await {
            Ok(begun) => {
                drop(opening);
                asked.carry(client, begun).await;
            }
            Err(refusal) => {
                opening.record("error.type", refusal.reason());
                asked.refuse(&mut client, refusal).await;
            }
        }
    }

    /// The resources that this agent serves, to be asked whether they answer.
    pub(crate) fn checks(&self) -> Vec<ServedResource> {
        let own = self.0.own_name();
        let mut checks = Vec::new();
        for (kind, served) in &self.0.endpoints {
            let mut listed = self.0.view.listed_of(*kind);
            listed.retain(|listed| listed.agents.contains(&own));
            let serving = served.serving;
            checks.extend(listed.into_iter().map(|listed| ServedResource { listed, serving }));
        }
        checks
    }

    /// Sessions that go on.
    pub(crate) fn sessions(&self) -> usize {
        self.0.sessions.sessions()
    }

    /// Waits for open sessions to end; gives how many are left.
    pub(crate) async fn drained(&self, patience: Duration) -> usize {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let ended = async {
            while self.sessions() > 0 {
                look.tick().await;
            }
        };
        let _ = tokio::time::timeout(patience, ended).await;
        self.sessions()
    }

    /// Cuts what is left, and waits for its records.
    pub(crate) async fn end_all(&self) {
        self.0.sessions.drain(Duration::ZERO).await;
    }
}

/// A resource that this agent serves.
#[derive(Clone)]
pub(crate) struct ServedResource {
    listed: Arc<Listed>,
    serving: &'static Serving,
}

impl health::Served for ServedResource {
    fn name(&self) -> Name {
        (self.listed.kind, self.listed.name.to_string())
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.listed, &other.listed)
    }

    /// Whatever the kind, by a connection to what is dialled for a session.
    fn ask(&self) -> BoxFuture<'static, Result<(), Unwell>> {
        let address = (self.serving.address)(&self.listed);
        Box::pin(async move {
            let address = address.ok_or(Refusal::NotUnderstood)?;
            dial::answers(&address).await.map_err(Unwell::from)
        })
    }
}

fn counted(kind: Kind, result: &'static str) {
    counter!("sallyport_resource_sessions_total", "kind" => kind.row().document, "result" => result)
        .increment(1);
}

impl Inner {
    /// What this agent is called now: nodes may be renamed.
    fn own_name(&self) -> NodeName {
        self.view.node(&self.id).map_or_else(|| self.name.clone(), |node| node.name.clone())
    }

    /// A resource that the authority says this agent serves. What another agent serves, or none any more, is not
    /// dialled from here.
    fn served(&self, kind: Kind, name: &str) -> Option<Arc<Listed>> {
        let own = self.own_name();
        self.view.listed(kind, name).filter(|listed| listed.agents.contains(&own))
    }

    fn decide(
        &self,
        identity: &Identity,
        listed: &Listed,
        now: OffsetDateTime,
    ) -> Result<Permit<Listed>, Refused> {
        self.view.policies().decide(identity, listed, &(), &self.view.locks(), now)
    }

    fn refused(&self, serving: &Serving, name: &str, source: SocketAddr) -> Event {
        Event::new(serving.codes.refused.clone(), OffsetDateTime::now_utc())
            .node(shown(name))
            .source(source.to_string())
            .source_by_proxy()
            .field("at", "agent")
    }
}

/// What a proven user asks for.
struct Asked<'a> {
    inner: &'a Inner,
    kind: Kind,
    serving: &'static Serving,
    /// As the proxy says it.
    target: ResourceTarget,
    identity: Identity,
    /// As the program has shown it, DER.
    certificate: Bytes,
    source: SocketAddr,
}

/// A session that has begun.
struct Begun {
    session: Session,
    /// What was dialled, as the document had it then.
    address: String,
    upstream: tokio::net::TcpStream,
}

impl Asked<'_> {
    /// Finds what the program says inside TLS, decides, dials and begins the session.
    async fn begin(&self, said: &[u8]) -> Result<Begun, Refusal> {
        let said = ResourceOpening::decode(said).map_err(|_| Refusal::Malformed)?;
        if said.kind != self.target.kind || said.name != self.target.name {
            // The proxy would have the user's bytes go elsewhere.
            return Err(Refusal::Contradicted(shown(&said.name).to_owned()));
        }
        let (inner, row) = (self.inner, self.kind.row());
        let own = inner.own_name();
        let listed = inner.served(self.kind, &said.name).ok_or_else(|| Refusal::NotServed {
            word: row.word,
            name: shown(&said.name).to_owned(),
            agent: own.clone(),
        })?;
        let permit = inner.decide(&self.identity, &listed, OffsetDateTime::now_utc())?;
        let shown = || Ok(Shown::Tls(self.certificate.clone()));
        let evidence =
            Evidence::gather(&self.identity, permit.factor(), &inner.factors, shown, Some(self.source))
                .await?;
        let address = (self.serving.address)(&listed).ok_or(Refusal::NotUnderstood)?;
        let upstream = dial::dial(&permit, &address).await.map_err(|problem| Refusal::NotReached {
            word: row.word,
            document: row.document,
            name: listed.name.to_string(),
            agent: own.clone(),
            problem,
        })?;
        let about = self.about(&listed, (&permit, &evidence), &own, &address);
        let codes = self.serving.codes.clone();
        let how = How::events_alone();
        let session = Session::begin(&inner.sessions, &permit, about, &self.identity, codes, how).await?;
        session.started(|event| event);
        info!(session = %session.id(), user = %self.identity.display_name(), resource = %permit.resource(), "session with a resource");
        counted(self.kind, "opened");
        Ok(Begun { session, address, upstream })
    }

    fn about(
        &self,
        listed: &Listed,
        (permit, evidence): (&Permit<Listed>, &Evidence),
        agent: &NodeName,
        address: &str,
    ) -> About {
        let metadata = SessionMetadata {
            session_id: SessionId::on(&self.inner.id),
            cluster: self.inner.cluster.to_string(),
            user: permit.user().to_string(),
            login: String::new(),
            node: listed.name.to_string(),
            node_id: self.inner.id.to_string(),
            source: self.source.to_string(),
            started: OffsetDateTime::now_utc(),
            kind: self.kind.row().document.to_owned(),
            command: None,
            term: None,
            size: None,
            application: None,
        };
        About::new(metadata, evidence)
            .told_by_proxy(true)
            .with("agent", agent.as_str())
            .with("address", address)
    }

    /// Carries the bytes of a session until it is over, and puts its end on record.
    async fn carry(&self, mut client: Client, begun: Begun) {
        let Begun { session, address, mut upstream } = begun;
        let tally = Tally::default();
        let ended = {
            let opened = preamble::encode(&ResourceOpened::default());
            let watched = Watch { asked: self, address: &address };
            let carried = async {
                if let Err(error) = said(&mut client, &opened).await {
                    return End::Lost(format!("the user's program is gone: {error}"));
                }
                let carried = Carried {
                    client: &mut client,
                    upstream: &mut upstream,
                    session: &session,
                    tally: &tally,
                };
                (self.serving.carry)(carried).await
            };
            tokio::select! {
                ended = carried => ended,
                stop = session.stopped(&watched) => End::Stopped(stop),
            }
        };
        match &ended {
            End::Done(_) => client.finish().await,
            // The proxy hands the reason on to the program.
            End::Lost(words) => client.reset(words),
            End::Stopped(stop) => client.reset(&stop.to_string()),
        }
        drop(upstream);
        session.end(ended, tally.counts()).await;
    }

    /// Says no to the program, and puts it on record.
    async fn refuse(&self, client: &mut Client, refusal: Refusal) {
        let reason = refusal.reason();
        info!(user = %self.identity.display_name(), asked = self.target.name, reason, "session with a resource refused");
        counted(self.kind, reason);
        if !refusal.is_told() {
            let event = self.inner.refused(self.serving, &self.target.name, self.source);
            let event = event.user(self.identity.display_name()).field("reason", reason);
            self.inner.sink.emit(event.message(refusal.detail()));
        }
        let answer = ResourceOpened {
            refused: refusal.to_string(),
            hint: refusal.hint(),
            denied: refusal.is_denied(),
        };
        let saying = async {
            if said(client, &preamble::encode(&answer)).await.is_ok() {
                client.finish().await;
            }
        };
        // The program may read nothing.
        let _ = tokio::time::timeout(GRACE, saying).await;
    }
}

async fn said(client: &mut Client, bytes: &[u8]) -> std::io::Result<()> {
    client.write_all(bytes).await?;
    client.flush().await
}

/// Whether a session may go on, by this agent's copy of the cluster's state.
struct Watch<'a> {
    asked: &'a Asked<'a>,
    /// What was dialled.
    address: &'a str,
}

impl Watched for Watch<'_> {
    fn changes(&self) -> Receiver<u64> {
        self.asked.inner.view.changes()
    }

    fn denied(&self, now: OffsetDateTime) -> Option<Denied> {
        let Asked { inner, kind, serving, target, identity, .. } = self.asked;
        match inner.served(*kind, &target.name) {
            None => {
                let (word, agent) = (kind.row().word, inner.own_name());
                Some(Denied::new(format!("the agent of {agent} does not serve this {word} any more")))
            }
            Some(listed) if (serving.address)(&listed).as_deref() != Some(self.address) => {
                let word = kind.row().word;
                Some(Denied::new(format!("this {word} is registered with another address now")))
            }
            Some(listed) => inner.decide(identity, &listed, now).err().map(Denied::from),
        }
    }
}
