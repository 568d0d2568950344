//! The watched view, as an SSH server asks for it: a node's own, or the front door of a server whose sessions a proxy
//! records.

use std::sync::Arc;

use sallyport_access::{HostId, Lock, Node, Policies};
use sallyport_ca::Trust;
use sallyport_session::factor::Factors;
use sallyport_ssh::capabilities::Sighting;
use sallyport_ssh::node::Directory;
use tokio::sync::watch;

use crate::member::client_sightings::Sightings;
use crate::member::cluster_cache::ClusterCache;
use crate::member::session_factors::AuthorityFactors;

/// The view of one node.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) view: Arc<ClusterCache>,
    /// The node as it was known when its server started.
    pub(crate) node: Arc<Node>,
    /// The host that serves it: the node itself, or the proxy before it.
    pub(crate) host: HostId,
    pub(crate) sightings: Sightings,
    pub(crate) factors: AuthorityFactors,
}

impl Directory for Known {
    fn trust(&self) -> Arc<Trust> {
        self.view.trust()
    }

    fn policies(&self) -> Arc<Policies> {
        self.view.policies()
    }

    fn locks(&self) -> Arc<[Lock]> {
        self.view.locks()
    }

    /// As the authority knows it, with the labels of the join token; until that is heard, as it was known first.
    fn node(&self) -> Arc<Node> {
        self.view.node(&self.node.id).unwrap_or_else(|| Arc::clone(&self.node))
    }

    fn host(&self) -> HostId {
        self.host
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.view.changes()
    }

    fn factors(&self) -> &dyn Factors {
        &self.factors
    }

    fn saw(&self, sighting: Sighting) {
        self.sightings.saw_ssh(sighting);
    }
}
