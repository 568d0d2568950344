//! What a node knows of its cluster.

use std::fmt;
use std::sync::Arc;

use sallyport_access::{HostId, Lock, Node, Policies};
use sallyport_ca::Trust;
use sallyport_session::factor::{Factors, NoFactors};
use tokio::sync::watch;

use crate::capabilities::Sighting;

/// What the node knows of its cluster, and whom it tells of its clients. It answers from memory: the decision waits for
/// it.
pub trait Directory: Send + Sync + fmt::Debug {
    /// The authorities.
    fn trust(&self) -> Arc<Trust>;
    /// The roles.
    fn policies(&self) -> Arc<Policies>;
    /// The locks.
    fn locks(&self) -> Arc<[Lock]>;
    /// This node.
    fn node(&self) -> Arc<Node>;
    /// The host that serves it, by whose id the sessions are told from those of others. Default: the node itself; where a
    /// proxy stands before a server, the proxy.
    fn host(&self) -> HostId {
        self.node().id
    }
    /// A counter that changes whenever one of the others does. Live sessions are checked against the locks then.
    fn changes(&self) -> watch::Receiver<u64>;
    /// What knows which second factors are proven, asked once for a connection whose permit demands one. Default: none ever is, and
    /// users whose roles demand one do not enter.
    fn factors(&self) -> &dyn Factors {
        &NoFactors
    }
    /// A client has proven who it is, or is gone without. Must not wait: the connection does. Default: not remembered.
    fn saw(&self, _: Sighting) {}
}
