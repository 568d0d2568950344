//! Resources of the catalogue: streams of TLS between users' programs and agents, opened and carried the same way whatever their
//! kind. What passes the proxy cannot read, and the agent decides again.

mod asked;
mod error;
mod frames;
mod relay;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use sallyport_access::{HostId, Kind};
use sallyport_audit::{Event, PHASE};
use sallyport_session::serving::Serving;
use sallyport_wire::trace_context::TraceContext;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;
use tracing::field::Empty;
use tracing::{Instrument, Span, info, info_span};

use self::asked::{ResourceAsked, about};
pub(crate) use self::frames::{ResourceFrames, connected};
use super::client::Grpc;
use super::open::{ClientContext, Opened, OpenedFor, Opener};
use super::watcher::{Session, Watcher, WithResource};

/// Agents that a client may name, as many as a resource has.
const MOST_AGENTS: usize = 64;

/// The ways to resources.
#[derive(Debug, Clone)]
pub(crate) struct Resources {
    opener: Opener,
}

/// A stream that is open, and to which agent.
pub(crate) struct Carrying {
    pub(crate) agent: HostId,
    /// Carries a client's bytes to the end.
    pub(crate) carry: Box<dyn FnOnce(Grpc<ResourceFrames>) -> BoxFuture<'static, ()> + Send>,
}

impl Resources {
    pub(crate) fn new(opener: Opener) -> Self {
        Self { opener }
    }

    /// Opens the way to an agent of what a client names.
    pub(crate) async fn open(
        &self,
        client: ClientContext,
        said: Option<TraceContext>,
        target: &v1::ResourceTarget,
    ) -> Result<Carrying, Status> {
        if target.agents.len() > MOST_AGENTS {
            let problem =
                format!("{} agents are named, at most {MOST_AGENTS} are allowed", target.agents.len());
            return Err(Status::invalid_argument(problem));
        }
        let agents: Result<Vec<HostId>, _> = target.agents.iter().map(|agent| agent.parse()).collect();
        let agents = agents.map_err(|error| Status::invalid_argument(format!("an agent's id: {error}")))?;
        let served = Kind::of_document(&target.kind).and_then(sallyport_protocols::row);
        let Some((row, serving)) = served.and_then(|row| Some((row, row.catalogued?))) else {
            let kind = super::open::shown(&target.kind);
            return Err(Status::unimplemented(format!(
                "this proxy carries nothing to resources of the kind {kind:?}"
            )));
        };
        let opening = opening(&client, row.kind, said);
        let asked = ResourceAsked { kind: row.kind, serving, name: &target.name, agents: &agents };
        let opened = self.opener.open(&client, &asked, &opening, OffsetDateTime::now_utc()).await;
        let opened = opened.map_err(|error| error.status())?;
        let span = info_span!(
            "proxy.resource",
            user = %client.identity.display_name(),
            resource = %opened.permit.resource()
        );
        let (resources, agent) = (self.clone(), opened.stream.agent);
        // Lasts until the first byte comes back.
        let first_byte = info_span!(target: PHASE, parent: &opening, "resource.first_byte");
        let carry = move |to| {
            let carried = async move { resources.carry(&client, serving, opened, to, first_byte).await };
            carried.instrument(span).boxed()
        };
        Ok(Carrying { agent, carry: Box::new(carry) })
    }

    /// Carries bytes until both have finished, one is gone, or what let the user in is taken away.
    async fn carry(
        &self,
        client: &ClientContext,
        serving: &'static Serving,
        opened: OpenedFor<ResourceAsked<'static>>,
        to: Grpc<ResourceFrames>,
        first_byte: Span,
    ) {
        let Opened { found: listed, permit, stream: way, counted, .. } = opened;
        let (identity, source) = (Arc::clone(&client.identity), client.address.to_string());
        let with = WithResource {
            identity: Arc::clone(&client.identity),
            listed: Arc::clone(&listed),
            agent: way.agent,
            valid_until: permit.valid_until(),
            cut: serving.codes.cut.clone(),
        };
        let tells = move |code| {
            let event = Event::new(code, OffsetDateTime::now_utc()).user(identity.display_name());
            about(event.source(source.clone()), &listed)
        };
        let (view, sink) = (Arc::clone(&self.opener.view), Arc::clone(&self.opener.sink));
        let session = Session::with_resource(view, with, sink, tells);
        // The agent sees it, too, and tells it to the program.
        let mut watcher = Watcher::new(session, Some(counted), |_| {});
        let ended = tokio::select! {
            ended = relay::carry(to, &way.stream, first_byte) => ended,
            _ = watcher.cut() => Ok(()),
        };
        if let Err(error) = ended {
            info!(%error, "the way to a resource was lost");
            let lost = watcher.event(serving.lost.clone()).field("at", "proxy").message(error.to_string());
            self.opener.sink.emit(lost);
        }
        info!("session with a resource closed at the proxy");
    }
}

/// Around the beginning of a connection. Never entered: what is spawned meanwhile would keep it.
fn opening(client: &ClientContext, kind: Kind, said: Option<TraceContext>) -> Span {
    info_span!(
        target: PHASE,
        parent: None,
        "proxy.connect",
        traceparent = said.map(tracing::field::display),
        otel.kind = "server",
        client.address = %client.address.ip(),
        network.protocol.name = kind.row().document,
        "error.type" = Empty
    )
}
