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
use time::OffsetDateTime;

use crate::view::ClusterView;

/// From this part of its life on, a proxy's certificate should have been renewed, and a tunnel is made anew to see it.
const RENEWED_AFTER: f64 = 0.8;
/// Agents do not all come at once: each within this part of the life behind it.
const SPREAD: f64 = 0.15;

/// A proxy that has proven itself.
#[derive(Debug)]
pub(super) struct Proxy {
    identity: Identity,
    view: Arc<ClusterView>,
}

impl Proxy {
    /// The holder of the certificates that a connection has shown, if it is not locked.
    ///
    /// # Errors
    /// Why no tunnel is to be had with it.
    pub(super) fn proven(chain: &[CertificateDer<'_>], view: &Arc<ClusterView>) -> io::Result<Self> {
        let now = OffsetDateTime::now_utc();
        let identity = view.trust().identify_peer(chain, now).map_err(io::Error::other)?;
        let proxy = Self { identity, view: Arc::clone(view) };
        match proxy.lock() {
            Some(reason) => Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)),
            None => Ok(proxy),
        }
    }

    /// The lock that keeps it out now, if there is one.
    fn lock(&self) -> Option<String> {
        let (policies, locks) = (self.view.policies(), self.view.locks());
        let locked = policies.locked(&self.identity, None, None, &locks, OffsetDateTime::now_utc());
        locked.map(|refusal| refusal.to_string())
    }

    /// Waits for a lock on it, and says which.
    pub(super) async fn locked(&self) -> String {
        // Subscribed before the locks are asked, so that none comes in between.
        let mut changes = self.view.changes();
        loop {
            if let Some(reason) = self.lock() {
                return reason;
            }
            if changes.changed().await.is_err() {
                // The view is gone with the agent; nothing will change any more.
                std::future::pending::<()>().await;
            }
        }
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
