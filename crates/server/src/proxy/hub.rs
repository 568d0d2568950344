//! The tunnels of all agents, by node.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use metrics::{counter, gauge};
use parking_lot::RwLock;
use sallyport_access::{DatabasePermit, HostId, Listed, Permit};
use sallyport_wire::tunnel::{Handle, Stream};

use super::hosts::Shares;
use super::pass::Pass;

/// Tunnels of one node: an agent that reconnects may have an old one still dying.
const TUNNELS_PER_NODE: usize = 4;

#[derive(Debug)]
struct Entry {
    number: u64,
    handle: Handle,
}

/// Who can be reached, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hub {
    tunnels: Arc<RwLock<HashMap<HostId, Vec<Entry>>>>,
    counter: Arc<AtomicU64>,
    shares: Shares,
}

/// The node has no tunnel that takes a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotConnected;

impl Hub {
    /// What each host may take by its tunnels.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Makes a node reachable until the registration is dropped.
    pub(crate) fn register(&self, node: HostId, handle: Handle) -> Registration {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut tunnels = self.tunnels.write();
        let of_node = tunnels.entry(node).or_default();
        of_node.push(Entry { number, handle });
        if of_node.len() > TUNNELS_PER_NODE {
            // The oldest gets no more streams; those it has live on.
            of_node.remove(0);
        }
        drop(tunnels);
        gauge!("sallyport_tunnels_open").increment(1);
        counter!("sallyport_tunnels_total").increment(1);
        Registration { hub: self.clone(), node, number }
    }

    /// Opens a stream to the node that the pass names, on its newest tunnel that takes one.
    pub(crate) fn open(&self, pass: &Pass, header: Bytes) -> Result<Stream, NotConnected> {
        self.open_through(pass.node(), pass, header)
    }

    /// Opens a stream to an agent that is the gateway to the server which the pass names.
    pub(crate) fn open_through(
        &self,
        agent: HostId,
        _pass: &Pass,
        header: Bytes,
    ) -> Result<Stream, NotConnected> {
        self.stream(agent, header)
    }

    /// Opens a stream to an agent that serves the database which the permit names.
    pub(crate) fn open_database(
        &self,
        agent: HostId,
        _permit: &DatabasePermit,
        header: Bytes,
    ) -> Result<Stream, NotConnected> {
        self.stream(agent, header)
    }

    /// Opens a stream to an agent that serves the resource which the permit names.
    pub(crate) fn open_listed(
        &self,
        agent: HostId,
        _permit: &Permit<Listed>,
        header: Bytes,
    ) -> Result<Stream, NotConnected> {
        self.stream(agent, header)
    }

    fn stream(&self, agent: HostId, header: Bytes) -> Result<Stream, NotConnected> {
        let handles: Vec<Handle> = {
            let tunnels = self.tunnels.read();
            let of_node = tunnels.get(&agent).into_iter().flatten();
            of_node.rev().map(|entry| entry.handle.clone()).collect()
        };
        for handle in handles {
            if let Ok(stream) = handle.open(header.clone()) {
                counter!("sallyport_tunnel_streams_total").increment(1);
                return Ok(stream);
            }
        }
        Err(NotConnected)
    }

    /// Tells every agent that this proxy takes no more sessions; streams that are open live on.
    pub(crate) fn drain(&self) {
        let tunnels = self.tunnels.read();
        for entry in tunnels.values().flatten() {
            entry.handle.drain("the proxy is shutting down");
        }
    }
}

#[cfg(test)]
impl Hub {
    /// Tunnels of a node.
    pub(crate) fn tunnels(&self, node: &HostId) -> usize {
        self.tunnels.read().get(node).map_or(0, Vec::len)
    }
}

/// One tunnel's place in the hub.
#[derive(Debug)]
pub(crate) struct Registration {
    hub: Hub,
    node: HostId,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut tunnels = self.hub.tunnels.write();
        if let Some(of_node) = tunnels.get_mut(&self.node) {
            of_node.retain(|entry| entry.number != self.number);
            if of_node.is_empty() {
                tunnels.remove(&self.node);
            }
        }
        drop(tunnels);
        gauge!("sallyport_tunnels_open").decrement(1);
    }
}
