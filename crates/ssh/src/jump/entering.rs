//! Whom the plain SSH face lets in, and the way in by [`crate::transport`].

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use sallyport_access::Identity;
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, Certificate};
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{Span, debug, info, warn};

use super::dial::{Admits, Dial, JumpError, Refusal};
use crate::BoxedStream;
use crate::algorithms::{CheckedBy, refusal};
use crate::capabilities::{self, Offered, Sighting, Whose};
use crate::transport::accept::{Authenticator, Farewell, NotIn, Proven, Terms, Verdict, accept};
use crate::transport::clear::ClearStream;
use crate::transport::server::Offer;

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

/// Exchanges keys and lets the client in by [`crate::transport`], or tells it why not; `patience` ends at `deadline`. None where the
/// client leaves before it is in, which is no fault of either side.
pub(super) async fn enter(
    stream: BoxedStream,
    terms: &Terms,
    mut decides: Decides<'_>,
    (patience, deadline): (Duration, Instant),
) -> Result<Option<(ClearStream, Proven)>, JumpError> {
    let farewell = Farewell::default();
    let mut entering = std::pin::pin!(accept(stream, terms, &mut decides, &farewell));
    let entered = tokio::select! {
        entered = &mut entering => entered,
        () = sleep_until(deadline) => {
            farewell.say("no certificate was presented in time");
            // Ends by itself once the words are out, or have had their time.
            let _ = entering.await;
            return Err(JumpError::AuthTimeout(patience));
        }
    };
    match entered {
        Ok(entered) => Ok(Some(entered)),
        Err(NotIn::Left(_)) => Ok(None),
        Err(NotIn::Away(why)) => Err(JumpError::SentAway(Refusal::new(why))),
        Err(other) => Err(JumpError::Transport(other)),
    }
}

/// Whom this face lets in.
pub(super) struct Decides<'a> {
    pub(super) known: &'a Known,
    pub(super) dial: &'a Arc<dyn Dial>,
    pub(super) admits: &'a Admits,
    pub(super) span: Span,
}

impl Decides<'_> {
    pub(super) fn banner(&self) -> Option<String> {
        self.known.offered.offer().and_then(capabilities::banner)
    }

    pub(super) fn may_try(&self, key: &KeyData, algorithm: &Algorithm, checked: CheckedBy) -> bool {
        let Some(reason) = refusal(key, algorithm, checked) else { return true };
        // The client may have another key yet: agents hold keys for other servers, too.
        debug!(parent: &self.span, %reason, "key refused");
        let _ = self.known.not_tried.set(reason);
        false
    }

    /// Whether a client is let in that holds the key of a certificate. The name that it gives means nothing.
    pub(super) fn certified(&self, certificate: &Certificate) -> Verdict {
        let identity = match self.dial.trust().verify_user_ssh(certificate, OffsetDateTime::now_utc()) {
            Ok(identity) => identity,
            Err(error) => {
                warn!(parent: &self.span, %error, key_id = certificate.key_id(), "certificate refused");
                return Verdict::Refused;
            }
        };
        self.span.record("user", identity.display_name());
        info!(parent: &self.span, user = %identity.display_name(), "authenticated");
        if let Some(offer) = self.known.offered.offer() {
            let whose = Some(Whose::User(identity.display_name()));
            self.dial.saw(Sighting { offer: offer.clone(), whose, refused: None });
        }
        if let Err(why) = (self.admits)(&identity) {
            let _ = self.known.sent_away.set(why.clone());
            self.known.changed.notify_one();
            return Verdict::Away(why.to_string());
        }
        // The client may authenticate once; a second certificate cannot replace the first.
        let line = certificate.to_openssh().unwrap_or_default();
        let _ = self.known.identity.set((identity, line.into()));
        self.known.changed.notify_one();
        Verdict::In
    }
}

#[async_trait]
impl Authenticator for Decides<'_> {
    fn banner(&mut self) -> Option<String> {
        Decides::banner(self)
    }

    fn offered(&mut self, offer: &Offer) -> bool {
        self.may_try(&offer.key, &offer.algorithm, CheckedBy::Layer)
    }

    fn unfit(&mut self, offer: &Offer, reason: &str) {
        let key_id = offer.certificate.as_ref().map(Certificate::key_id);
        warn!(parent: &self.span, %reason, key_id, "security key's signature refused");
    }

    fn unproven(&mut self, _: &str) -> bool {
        false
    }

    async fn proven(&mut self, offer: &Offer) -> Verdict {
        offer.certificate.as_ref().map_or(Verdict::Refused, |certificate| self.certified(certificate))
    }
}
