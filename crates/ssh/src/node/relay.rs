//! SSH in front of a node that is reached by the native protocol ([`crate::native`]): for stock clients, on their own
//! machine.
//!
//! A [`Relay`] is the node's SSH server with everything taken away that a node decides, limits or records: the node does
//! that behind it, and what it says comes out here in its own words. The caller that brings a connection has to know
//! whose it is: it is let in with any proof or none, since all that it gets is the stream that was brought along with
//! it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use sallyport_access::Permit;
use sallyport_access::{HostId, Identity, Labels, Lock, Node, NodeKind, NodeName, Policies};
use sallyport_ca::Trust;
use sallyport_sal::HybridKeyExchange;
use sallyport_session::LiveSessions;
use tokio::sync::watch;

use super::backend::{BackEnd, Place, Proof};
use super::error::{EnterError, describe};
use super::opening::Phase;
use super::relayed::Discard;
use super::remote::RemotePlace;
use super::{ConnectionInfo, Directory, HostIdentity, NodeConfig, NodeError, NodeServer, connection};
use crate::client::Settings;
use crate::{BoxedStream, Stream};

/// Connections that one client may have forwarded at once. The node has its own, smaller limit.
const MOST_FORWARDS: usize = 1000;
/// A client on the same machine that is gone has closed its end; one that is stopped (Ctrl-Z) is no dead one.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

/// SSH servers in front of nodes that are reached natively. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Relay(NodeServer);

impl Relay {
    /// Proves itself to clients by `host`.
    ///
    /// # Errors
    /// [`NodeError::Internal`] when its own rules cannot be read.
    pub fn new(host: &HostIdentity, trust: Arc<Trust>) -> Result<Self, NodeError> {
        let internal = |error: &dyn std::fmt::Display| NodeError::Internal { reason: error.to_string() };
        let config = NodeConfig {
            // The node takes what it accepts.
            accept_env: vec!["*".to_owned()],
            keepalive_interval: NEVER,
            max_forwards: MOST_FORWARDS,
            login_records: None,
            ..NodeConfig::default()
        };
        let directory = Nowhere {
            trust,
            policies: Arc::new(Policies::compile(&[]).map_err(|error| internal(&describe(&error)))?),
            node: Arc::new(Node {
                id: HostId::new(),
                name: NodeName::new("relay").map_err(|error| internal(&error))?,
                labels: Labels::default(),
                kind: NodeKind::Sallyport,
            }),
            changes: watch::channel(0).0,
        };
        let (directory, sink) = (Arc::new(directory), Arc::new(Discard));
        Ok(Self(NodeServer::of(config, host, directory, sink, None, LiveSessions::default())))
    }

    /// Serves an SSH client over `client` to its end, as `settings.login` and no other. `node` is a stream to a node's
    /// native door that is proven in both directions, for the same user; it is dropped when all is said. When this is
    /// dropped, the client's connection ends.
    pub fn serve(
        &self,
        client: impl Stream + 'static,
        node: impl Stream + 'static,
        settings: Settings,
    ) -> BoxFuture<'_, ()> {
        self.serve_boxed(Box::new(client), Box::new(node), settings)
    }

    fn serve_boxed(&self, client: BoxedStream, node: BoxedStream, settings: Settings) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let login = settings.login.clone();
            let onward =
                Onward { login, place: Arc::new(RemotePlace::native(node, settings, self.0.ends())) };
            let open = self.0.enter(Arc::new(onward), ConnectionInfo::default(), Phase::Version);
            let shared = open.entry().clone();
            let _cut = shared.line.clone().drop_guard();
            // Keeps an RSA key signing. What the suite asks of key exchanges is for networks, which this connection does not
            // see.
            let face = self.0.face();
            let manner = face.manner(&self.0.0.services.config, HybridKeyExchange::Preferred);
            connection::serve(client, shared, manner).await;
        })
    }
}

/// The way on to a node.
#[derive(Debug)]
struct Onward {
    login: String,
    place: Arc<RemotePlace>,
}

#[async_trait]
impl BackEnd for Onward {
    async fn enter(&self, _: &Identity, _: Proof<'_>, _: &Permit) -> Result<Arc<dyn Place>, EnterError> {
        Err(EnterError::OtherLogin { login: self.login.clone() })
    }

    fn is_decided_here(&self) -> bool {
        false
    }

    fn undecided(&self, user: &str) -> Option<Arc<dyn Place>> {
        (user == self.login).then(|| self.place.clone() as Arc<dyn Place>)
    }

    async fn gone(&self) -> String {
        self.place.ended().await
    }
}

/// A cluster in which no user may do anything: whatever is decided here, by mistake, is refused.
#[derive(Debug)]
struct Nowhere {
    trust: Arc<Trust>,
    policies: Arc<Policies>,
    node: Arc<Node>,
    changes: watch::Sender<u64>,
}

impl Directory for Nowhere {
    fn trust(&self) -> Arc<Trust> {
        self.trust.clone()
    }

    fn policies(&self) -> Arc<Policies> {
        self.policies.clone()
    }

    fn locks(&self) -> Arc<[Lock]> {
        Arc::from([])
    }

    fn node(&self) -> Arc<Node> {
        self.node.clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
