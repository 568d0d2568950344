//! From a proven user and a target's name to a stream of that node's tunnel: the one path that every front door of
//! the proxy takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use metrics::{counter, histogram};
use sallyport_access::{Identity, Login, Node, Permit, Principal, Refusal};
use sallyport_audit::{Code, Event, Sink};
use sallyport_wire::tunnel::Stream;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tracing::{info, instrument};

use super::hub::Hub;
use crate::sessions::{SessionGuard, Sessions};
use crate::view::{ClusterView, Resolved};

/// What the proxy tells the node at the head of each tunnel stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamHeader {
    /// What the stream carries: `ssh`.
    pub(crate) kind: String,
    /// Where the user's connection came from.
    pub(crate) client_addr: SocketAddr,
    /// The user that the proxy has proven; the node proves it again for itself.
    pub(crate) user: String,
}

/// The kind of an SSH stream.
pub(crate) const KIND_SSH: &str = "ssh";

/// An open way to a node.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: Stream,
    pub(crate) node: Arc<Node>,
    pub(crate) permit: Permit,
    pub(crate) guard: SessionGuard,
}

/// Why there is none. `Display` is for the person at the other end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The peer: no such node.
    #[error("no node is called {0:?}; `sallyport ls` lists those that you may use")]
    Unknown(String),
    /// The peer: the name fits several.
    #[error("{name:?} is the name of {count} nodes; use one of their ids: {ids}")]
    Ambiguous { name: String, count: usize, ids: String },
    /// The peer: the roles or a lock say no.
    #[error("{}", .0.public_message())]
    Refused(Refusal),
    /// The peer: too many at once.
    #[error(
        "you have {0} connections through this proxy, which is the most allowed; close some and try again"
    )]
    TooMany(usize),
    /// The operator: the node's agent is away.
    #[error("node {0} is not connected to this proxy; check that its agent runs and can reach the proxy")]
    Offline(String),
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
    #[instrument(name = "proxy.dial", skip_all, fields(user = %identity.display_name(), node = target))]
    pub(crate) fn dial(
        &self,
        identity: &Identity,
        target: &str,
        login: Option<&Login>,
        client: SocketAddr,
        now: OffsetDateTime,
    ) -> Result<Dialled, DialError> {
        let began = Instant::now();
        let result = self.attempt(identity, target, login, client, now);
        histogram!("sallyport_session_open_seconds").record(began.elapsed());
        match &result {
            Ok(dialled) => {
                counter!("sallyport_sessions_total", "result" => "opened").increment(1);
                info!(node_id = %dialled.node.id, login = %dialled.permit.login(), "session opened");
            }
            Err(error) => {
                counter!("sallyport_sessions_total", "result" => error.name()).increment(1);
                info!(reason = error.name(), message = %error, "session refused");
                self.report(identity, target, login, client, error, now);
            }
        }
        result
    }

    fn attempt(
        &self,
        identity: &Identity,
        target: &str,
        login: Option<&Login>,
        client: SocketAddr,
        now: OffsetDateTime,
    ) -> Result<Dialled, DialError> {
        if self.stopping.is_cancelled() {
            return Err(DialError::Stopping);
        }
        let node = match self.view.resolve(target) {
            Resolved::One(node) => node,
            Resolved::Unknown => return Err(DialError::Unknown(target.chars().take(253).collect())),
            Resolved::Several(nodes) => {
                let ids: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
                return Err(DialError::Ambiguous {
                    name: target.to_owned(),
                    count: nodes.len(),
                    ids: ids.join(", "),
                });
            }
        };
        let permit = self.decide(identity, &node, login, now)?;
        let Some(user) = identity.user() else { return Err(DialError::Unknown(target.to_owned())) };
        let guard = self.sessions.begin(user).map_err(|too_many| DialError::TooMany(too_many.bound))?;
        let header =
            StreamHeader { kind: KIND_SSH.to_owned(), client_addr: client, user: user.as_str().to_owned() };
        let header = serde_json::to_vec(&header).map(Bytes::from).unwrap_or_default();
        let stream = self.hub.open(&permit, header).map_err(|_| DialError::Offline(node.name.to_string()))?;
        Ok(Dialled { stream, node, permit, guard })
    }

    fn decide(
        &self,
        identity: &Identity,
        node: &Node,
        login: Option<&Login>,
        now: OffsetDateTime,
    ) -> Result<Permit, DialError> {
        let policies = self.view.policies();
        let locks = self.view.locks();
        if let Some(login) = login {
            return policies.decide(identity, node, login, &locks, now).map_err(DialError::Refused);
        }
        let mut refusal = None;
        for login in candidates(policies.logins_on(identity, node), identity) {
            match policies.decide(identity, node, &login, &locks, now) {
                Ok(permit) => return Ok(permit),
                Err(why) => refusal = refusal.or(Some(why)),
            }
        }
        Err(refusal.map_or_else(|| DialError::Unknown(node.name.to_string()), DialError::Refused))
    }

    fn report(
        &self,
        identity: &Identity,
        target: &str,
        login: Option<&Login>,
        client: SocketAddr,
        error: &DialError,
        now: OffsetDateTime,
    ) {
        let detail = match error {
            DialError::Refused(refusal) => refusal.to_string(),
            other => other.to_string(),
        };
        let mut event = Event::new(Code::SessionRefused, now)
            .user(identity.display_name())
            .node(target.chars().take(253).collect::<String>())
            .source(client.to_string())
            .message(detail)
            .field("reason", error.name())
            .field("at", "proxy");
        if let Some(login) = login {
            event = event.login(login.as_str());
        }
        self.sink.emit(event);
    }
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
