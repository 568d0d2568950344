//! The one way in: from a user whose certificate is proven, and what that user asks for, to an open stream there.
//!
//! Every listener of the proxy ends here, whatever its protocol and whatever it is asked for. What happens in which order, what is
//! counted, timed, traced and on record is the same for every kind of resource; what differs is [`Asks`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use sallyport_access::{Decidable, FactorDemand, HostId, Identity, Permit, Refusal};
use sallyport_audit::{Code, Event, PHASE, Sink};
use sallyport_session::Evidence;
use sallyport_session::factor::Missing;
use sallyport_wire::stream_header::UserCertificate;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{Span, info, info_span, instrument};

use super::asking::Asking;
use super::hub::Hub;
use crate::member::cluster_cache::ClusterCache;
use crate::member::session_factors::AuthorityFactors;
use crate::sessions::{SessionGuard, Sessions};
use crate::user_certificate;

/// Characters of a name in DNS.
const LONGEST_TARGET: usize = 253;

/// A client whose certificate is proven.
#[derive(Debug, Clone)]
pub(crate) struct ClientContext {
    /// Whose certificate it is.
    pub(crate) identity: Arc<Identity>,
    /// The certificate.
    pub(crate) certificate: UserCertificate,
    /// Where it comes from.
    pub(crate) address: SocketAddr,
}

/// What a client asks to be opened, of one kind of resource.
pub(crate) trait Asks: Sync {
    /// What is found by the name that the client says.
    type Found: Send + Sync;
    /// What lets the client in.
    type Permit: Send + Sync;
    /// A place among so many of its kind, besides that among the sessions of the user.
    type Place: Send;
    /// The way there.
    type Stream: Send;
    /// Why there is none.
    type Error: Refused;

    /// The event of a refusal.
    fn refusal(&self) -> Code;

    /// What the client names, as it says it; empty where it names nothing. It may be anything, and of any length.
    fn target(&self) -> &str;

    /// Finds what the client names.
    fn find(&self, client: &ClientContext, opener: &Opener) -> Result<Self::Found, Self::Error>;

    /// Decides.
    fn decide(
        &self,
        client: &ClientContext,
        found: &Self::Found,
        opener: &Opener,
        now: OffsetDateTime,
    ) -> Result<Self::Permit, Self::Error>;

    /// Which second factor has to be proven before it is opened.
    fn demand(
        &self,
        client: &ClientContext,
        found: &Self::Found,
        permit: &Self::Permit,
        opener: &Opener,
    ) -> Option<FactorDemand>;

    /// Takes a place, where its kind has a bound of its own.
    fn place(&self, permit: &Self::Permit, opener: &Opener) -> Result<Self::Place, Self::Error>;

    /// Opens the way there. `opening` is around all that is done until then, for traces; it is never entered, since what is
    /// spawned meanwhile would keep it.
    fn route(
        &self,
        client: &ClientContext,
        found: &Self::Found,
        permit: &Self::Permit,
        to: (&Opener, &Span),
        now: OffsetDateTime,
    ) -> impl Future<Output = Result<Self::Stream, Self::Error>> + Send;

    /// What a refusal's event says besides whose it is and why.
    fn refused(&self, event: Event, error: &Self::Error) -> Event;

    /// What the event of an open stream says besides whose it is.
    fn opened(
        &self,
        event: Event,
        found: &Self::Found,
        permit: &Self::Permit,
        stream: &Self::Stream,
    ) -> Event;
}

/// Why nothing was opened, of one kind of resource. `Display` of it is for the person at the other end.
pub(crate) trait Refused: Send {
    /// The proxy takes nothing new.
    fn stopping() -> Self;

    /// The user has as many sessions through this proxy as one may have.
    fn too_many(bound: usize) -> Self;

    /// Only users have sessions.
    fn no_user() -> Self;

    /// A second factor has to be proven first.
    fn factor(missing: Missing) -> Self;

    /// A stable word for metrics, traces and events.
    fn reason(&self) -> &'static str;

    /// For the audit log.
    fn detail(&self) -> String;
}

/// An open stream, and what goes with it.
pub(crate) struct Opened<Found, Permit, Place, Stream> {
    pub(crate) found: Found,
    pub(crate) permit: Permit,
    pub(crate) stream: Stream,
    /// Counts while it is held.
    pub(crate) counted: SessionGuard,
    pub(crate) place: Place,
    pub(crate) took: Took,
}

/// What is opened for one who asks.
pub(crate) type OpenedFor<A> =
    Opened<<A as Asks>::Found, <A as Asks>::Permit, <A as Asks>::Place, <A as Asks>::Stream>;

/// How long it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    /// To find it and to decide.
    pub(crate) decision: Duration,
    /// To open the way there.
    pub(crate) open: Duration,
}

/// As much of a name that a client says as any real name has: for logs, traces and events.
pub(crate) fn shown(target: &str) -> &str {
    target.char_indices().nth(LONGEST_TARGET).and_then(|(end, _)| target.get(..end)).unwrap_or(target)
}

/// Of the agents that serve a resource, those that will do, in the order in which the client names them: it has heard from the authority
/// which of them reach the resource.
pub(crate) fn in_order(serving: &[HostId], wanted: &[HostId]) -> Vec<HostId> {
    wanted.iter().filter(|agent| serving.contains(agent)).copied().collect()
}

/// Opens streams.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) hub: Hub,
    pub(crate) sessions: Sessions,
    pub(crate) sink: Arc<dyn Sink>,
    /// The proxy takes nothing new.
    pub(crate) stopping: CancellationToken,
    pub(crate) factors: AuthorityFactors,
    /// For users whose clients cannot ask.
    pub(crate) asking: Asking,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").field("hub", &self.hub).finish_non_exhaustive()
    }
}

impl Opener {
    /// Finds, decides, counts and opens, and says so.
    ///
    /// # Errors
    /// What the client is told; it is on record already.
    #[instrument(name = "proxy.open", skip_all, fields(user = %client.identity.display_name(), target = shown(asks.target())))]
    pub(crate) async fn open<A: Asks>(
        &self,
        client: &ClientContext,
        asks: &A,
        opening: &Span,
        now: OffsetDateTime,
    ) -> Result<OpenedFor<A>, A::Error> {
        let began = Instant::now();
        let result = self.attempt(client, asks, opening, now).await;
        histogram!("sallyport_session_open_seconds").record(began.elapsed());
        match &result {
            Ok(Opened { found, permit, stream, .. }) => {
                counter!("sallyport_sessions_total", "result" => "opened").increment(1);
                // What runs there can keep its host from telling, but not a proxy.
                let event = Event::new(Code::StreamOpened, now)
                    .user(client.identity.display_name())
                    .source(client.address.to_string())
                    .field("at", "proxy");
                self.sink.emit(asks.opened(event, found, permit, stream));
            }
            Err(error) => {
                opening.record("error.type", error.reason());
                self.refused(client, asks, error, now);
            }
        }
        result
    }

    /// Puts on record that nothing was opened.
    pub(crate) fn refused<A: Asks>(
        &self,
        client: &ClientContext,
        asks: &A,
        error: &A::Error,
        now: OffsetDateTime,
    ) {
        counter!("sallyport_sessions_total", "result" => error.reason()).increment(1);
        let detail = error.detail();
        info!(
            user = %client.identity.display_name(),
            asked = shown(asks.target()),
            reason = error.reason(),
            message = detail,
            "session refused"
        );
        let event = Event::new(asks.refusal(), now)
            .user(client.identity.display_name())
            .source(client.address.to_string())
            .message(detail)
            .field("reason", error.reason())
            .field("at", "proxy");
        self.sink.emit(asks.refused(event, error));
    }

    async fn attempt<A: Asks>(
        &self,
        client: &ClientContext,
        asks: &A,
        opening: &Span,
        now: OffsetDateTime,
    ) -> Result<OpenedFor<A>, A::Error> {
        let began = Instant::now();
        if self.stopping.is_cancelled() {
            return Err(A::Error::stopping());
        }
        let deciding = info_span!(target: PHASE, parent: opening, "decision");
        let found = asks.find(client, self)?;
        let permit = asks.decide(client, &found, self, now)?;
        let demand = asks.demand(client, &found, &permit, self);
        let shown = || user_certificate::shown(&client.certificate);
        let gathered =
            Evidence::gather(&client.identity, demand.as_ref(), &self.factors, shown, Some(client.address))
                .await;
        gathered.map_err(A::Error::factor)?;
        let user = client.identity.user().ok_or_else(A::Error::no_user)?;
        let place = asks.place(&permit, self)?;
        let counted = self.sessions.begin(user).map_err(|too_many| A::Error::too_many(too_many.bound))?;
        let decision = began.elapsed();
        drop(deciding);
        let _tunnel = info_span!(target: PHASE, parent: opening, "tunnel");
        let stream = asks.route(client, &found, &permit, (self, opening), now).await?;
        let took = Took { decision, open: began.elapsed().saturating_sub(decision) };
        Ok(Opened { found, permit, stream, counted, place, took })
    }

    /// What this proxy's copy of the policy says.
    pub(crate) fn decide<R: Decidable>(
        &self,
        identity: &Identity,
        resource: &R,
        account: &R::Account,
        now: OffsetDateTime,
    ) -> Result<Permit<R>, Refusal> {
        self.view.policies().decide(identity, resource, account, &self.view.locks(), now)
    }
}
