//! Whom the plain SSH face lets in, and the way in by [`crate::transport`].

use std::sync::Arc;

use async_trait::async_trait;
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, Certificate};
use time::OffsetDateTime;
use tracing::{Span, debug, info, warn};

use super::bounds::Bounds;
use super::dial::{Admits, Dial, JumpError, Refusal};
use super::factor::Factor;
use super::known::Known;
use crate::BoxedStream;
use crate::algorithms::refusal;
use crate::capabilities::{self, Sighting, Whose};
use crate::transport::accept::{Authenticator, Farewell, NotIn, Proven, Terms, Verdict, accept};
use crate::transport::clear::ClearStream;
use crate::transport::server::{Offer, Typed};

/// Exchanges keys and lets the client in by [`crate::transport`], or tells it why not. None where the client leaves before it is in, which
/// is no fault of either side.
pub(super) async fn enter(
    stream: BoxedStream,
    terms: &Terms,
    mut entering: Entering<'_>,
    bounds: &Bounds,
) -> Result<Option<(ClearStream, Proven)>, JumpError> {
    let known = entering.decides.known;
    let farewell = Farewell::default();
    let mut accepting = std::pin::pin!(accept(stream, terms, &mut entering, &farewell));
    let (words, error) = tokio::select! {
        entered = &mut accepting => return match entered {
            Ok(entered) => Ok(Some(entered)),
            Err(NotIn::Left(_)) => Ok(None),
            Err(NotIn::Away(why)) => Err(JumpError::SentAway(Refusal::new(why))),
            Err(other) => Err(JumpError::Transport(other)),
        },
        over = bounds.run_out(known, || false, "no second factor was proven in time") => over,
    };
    farewell.say(words);
    // Ends by itself once the words are out, or have had their time.
    let _ = accepting.await;
    Err(error)
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

    pub(super) fn may_try(&self, key: &KeyData, algorithm: &Algorithm) -> bool {
        let Some(reason) = refusal(key, algorithm) else { return true };
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

/// The same, and what a client is asked besides.
pub(super) struct Entering<'a> {
    pub(super) decides: Decides<'a>,
    pub(super) factor: Factor,
}

#[async_trait]
impl Authenticator for Entering<'_> {
    fn banner(&mut self) -> Option<String> {
        self.decides.banner()
    }

    fn offered(&mut self, offer: &Offer) -> bool {
        self.decides.may_try(&offer.key, &offer.algorithm)
    }

    fn unfit(&mut self, offer: &Offer, reason: &str) {
        let key_id = offer.certificate.as_ref().map(Certificate::key_id);
        warn!(parent: &self.decides.span, %reason, key_id, "security key's signature refused");
    }

    fn unproven(&mut self, _: &str) -> bool {
        false
    }

    async fn proven(&mut self, offer: &Offer) -> Verdict {
        let Some(certificate) = &offer.certificate else { return Verdict::Refused };
        match self.decides.certified(certificate) {
            Verdict::In => self.factor.begin(&offer.user, self.decides.known).await,
            other => other,
        }
    }

    async fn interactive(&mut self, typed: Option<&Typed>) -> Verdict {
        self.factor.ask(typed, self.decides.known).await
    }
}
