//! Nodes and registered servers: through an agent's tunnel, by dialling, or through this proxy's own recording.

use std::sync::Arc;

use bytes::Bytes;
use sallyport_access::labels::HOST_PREFIX;
use sallyport_access::{
    HostId, Identity, JoinPermit, Login, Node, NodeKind, OpenSshServer, Permit, Principal, Refusal, UserName,
};
use sallyport_audit::{Code, Event};
use sallyport_ssh::BoxedStream;
use sallyport_ssh::agent::UserAgent;
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::stream_header::{Carries, ServerTarget, StreamHeader};
use sallyport_wire::v1::LoginWord;
use time::OffsetDateTime;
use tracing::{Span, info};

use super::open::{Asks, ClientContext, Opener, Refused};
use super::recording_proxy::{RecordingProxy, records_here};
use super::upstream::Upstream;
use crate::reach::{ReachError, greeted, reach};
use crate::view::{ClusterView, Resolved};

/// Candidates that are told when a name is ambiguous, and labels of each.
const MOST_CANDIDATES: usize = 10;
const MOST_LABELS_SHOWN: usize = 8;

/// The proof that a user may be let through to a node.
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

    fn user(&self) -> &UserName {
        match self {
            Self::Login(permit) => permit.user(),
            Self::Join(permit) => permit.user(),
        }
    }

    fn login(&self) -> &str {
        match self {
            Self::Login(permit) => permit.login().as_str(),
            Self::Join(_) => JOIN_LOGIN,
        }
    }
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
    /// The peer: hosts have no sessions.
    #[error("hosts do not open sessions; log in as a user")]
    NoUser,
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
    NotRecordable { node: String, problem: String },
    /// The peer: this proxy knows no session there.
    #[error("no session on the server {0} is recorded at this proxy, and others there cannot be joined")]
    NotJoinable(String),
    /// This proxy is stopping.
    #[error("this proxy is shutting down; try again in a moment")]
    Stopping,
}

impl Refused for DialError {
    fn stopping() -> Self {
        Self::Stopping
    }

    fn too_many(bound: usize) -> Self {
        Self::TooMany(bound)
    }

    fn no_user() -> Self {
        Self::NoUser
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_node",
            Self::Ambiguous { .. } => "ambiguous_node",
            Self::Refused(_) => "refused",
            Self::NoUser => "no_user",
            Self::TooMany(_) => "too_many_sessions",
            Self::Offline(_) => "offline",
            Self::Server { .. } => "unreachable",
            Self::Gateway { .. } => "gateway_offline",
            Self::NotRecordable { .. } => "not_recordable",
            Self::NotJoinable(_) => "not_joinable",
            Self::Stopping => "stopping",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string(),
            other => other.to_string(),
        }
    }
}

/// The ways to nodes.
#[derive(Clone)]
pub(crate) struct Nodes {
    pub(crate) opener: Opener,
    /// For servers whose sessions are recorded here.
    pub(crate) recording: Arc<RecordingProxy>,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("opener", &self.opener).finish_non_exhaustive()
    }
}

/// A node that a client asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeAsked<'a> {
    pub(crate) nodes: &'a Nodes,
    /// By its name or id.
    pub(crate) target: &'a str,
    /// `None` where the protocol does not tell it to the proxy; then any login that the user has there will do, and the node
    /// decides about the one that is asked for.
    pub(crate) login: Option<&'a Login>,
    /// The user's agent, where the client brings one.
    pub(crate) agent: Option<&'a UserAgent>,
    /// The user's word for a login that a proxy makes in the user's place.
    pub(crate) word: Option<&'a LoginWord>,
    /// Whether SSH is all that the client speaks.
    pub(crate) ssh_alone: bool,
}

impl Asks for NodeAsked<'_> {
    type Found = Arc<Node>;
    type Permit = Pass;
    type Place = ();
    type Stream = Upstream;
    type Error = DialError;

    const REFUSED: Code = Code::SessionRefused;

    fn find(&self, client: &ClientContext, opener: &Opener) -> Result<Arc<Node>, DialError> {
        match opener.view.resolve(self.target) {
            Resolved::One(node) => Ok(node),
            Resolved::Unknown => Err(DialError::Unknown(self.target.chars().take(253).collect())),
            Resolved::Several(nodes) => one_of(&opener.view, &client.identity, self.target, nodes),
        }
    }

    fn decide(
        &self,
        client: &ClientContext,
        node: &Arc<Node>,
        opener: &Opener,
        now: OffsetDateTime,
    ) -> Result<Pass, DialError> {
        let identity = &client.identity;
        let join = || {
            let (policies, locks) = (opener.view.policies(), opener.view.locks());
            policies.may_reach_to_join(identity, node, &locks, now).map(Pass::Join)
        };
        if self.login.is_some_and(|login| login.as_str() == JOIN_LOGIN) {
            return join().map_err(DialError::Refused);
        }
        permit(&opener.view, identity, node, self.login, now).map(Pass::Login).or_else(|refusal| {
            // Who may log in nowhere there may have come to join; then the protocol has not told the proxy.
            match (self.login, join()) {
                (None, Ok(pass)) => Ok(pass),
                _ => {
                    Err(refusal.map_or_else(|| DialError::Unknown(node.name.to_string()), DialError::Refused))
                }
            }
        })
    }

    fn place(&self, _: &Pass, _: &Opener) -> Result<(), DialError> {
        Ok(())
    }

    async fn route(
        &self,
        client: &ClientContext,
        node: &Arc<Node>,
        pass: &Pass,
        (opener, opening): (&Opener, &Span),
        _: OffsetDateTime,
    ) -> Result<Upstream, DialError> {
        let server = match &node.kind {
            NodeKind::Sallyport => {
                let carries = Carries::Ssh { ssh_alone: self.ssh_alone };
                let stream = opener.hub.open(pass, header(client, pass.user(), opening, carries));
                return Ok(Upstream::Tunnel(stream.map_err(|_| DialError::Offline(node.name.to_string()))?));
            }
            NodeKind::OpenSsh(server) => server,
        };
        match pass {
            Pass::Login(permit) if !records_here(&opener.view, &client.identity, node, permit) => {
                let stream = self.nodes.server(client, opening, node, server, pass, self.login).await?;
                Ok(Upstream::over(stream))
            }
            // Who comes to join gets to the recording proxy, and no further.
            Pass::Join(_) if !self.nodes.recording.live().any_on(node.id) => {
                Err(DialError::NotJoinable(node.name.to_string()))
            }
            Pass::Login(_) | Pass::Join(_) => {
                let recording = &self.nodes.recording;
                let entered = recording.enter(self, client, opening, (node, server), pass).await;
                let entered = entered
                    .map_err(|problem| DialError::NotRecordable { node: node.name.to_string(), problem })?;
                Ok(Upstream::over(entered))
            }
        }
    }

    fn refused(&self, event: Event, _: &DialError) -> Event {
        let event = event.node(self.target.chars().take(253).collect::<String>());
        match self.login {
            Some(login) => event.login(login.as_str()),
            None => event,
        }
    }

    fn opened(&self, event: Event, node: &Arc<Node>, pass: &Pass, _: &Upstream) -> Event {
        info!(node_id = %node.id, login = pass.login(), "session opened");
        event.node(node.name.as_str()).login(pass.login()).field("node_id", node.id.to_string())
    }
}

impl Nodes {
    /// A way to a registered server. It has greeted as SSH servers do.
    pub(crate) async fn server(
        &self,
        client: &ClientContext,
        opening: &Span,
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
        let at = match self.opener.view.resolve(via.as_str()) {
            Resolved::One(at) => at,
            Resolved::Unknown => {
                return Err(gateway("does not exist; correct it: sallyport admin edit node/NAME"));
            }
            Resolved::Several(_) => return Err(gateway("several nodes have as their name")),
        };
        let target = ServerTarget { node: node.id, login: login.cloned(), proof: client.certificate.clone() };
        let header = header(client, pass.user(), opening, Carries::OpenSsh { server: target });
        let stream = self.opener.hub.open_through(at.id, pass, header);
        let stream = stream.map_err(|_| gateway("is not connected to this proxy"))?;
        greeted(stream, &server.address).await.map_err(failed)
    }
}

/// Of several nodes with one name, the only one that the user can mean. Others are none of the user's business.
fn one_of(
    view: &ClusterView,
    identity: &Identity,
    target: &str,
    nodes: Vec<Arc<Node>>,
) -> Result<Arc<Node>, DialError> {
    let policies = view.policies();
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

fn header(client: &ClientContext, user: &UserName, opening: &Span, carries: Carries) -> Bytes {
    let traceparent = sallyport_telemetry::context(opening).map(|context| context.to_string());
    StreamHeader::new(client.address, user.as_str(), traceparent, carries).encode()
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
