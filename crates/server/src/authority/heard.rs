//! Which hosts have a connection to the authority, by their certificates, and from where: hosts of every role, of which nodes
//! alone send heartbeats. In memory, so after a restart a host was heard of when it connects again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sallyport_access::{HostId, HostRole, Identity, Principal};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;

use super::{Inner, host_role_name};

/// Hosts that are remembered, far more than a cluster has.
const MOST: usize = 200_000;

/// One host's connections.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: OffsetDateTime,
    from: SocketAddr,
    open: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<Mutex<HashMap<HostId, Last>>>);

/// One connection, while it lasts.
#[derive(Debug)]
pub(super) struct Connected {
    heard: Heard,
    id: HostId,
}

impl Heard {
    /// A connection begins. None for users', which are not counted.
    pub(super) fn begins(&self, identity: &Identity, from: SocketAddr) -> Option<Connected> {
        let Principal::Host { id, .. } = identity.principal else { return None };
        let mut all = self.all();
        if all.len() >= MOST && !all.contains_key(&id) {
            return None;
        }
        let at = OffsetDateTime::now_utc();
        let last = all.entry(id).or_insert(Last { at, from, open: 0 });
        *last = Last { at, from, open: last.open + 1 };
        Some(Connected { heard: self.clone(), id })
    }

    fn of(&self, id: HostId) -> Option<Last> {
        self.all().get(&id).copied()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<HostId, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(last) = self.heard.all().get_mut(&self.id) {
            last.open = last.open.saturating_sub(1);
            last.at = OffsetDateTime::now_utc();
        }
    }
}

impl Inner {
    /// The hosts that are not in the list of nodes, as they are listed to administrators: proxies, authorities, and nodes that have
    /// joined and not been heard of since.
    pub(super) fn other_hosts(&self) -> Vec<v1::NodeInfo> {
        let now = OffsetDateTime::now_utc();
        let hosts = self.names.all().into_iter().filter(|host| self.presence.get(host.id).is_none());
        let shown = hosts.map(|host| {
            let last = self.heard.of(host.id);
            let online = last.is_some_and(|last| last.open > 0);
            let seen = last.map(|last| if online { now } else { last.at });
            v1::NodeInfo {
                id: host.id.to_string(),
                name: host.name.to_string(),
                online,
                last_seen: seen.map(convert::time_to_proto),
                kind: match host.role {
                    HostRole::Node => "sallyport",
                    role => host_role_name(role),
                }
                .to_owned(),
                address: last.map(|last| last.from.ip().to_string()).unwrap_or_default(),
                ..Default::default()
            }
        });
        shown.collect()
    }
}
