//! The agent as a gateway: connections to registered OpenSSH servers that only this machine reaches.
//!
//! A stream names a server by its id and shows the user's certificate. The agent connects only to addresses that its
//! own copy of the cluster's state has registered with this node as the gateway, and decides itself whether the user
//! may go there.

use std::net::SocketAddr;
use std::sync::Arc;

use sallyport_access::{HostId, NodeKind, NodeName};
use sallyport_audit::{Code, Event, Sink};
use sallyport_session::Evidence;
use sallyport_session::factor::Factors;
use sallyport_ssh::BoxedStream;
use sallyport_wire::stream_header::ServerTarget;
use sallyport_wire::tunnel;
use time::OffsetDateTime;
use tokio::io::copy_bidirectional_with_sizes;
use tracing::{debug, info};

use crate::member::cluster_cache::ClusterCache;
use crate::member::session_factors::demand_of;
use crate::proxy::nodes::permit;
use crate::proxy::watcher::{Session, Watcher};
use crate::reach::{ReachError, reach};
use crate::user_certificate::{self, NotProven};

/// Bytes on their way, in each direction.
const BUFFER_BYTES: usize = 64 * 1024;

/// Why the agent does not connect a user to a server; the user reads it.
#[derive(Debug, thiserror::Error)]
enum NotOpened {
    #[error("the agent of {agent} is not the gateway to this server")]
    NotTheGateway { agent: NodeName },
    #[error("the agent of {agent} does not accept the user's certificate: {reason}")]
    NotProven { agent: NodeName, reason: NotProven },
    #[error("{0}")]
    Refused(String),
    #[error("from {agent}, {reason}")]
    NotReached { agent: NodeName, reason: ReachError },
}

/// This node, as the gateway to servers.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) id: HostId,
    pub(crate) name: NodeName,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) factors: Arc<dyn Factors>,
}

impl Gateway {
    /// Serves one stream to its end.
    pub(crate) async fn serve(self, asked: ServerTarget, stream: tunnel::Stream, client: SocketAddr) {
        let now = OffsetDateTime::now_utc();
        let (server, watcher) = match self.open(&asked, client, now).await {
            Ok(opened) => opened,
            Err(reason) => {
                let message = reason.to_string();
                info!(server = %asked.node, %message, "connection to a server refused");
                return stream.reset(&message);
            }
        };
        carry(stream, server, watcher).await;
    }

    async fn open(
        &self,
        asked: &ServerTarget,
        client: SocketAddr,
        now: OffsetDateTime,
    ) -> Result<(BoxedStream, Watcher), NotOpened> {
        let own = self.view.node(&self.id).map_or_else(|| self.name.clone(), |node| node.name.clone());
        let node = self.view.node(&asked.node);
        let found = node.as_ref().and_then(|node| match &node.kind {
            NodeKind::OpenSsh(server) if server.via.as_ref() == Some(&own) => Some((node, server)),
            _ => None,
        });
        let event = |name: &str| {
            let event = Event::new(Code::SessionRefused, now).node(own.as_str()).source(client.to_string());
            event.source_by_proxy().field("server", name).field("at", "gateway")
        };
        let Some((node, server)) = found else {
            let reason = NotOpened::NotTheGateway { agent: own.clone() };
            self.sink.emit(event(&asked.node.to_string()).message(reason.to_string()));
            return Err(reason);
        };
        let identity =
            user_certificate::identify(&asked.proof, &self.view.trust(), now).map_err(|reason| {
                self.sink
                    .emit(event(node.name.as_str()).message(format!("the user's certificate: {reason}")));
                NotOpened::NotProven { agent: own.clone(), reason }
            })?;
        let permit = permit(&self.view, &identity, node, asked.login.as_ref(), now).map_err(|refusal| {
            let (public, internal) = match &refusal {
                Some(refusal) => (refusal.public_message(), refusal.to_string()),
                None => ("no role of yours allows this".to_owned(), "not a user".to_owned()),
            };
            self.sink.emit(event(node.name.as_str()).user(identity.display_name()).message(internal));
            NotOpened::Refused(public)
        })?;
        let demand = demand_of(&self.view, &identity, node, (&permit, asked.login.as_ref()));
        let shown = || user_certificate::shown(&asked.proof);
        let gathered =
            Evidence::gather(&identity, demand.as_ref(), &*self.factors, shown, Some(client)).await;
        gathered.map_err(|missing| {
            let event = event(node.name.as_str()).user(identity.display_name());
            self.sink.emit(event.message(missing.to_string()).field("reason", missing.reason()));
            NotOpened::Refused(missing.to_string())
        })?;
        let reached = reach(&server.address).await;
        let stream = reached.map_err(|reason| NotOpened::NotReached { agent: own.clone(), reason })?;
        debug!(user = %identity.display_name(), server = %node.name, "connected to a server");
        let (view, sink) = (Arc::clone(&self.view), Arc::clone(&self.sink));
        let (node, login) = (Arc::clone(node), asked.login.clone());
        let session = Session::with_node(view, Arc::new(identity), node, login, sink);
        // What carries is given up from outside itself, below.
        let watcher = Watcher::new(session, None, |_| {});
        Ok((stream, watcher))
    }
}

/// Carries bytes until both have finished, one is gone, or a lock comes.
async fn carry(mut stream: tunnel::Stream, mut server: BoxedStream, mut watcher: Watcher) {
    let carried = copy_bidirectional_with_sizes(&mut stream, &mut server, BUFFER_BYTES, BUFFER_BYTES);
    let reason = tokio::select! {
        ended = carried => match ended {
            Ok((to_server, from_server)) => return debug!(to_server, from_server, "connection to a server ended"),
            Err(error) => format!("the connection to the server was lost: {error}"),
        },
        reason = watcher.cut() => reason,
    };
    stream.reset(&reason);
}
