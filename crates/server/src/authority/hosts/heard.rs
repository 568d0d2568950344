//! Which hosts have a connection to the authority, by their certificates, and from where: hosts of every role, of which nodes
//! alone send heartbeats. In memory, so after a restart a host was heard of when it connects again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::{HostId, Identity, Principal};
use time::OffsetDateTime;

/// Hosts that are remembered, far more than a cluster has.
const MOST: usize = 200_000;

/// One host's connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Last {
    pub(crate) at: OffsetDateTime,
    pub(crate) from: SocketAddr,
    pub(crate) open: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<HashMap<HostId, Last>>>);

/// One connection, while it lasts.
#[derive(Debug)]
pub(crate) struct Connected {
    heard: Heard,
    id: HostId,
}

impl Heard {
    /// A connection begins. None for users', which are not counted.
    pub(crate) fn begins(&self, identity: &Identity, from: SocketAddr) -> Option<Connected> {
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

    pub(crate) fn of(&self, id: HostId) -> Option<Last> {
        self.all().get(&id).copied()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<HostId, Last>> {
        self.0.lock()
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
