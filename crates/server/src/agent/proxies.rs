//! The proxy at the other end of a tunnel: which one it is, and for how long it may be there.
//!
//! A proxy that was taken over keeps its key until it is locked or removed. Its tunnels end then, with the sessions that it has
//! opened on them, and no other is dialled. It carries this agent's calls to the authority, too, and so may keep the lock from
//! it: then its certificate's end is what ends it, because no stream is taken from a proxy past that.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::Identity;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_wire::tunnel::Handle;
use time::OffsetDateTime;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument, warn};

use crate::member::cluster_cache::ClusterCache;
use crate::tasks;

/// From this part of its life on, a proxy's certificate should have been renewed, and a tunnel is made anew to see it.
const RENEWED_AFTER: f64 = 0.8;
/// Agents do not all come at once: each within this part of the life behind it.
const SPREAD: f64 = 0.15;

/// A proxy that has proven itself. While this is there, a lock on the proxy ends the tunnel to it.
#[derive(Debug)]
pub(super) struct Proxy {
    identity: Identity,
    _watch: AbortOnDropHandle<()>,
}

impl Proxy {
    /// The holder of the certificates that a connection has shown, if it is not locked.
    ///
    /// # Errors
    /// Why no tunnel is to be had with it.
    pub(super) fn proven(chain: &[CertificateDer<'_>], view: &ClusterCache) -> io::Result<Identity> {
        let identity =
            view.trust().identify_peer(chain, OffsetDateTime::now_utc()).map_err(io::Error::other)?;
        match view.locked(&identity) {
            Some(reason) => Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)),
            None => Ok(identity),
        }
    }

    /// The proxy at the other end of a tunnel.
    pub(super) fn of(identity: Identity, view: Arc<ClusterCache>, tunnel: Handle) -> Self {
        let watched = identity.clone();
        let watching = async move {
            let reason = view.when(|| view.locked(&watched)).await;
            warn!(reason, "the proxy is locked; its tunnel ends, with the sessions on it");
            tunnel.close();
        };
        Self { identity, _watch: AbortOnDropHandle::new(tasks::start(watching.in_current_span())) }
    }

    /// Whether its certificate has ended.
    pub(super) fn is_over(&self) -> bool {
        self.identity.valid_before <= OffsetDateTime::now_utc()
    }

    /// Until its certificate should have been renewed.
    pub(super) fn until_renewed(&self, chance: f64) -> Duration {
        let Identity { valid_after, valid_before, .. } = self.identity;
        let at = valid_after + (valid_before - valid_after) * (RENEWED_AFTER + SPREAD * chance);
        (at - OffsetDateTime::now_utc()).try_into().unwrap_or_default()
    }
}
