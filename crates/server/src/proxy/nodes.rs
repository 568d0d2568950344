//! Nodes and registered servers: through an agent's tunnel, by dialling, or through this proxy's own recording.

use std::sync::Arc;

use sallyport_access::labels::HOST_PREFIX;
use sallyport_access::{
    FactorDemand, Identity, Login, Node, NodeKind, Permit, Principal, Refusal, ServerTrust,
};
use sallyport_audit::{Code, Event};
use sallyport_ssh::agent::UserAgent;
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::stream_header::Carries;
use sallyport_wire::v1::LoginWord;
use time::OffsetDateTime;
use tracing::{Span, info};

use super::open::{Asks, ClientContext, Opener, shown};
use super::pass::Pass;
use super::recording_proxy::{Enters, RecordingProxy, records_here};
use super::servers::{DialError, header};
use super::upstream::Upstream;
use crate::member::cluster_cache::{ClusterCache, Resolved};
use crate::member::session_factors::demand_of;

/// Candidates that are told when a name is ambiguous, and labels of each.
const MOST_CANDIDATES: usize = 10;
const MOST_LABELS_SHOWN: usize = 8;

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

    fn refusal(&self) -> Code {
        Code::SessionRefused
    }

    fn target(&self) -> &str {
        self.target
    }

    fn find(&self, client: &ClientContext, opener: &Opener) -> Result<Arc<Node>, DialError> {
        match opener.view.resolve(self.target) {
            Resolved::One(node) => Ok(node),
            Resolved::Unknown => Err(DialError::Unknown(shown(self.target).to_owned())),
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

    fn demand(
        &self,
        client: &ClientContext,
        node: &Arc<Node>,
        pass: &Pass,
        opener: &Opener,
    ) -> Option<FactorDemand> {
        match pass {
            Pass::Join(permit) => permit.factor().cloned(),
            Pass::Login(permit) => demand_of(&opener.view, &client.identity, node, (permit, self.login)),
        }
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
        // There the user's own certificate is shown, which says where from.
        let shows_own = matches!(pass, Pass::Login(permit)
            if server.trust == ServerTrust::User || !records_here(&opener.view, &client.identity, node, permit));
        if let (true, Some(pinned_to)) = (shows_own, client.identity.pinned_to) {
            return Err(DialError::SeesProxy { node: node.name.to_string(), pinned_to });
        }
        match pass {
            Pass::Login(permit) if !records_here(&opener.view, &client.identity, node, permit) => {
                let stream = opener.server(client, opening, node, server, pass, self.login).await?;
                Ok(Upstream::over(stream))
            }
            // Who comes to join gets to the recording proxy, and no further.
            Pass::Join(_) if !self.nodes.recording.live().any_on(node.id) => {
                Err(DialError::NotJoinable(node.name.to_string()))
            }
            Pass::Login(_) | Pass::Join(_) => {
                let recording = &self.nodes.recording;
                let enters = Enters { client, agent: self.agent, word: self.word };
                let entered = recording.enter(opener, enters, opening, (node, server), pass).await;
                let entered = entered.map_err(|problem| DialError::NotRecordable {
                    node: node.name.to_string(),
                    problem: problem.to_string(),
                })?;
                Ok(Upstream::over(entered))
            }
        }
    }

    fn refused(&self, event: Event, _: &DialError) -> Event {
        let event = event.node(shown(self.target));
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

/// Of several nodes with one name, the only one that the user can mean. Others are none of the user's business.
fn one_of(
    view: &ClusterCache,
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

/// The permit of an identity for a node: for the login, or, where it is not known, for any that is allowed.
pub(crate) fn permit(
    view: &ClusterCache,
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
