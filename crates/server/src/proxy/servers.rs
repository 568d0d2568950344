//! Registered servers: dialled by this proxy, or by an agent that is the gateway to them.

use std::net::IpAddr;

use bytes::Bytes;
use sallyport_access::{Login, Node, OpenSshServer, Refusal, UserName};
use sallyport_session::factor::Missing;
use sallyport_ssh::BoxedStream;
use sallyport_wire::stream_header::{Carries, ServerTarget, StreamHeader};
use tracing::Span;

use super::open::{ClientContext, Opener, Refused};
use super::pass::Pass;
use crate::member::cluster_cache::Resolved;
use crate::reach::{ReachError, greeted, reach};

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
    /// The peer: a second factor has to be proven first.
    #[error("{0}")]
    Factor(Missing),
    /// The operator: the server would see this proxy's address where the user's own is what counts.
    #[error(
        "server {node} takes a login that is pinned (pin_source_ip) from {pinned_to} alone, and would see this proxy or its gateway; ask an \
         administrator to have sessions there recorded at the proxy (session_recording: proxy, and not trust: user)"
    )]
    SeesProxy { node: String, pinned_to: IpAddr },
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

    fn factor(missing: Missing) -> Self {
        Self::Factor(missing)
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Factor(missing) => missing.reason(),
            Self::Unknown(_) => "unknown_node",
            Self::Ambiguous { .. } => "ambiguous_node",
            Self::Refused(_) => "refused",
            Self::SeesProxy { .. } => "pinned_past_proxy",
            Self::NoUser => "not_a_user",
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

impl Opener {
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
        let at = match self.view.resolve(via.as_str()) {
            Resolved::One(at) => at,
            Resolved::Unknown => {
                return Err(gateway("does not exist; correct it: sallyport admin edit node/NAME"));
            }
            Resolved::Several(_) => return Err(gateway("several nodes have as their name")),
        };
        let target = ServerTarget { node: node.id, login: login.cloned(), proof: client.certificate.clone() };
        let header = header(client, pass.user(), opening, Carries::OpenSsh { server: target });
        let stream = self.hub.open_through(at.id, pass, header);
        let stream = stream.map_err(|_| gateway("is not connected to this proxy"))?;
        greeted(stream, &server.address).await.map_err(failed)
    }
}

/// The head of a stream to an agent.
pub(super) fn header(client: &ClientContext, user: &UserName, opening: &Span, carries: Carries) -> Bytes {
    let traceparent = sallyport_telemetry::context(opening).map(|context| context.to_string());
    StreamHeader::new(client.address, user.as_str(), traceparent, carries).encode()
}
