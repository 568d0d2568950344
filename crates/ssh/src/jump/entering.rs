//! Whom the plain SSH face lets in, and the way in by [`crate::transport`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, Certificate};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Span, debug, info, warn};

use super::dial::{Admits, Dial, JumpError, Refusal};
use super::factor::Factor;
use super::known::Known;
use crate::BoxedStream;
use crate::algorithms::refusal;
use crate::capabilities::{self, Sighting, Whose};
use crate::transport::accept::{Authenticator, Farewell, NotIn, Proven, Terms, Verdict, accept};
use crate::transport::clear::ClearStream;
use crate::transport::server::{Offer, Typed};

/// What a client reads that comes while the proxy shuts down.
pub(super) const DRAINING: &str = "the proxy is shutting down; try again in a moment";

/// How long a client may take to get in, and when it is sent away all the same.
pub(super) struct Bounds {
    /// From the first byte to a proven identity.
    pub(super) patience: Duration,
    /// From there to the answers to what it is asked besides, as long as a connection may stand unused.
    pub(super) idle: Duration,
    /// No new client is let in any more.
    pub(super) draining: CancellationToken,
}

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
    let mut deadline = Instant::now() + bounds.patience;
    let (words, error) = loop {
        let is_known = known.identity.get().is_some();
        let changed = known.changed.notified();
        tokio::select! {
            entered = &mut accepting => return match entered {
                Ok(entered) => Ok(Some(entered)),
                Err(NotIn::Left(_)) => Ok(None),
                Err(NotIn::Away(why)) => Err(JumpError::SentAway(Refusal::new(why))),
                Err(other) => Err(JumpError::Transport(other)),
            },
            // A person may take longer to answer than a program to prove a key.
            () = changed, if !is_known => {
                if known.identity.get().is_some() {
                    deadline = Instant::now() + bounds.idle;
                }
            }
            () = bounds.draining.cancelled(), if is_known => break (DRAINING, JumpError::Draining),
            () = sleep_until(deadline) => break match is_known {
                true => ("no second factor was proven in time", JumpError::Idle(bounds.idle)),
                false => ("no certificate was presented in time", JumpError::AuthTimeout(bounds.patience)),
            },
        }
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
