//! What is known of a client of the plain SSH face.

use std::sync::{Arc, OnceLock};

use sallyport_access::Identity;
use tokio::sync::Notify;
use tracing::warn;

use super::dial::Refusal;
use crate::capabilities::Offered;

/// What is known of a client, shared with what watches over its connection.
#[derive(Default)]
pub(super) struct Known {
    /// Who is here, and the certificate that proved it.
    pub(super) identity: OnceLock<(Identity, Arc<str>)>,
    /// Why a client that has proven who it is is not served.
    pub(super) sent_away: OnceLock<Refusal>,
    /// Why the first key was not tried that was not.
    pub(super) not_tried: OnceLock<String>,
    /// What the client says it can do.
    pub(super) offered: Offered,
    /// Identity proven, or a channel opened or closed.
    pub(super) changed: Notify,
}

impl Known {
    /// Tells the log why a key was not tried, where the client has proven who it is by no other.
    pub(super) fn tell_not_tried(&self) {
        let is_known = self.identity.get().is_some() || self.sent_away.get().is_some();
        if let Some(reason) = self.not_tried.get().filter(|_| !is_known) {
            warn!(%reason, "the client has proven itself by no key; one was not tried");
        }
    }
}
