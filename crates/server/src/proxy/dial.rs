//! From a proven user and a target's name to an open way there, through a node's tunnel or to a registered server: the
//! one path that every front door of the proxy takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use metrics::{counter, histogram};
use sallyport_access::labels::HOST_PREFIX;
use sallyport_access::{
    HostId, Identity, JoinPermit, Login, Node, NodeKind, OpenSshServer, Permit, Principal, Refusal, UserName,
};
use sallyport_audit::{Code, Event, Sink};
use sallyport_ssh::BoxedStream;
use sallyport_ssh::agent::UserAgent;
use sallyport_ssh::client::PHASE;
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::stream_header::{Carries, ServerTarget, StreamHeader, UserCertificate};
use sallyport_wire::v1::LoginWord;
use time::OffsetDateTime;
use tracing::{Span, info, info_span, instrument};

use super::front::{Front, records_here};
use super::hub::Hub;
use super::way::Way;
use crate::reach::{ReachError, greeted, reach};
use crate::sessions::{SessionGuard, Sessions};
use crate::view::{ClusterView, Resolved};

/// Who wants to go somewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traveller<'a> {
    pub(crate) identity: &'a Identity,
    /// What proved it.
    pub(crate) proof: &'a UserCertificate,
    /// Where they come from.
    pub(crate) client: SocketAddr,
    /// Their agent, where they bring one.
    pub(crate) agent: Option<&'a UserAgent>,
    /// Their word for a login that a proxy makes in their place.
    pub(crate) word: Option<&'a LoginWord>,
    /// Whether SSH is all that they speak.
    pub(crate) ssh_alone: bool,
    /// Around all that is done for them until they are there, for traces. Never entered: what is spawned meanwhile would
    /// keep it.
    pub(crate) opening: &'a Span,
}

/// Candidates that are told when a name is ambiguous, and labels of each.
const MOST_CANDIDATES: usize = 10;
const MOST_LABELS_SHOWN: usize = 8;

/// The proof that somebody may be let through to a node.
#[derive(Debug, Clone)]
pub(crate) enum Pass {
    /// To log in there.
    Login(Permit),
    /// To take part in sessions of others there; in which, the node decides.
    Join(JoinPermit),
}

impl Pass {
    /// Where.
    pub(crate) fn node(&self) -> HostId {
        match self {
            Self::Login(permit) => permit.node(),
            Self::Join(permit) => permit.node(),
        }
    }

    fn login(&self) -> &str {
        match self {
            Self::Login(permit) => permit.login().as_str(),
            Self::Join(_) => JOIN_LOGIN,
        }
    }
}

/// An open way to a node.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: Way,
    pub(crate) node: Arc<Node>,
    pub(crate) pass: Pass,
    pub(crate) guard: SessionGuard,
    pub(crate) took: Took,
}

/// How long it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    /// To find the node and to decide.
    pub(crate) decision: Duration,
    /// To open the way there.
    pub(crate) open: Duration,
}

/// Why there is none. `Display` is for the person at the other end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The peer: no such node.
    #[error("no node is called {0:?}; `sallyport ls` lists those that you may use")]
    Unknown(String),
    /// The peer: the name fits several.
    #[error("{name:?} is the name of {count} nodes; use the id of one in its place:{candidates}")]
    Ambiguous { name: String, count: usize, candidates: String },
    /// The peer: the roles or a lock say no.
    #[error("{}", .0.public_message())]
    Refused(Refusal),
    /// The peer: too many at once.
    #[error(
        "you have {0} ways to nodes and databases through this proxy, as many as one user may have \
         (proxy.limits.sessions_per_user); close some and try again, or ask an administrator to raise the limit"
    )]
    TooMany(usize),
    /// The operator: the node's agent is away.
    #[error("node {0} is not connected to this proxy; check that its agent runs and can reach the proxy")]
    Offline(String),
    /// The operator: a registered server cannot be reached.
    #[error("server {node}: {source}")]
    Server { node: String, source: ReachError },
    /// The operator: the gateway of a registered server is away.
    #[error("server {node} is reached through the agent of {via}, which {problem}")]
    Gateway { node: String, via: String, problem: &'static str },
    /// The operator: this proxy cannot stand in front of a server whose sessions it records.
    #[error("sessions on {node} are recorded at this proxy, which is not possible now: {problem}")]
    Front { node: String, problem: String },
    /// The peer: this proxy knows no session there.
    #[error("no session on the server {0} is recorded at this proxy, and others there cannot be joined")]
    NotJoinable(String),
    /// This proxy is stopping.
    #[error("this proxy is shutting down; try again in a moment")]
    Stopping,
}

impl DialError {
    /// A stable word for metrics and events.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_node",
            Self::Ambiguous { .. } => "ambiguous_node",
            Self::Refused(_) => "refused",
            Self::TooMany(_) => "too_many_sessions",
            Self::Offline(_) => "offline",
            Self::Server { .. } => "unreachable",
            Self::Gateway { .. } => "gateway_offline",
            Self::Front { .. } => "not_recordable",
            Self::NotJoinable(_) => "not_joinable",
            Self::Stopping => "stopping",
        }
    }
}

/// Opens ways to nodes.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) view: Arc<ClusterView>,
    pub(crate) hub: Hub,
    pub(crate) sessions: Sessions,
    pub(crate) sink: Arc<dyn Sink>,
    /// For servers whose sessions are recorded here.
    pub(crate) front: Arc<Front>,
    pub(crate) stopping: tokio_util::sync::CancellationToken,
}

impl std::fmt::Debug for Dialler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialler").field("hub", &self.hub).finish_non_exhaustive()
    }
}

impl Dialler {
    /// Finds, decides and opens. `login` is `None` where the protocol does not tell it to the proxy; then any login
    /// that the user has there will do, and the node decides about the one that is asked for.
    #[instrument(name = "proxy.dial", skip_all, fields(user = %traveller.identity.display_name(), node = target))]
    pub(crate) async fn dial(
        &self,
        traveller: Traveller<'_>,
        target: &str,
        login: Option<&Login>,
        now: OffsetDateTime,
    ) -> Result<Dialled, DialError> {
        let began = Instant::now();
        let result = self.attempt(traveller, target, login, now).await;
        histogram!("sallyport_session_open_seconds").record(began.elapsed());
        match &result {
            Ok(dialled) => {
                counter!("sallyport_sessions_total", "result" => "opened").increment(1);
                info!(node_id = %dialled.node.id, login = dialled.pass.login(), "session opened");
                self.report_opened(traveller, dialled, now);
            }
            Err(error) => {
                counter!("sallyport_sessions_total", "result" => error.name()).increment(1);
                traveller.opening.record("error.type", error.name());
                info!(reason = error.name(), message = %error, "session refused");
                self.report(traveller, target, login, error, now);
            }
        }
        result
    }

    async fn attempt(
        &self,
        traveller: Traveller<'_>,
        target: &str,
        login: Option<&Login>,
        now: OffsetDateTime,
    ) -> Result<Dialled, DialError> {
        let began = Instant::now();
        let identity = traveller.identity;
        if self.stopping.is_cancelled() {
            return Err(DialError::Stopping);
        }
        let deciding = info_span!(target: PHASE, parent: traveller.opening, "decision");
        let node = match self.view.resolve(target) {
            Resolved::One(node) => node,
            Resolved::Unknown => return Err(DialError::Unknown(target.chars().take(253).collect())),
            Resolved::Several(nodes) => self.one_of(identity, target, nodes)?,
        };
        let pass = self.decide(identity, &node, login, now)?;
        let Some(user) = identity.user() else { return Err(DialError::Unknown(target.to_owned())) };
        let guard = self.sessions.begin(user).map_err(|too_many| DialError::TooMany(too_many.bound))?;
        let decision = began.elapsed();
        drop(deciding);
        let _opening = info_span!(target: PHASE, parent: traveller.opening, "tunnel");
        let stream = match &node.kind {
            NodeKind::Sallyport => {
                let stream = self
                    .hub
                    .open(&pass, header(traveller, user, Carries::Ssh { ssh_alone: traveller.ssh_alone }));
                Way::Tunnel(stream.map_err(|_| DialError::Offline(node.name.to_string()))?)
            }
            NodeKind::OpenSsh(server) => match &pass {
                Pass::Login(permit) if !records_here(&self.view, identity, &node, permit) => {
                    Way::over(self.server(traveller, user, &node, server, &pass, login).await?)
                }
                // Who comes to join gets to the front door, and no further.
                Pass::Join(_) if !self.front.live().any_on(node.id) => {
                    return Err(DialError::NotJoinable(node.name.to_string()));
                }
                Pass::Login(_) | Pass::Join(_) => {
                    let entered = self
                        .front
                        .enter(self.clone(), traveller, user, &node, server, &pass)
                        .await
                        .map_err(|problem| DialError::Front { node: node.name.to_string(), problem })?;
                    Way::over(entered)
                }
            },
        };
        let took = Took { decision, open: began.elapsed().saturating_sub(decision) };
        Ok(Dialled { stream, node, pass, guard, took })
    }

    /// A way to a registered server. It has greeted as SSH servers do.
    pub(crate) async fn server(
        &self,
        traveller: Traveller<'_>,
        user: &UserName,
        node: &Node,
        server: &OpenSshServer,
        pass: &Pass,
        login: Option<&Login>,
    ) -> Result<BoxedStream, DialError> {
        if matches!(pass, Pass::Join(_)) {
            return Err(DialError::NotJoinable(node.name.to_string()));
        }
        let failed = |source| DialError::Server { node: node.name.to_string(), source };
        let Some(via) = &server.via else {
            return reach(&server.address).await.map_err(failed);
        };
        let gateway =
            |problem| DialError::Gateway { node: node.name.to_string(), via: via.to_string(), problem };
        let at = match self.view.resolve(via.as_str()) {
            Resolved::One(at) => at,
            Resolved::Unknown => {
                return Err(gateway("does not exist; correct it: sallyport admin edit node/NAME"));
            }
            Resolved::Several(_) => return Err(gateway("several nodes have as their name")),
        };
        let target = ServerTarget { node: node.id, login: login.cloned(), proof: traveller.proof.clone() };
        let stream = self
            .hub
            .open_through(at.id, pass, header(traveller, user, Carries::OpenSsh { server: target }))
            .map_err(|_| gateway("is not connected to this proxy"))?;
        greeted(stream, &server.address).await.map_err(failed)
    }

    /// Of several nodes with one name, the only one that the user can mean. Others are none of the user's business.
    fn one_of(
        &self,
        identity: &Identity,
        target: &str,
        nodes: Vec<Arc<Node>>,
    ) -> Result<Arc<Node>, DialError> {
        let policies = self.view.policies();
        let first = nodes.first().cloned();
        let mut reachable: Vec<Arc<Node>> =
            nodes.into_iter().filter(|node| !policies.logins_on(identity, node).is_empty()).collect();
        reachable.sort_by_key(|node| node.id);
        match (reachable.as_slice(), first) {
            ([only], _) => Ok(Arc::clone(only)),
            // Refused for one as for any.
            ([], Some(first)) => Ok(first),
            ([], None) => Err(DialError::Unknown(target.to_owned())),
            (several, _) => Err(DialError::Ambiguous {
                name: target.to_owned(),
                count: several.len(),
                candidates: candidates_shown(several),
            }),
        }
    }

    fn decide(
        &self,
        identity: &Identity,
        node: &Node,
        login: Option<&Login>,
        now: OffsetDateTime,
    ) -> Result<Pass, DialError> {
        let join = || {
            let (policies, locks) = (self.view.policies(), self.view.locks());
            policies.may_reach_to_join(identity, node, &locks, now).map(Pass::Join)
        };
        if login.is_some_and(|login| login.as_str() == JOIN_LOGIN) {
            return join().map_err(DialError::Refused);
        }
        permit(&self.view, identity, node, login, now).map(Pass::Login).or_else(|refusal| {
            // Who may log in nowhere there may have come to join; then the protocol has not told the proxy.
            match (login, join()) {
                (None, Ok(pass)) => Ok(pass),
                _ => {
                    Err(refusal.map_or_else(|| DialError::Unknown(node.name.to_string()), DialError::Refused))
                }
            }
        })
    }

    /// Says that there is a way to a node now. What runs there can keep a node from telling, but not a proxy.
    fn report_opened(&self, traveller: Traveller<'_>, dialled: &Dialled, now: OffsetDateTime) {
        let event = Event::new(Code::StreamOpened, now)
            .user(traveller.identity.display_name())
            .node(dialled.node.name.as_str())
            .login(dialled.pass.login())
            .source(traveller.client.to_string())
            .field("node_id", dialled.node.id.to_string())
            .field("at", "proxy");
        self.sink.emit(event);
    }

    fn report(
        &self,
        traveller: Traveller<'_>,
        target: &str,
        login: Option<&Login>,
        error: &DialError,
        now: OffsetDateTime,
    ) {
        let detail = match error {
            DialError::Refused(refusal) => refusal.to_string(),
            other => other.to_string(),
        };
        let mut event = Event::new(Code::SessionRefused, now)
            .user(traveller.identity.display_name())
            .node(target.chars().take(253).collect::<String>())
            .source(traveller.client.to_string())
            .message(detail)
            .field("reason", error.name())
            .field("at", "proxy");
        if let Some(login) = login {
            event = event.login(login.as_str());
        }
        self.sink.emit(event);
    }
}

fn header(traveller: Traveller<'_>, user: &UserName, carries: Carries) -> Bytes {
    let traceparent = sallyport_telemetry::context(traveller.opening).map(|context| context.to_string());
    StreamHeader::new(traveller.client, user.as_str(), traceparent, carries).encode()
}

/// The permit of an identity for a node: for the login, or, where it is not known, for any that is allowed.
pub(crate) fn permit(
    view: &ClusterView,
    identity: &Identity,
    node: &Node,
    login: Option<&Login>,
    now: OffsetDateTime,
) -> Result<Permit, Option<Refusal>> {
    let policies = view.policies();
    let locks = view.locks();
    if let Some(login) = login {
        return policies.decide(identity, node, login, &locks, now).map_err(Some);
    }
    let mut refusal = None;
    for login in candidates(policies.logins_on(identity, node), identity) {
        match policies.decide(identity, node, &login, &locks, now) {
            Ok(permit) => return Ok(permit),
            Err(why) => refusal = refusal.or(Some(why)),
        }
    }
    Err(refusal)
}

/// Ids and labels, a line each, for people at a terminal.
fn candidates_shown(nodes: &[Arc<Node>]) -> String {
    let mut text = String::new();
    for node in nodes.iter().take(MOST_CANDIDATES) {
        let labels = node.labels.iter().filter(|(key, _)| !key.starts_with(HOST_PREFIX));
        let labels: Vec<String> =
            labels.take(MOST_LABELS_SHOWN).map(|(key, value)| format!("{key}={value}")).collect();
        let labels = labels.join(", ");
        // Nodes that joined before labels were checked may have anything in them.
        let labels: String = labels.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        text.push_str(format!("\n  {}  {labels}", node.id).trim_end());
    }
    if nodes.len() > MOST_CANDIDATES {
        text.push_str(&format!("\n  and {} more", nodes.len() - MOST_CANDIDATES));
    }
    text
}

/// Logins to ask about when the user has not named one. With none allowed, asking about any gives the refusal that
/// names the reason.
fn candidates(allowed: Vec<Login>, identity: &Identity) -> Vec<Login> {
    if !allowed.is_empty() {
        return allowed;
    }
    let Principal::User { name, logins, .. } = &identity.principal else { return Vec::new() };
    match logins.first() {
        Some(login) => vec![login.clone()],
        None => Login::new(name.as_str()).into_iter().collect(),
    }
}
