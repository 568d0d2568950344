//! A resource that a client asks for: how it is found, decided about and opened.

use std::sync::Arc;

use sallyport_access::{FactorDemand, HostId, Kind, Listed, Permit};
use sallyport_audit::{Code, Event};
use sallyport_session::serving::Serving;
use sallyport_wire::stream_header::{Carries, ResourceTarget, StreamHeader};
use sallyport_wire::tunnel;
use time::OffsetDateTime;
use tracing::{Span, info};

use super::error::ResourceError;
use crate::member::cluster_cache::Resolved;
use crate::proxy::open::{Asks, ClientContext, Opener, in_order, shown};

/// A resource that a client asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceAsked<'a> {
    pub(super) kind: Kind,
    pub(super) serving: &'static Serving,
    /// As the client says it.
    pub(super) name: &'a str,
    /// The agents that will do, the best first.
    pub(super) agents: &'a [HostId],
}

/// An open stream to an agent.
pub(crate) struct ResourceStream {
    pub(super) stream: tunnel::Stream,
    pub(super) agent: HostId,
}

impl Asks for ResourceAsked<'_> {
    type Found = Arc<Listed>;
    type Permit = Permit<Listed>;
    type Place = ();
    type Stream = ResourceStream;
    type Error = ResourceError;

    fn refusal(&self) -> Code {
        self.serving.codes.refused.clone()
    }

    fn target(&self) -> &str {
        self.name
    }

    fn find(&self, _: &ClientContext, opener: &Opener) -> Result<Arc<Listed>, ResourceError> {
        opener.view.listed(self.kind, self.name).ok_or_else(|| ResourceError::Unknown {
            word: self.kind.row().word,
            name: shown(self.name).to_owned(),
        })
    }

    fn decide(
        &self,
        client: &ClientContext,
        listed: &Arc<Listed>,
        opener: &Opener,
        now: OffsetDateTime,
    ) -> Result<Permit<Listed>, ResourceError> {
        opener.decide(&client.identity, &**listed, &(), now).map_err(ResourceError::Refused)
    }

    fn demand(
        &self,
        _: &ClientContext,
        _: &Arc<Listed>,
        permit: &Permit<Listed>,
        _: &Opener,
    ) -> Option<FactorDemand> {
        permit.factor().cloned()
    }

    fn place(&self, _: &Permit<Listed>, _: &Opener) -> Result<(), ResourceError> {
        Ok(())
    }

    async fn route(
        &self,
        client: &ClientContext,
        listed: &Arc<Listed>,
        permit: &Permit<Listed>,
        (opener, opening): (&Opener, &Span),
        _: OffsetDateTime,
    ) -> Result<ResourceStream, ResourceError> {
        let traceparent = sallyport_telemetry::context(opening).map(|context| context.to_string());
        let resource =
            ResourceTarget { kind: self.kind.row().document.to_owned(), name: listed.name.to_string() };
        let carries = Carries::Resource { resource };
        let header = StreamHeader::new(client.address, permit.user().as_str(), traceparent, carries).encode();
        let agents = in_order(&agents(opener, listed)?, self.agents);
        if agents.is_empty() {
            let (word, name) = (self.kind.row().word, listed.name.to_string());
            return Err(ResourceError::OtherAgents { word, name });
        }
        let opened = agents.into_iter().find_map(|agent| {
            let stream = opener.hub.open_listed(agent, permit, header.clone()).ok()?;
            Some(ResourceStream { stream, agent })
        });
        opened.ok_or_else(|| ResourceError::offline(listed, "no agent of it is connected to this proxy"))
    }

    fn refused(&self, event: Event, _: &ResourceError) -> Event {
        event.node(shown(self.name)).field("kind", self.kind.row().document)
    }

    fn opened(
        &self,
        event: Event,
        listed: &Arc<Listed>,
        _: &Permit<Listed>,
        stream: &ResourceStream,
    ) -> Event {
        info!(resource = %listed.name, kind = listed.kind.row().document, "session with a resource opened");
        about(event, listed).field("agent", stream.agent.to_string())
    }
}

/// The hosts that serve it, by their ids. A name that several have means none of them: the second may have taken it to get
/// what is meant for the first.
fn agents(opener: &Opener, listed: &Listed) -> Result<Vec<HostId>, ResourceError> {
    let (mut found, mut shared) = (Vec::new(), None);
    for name in &listed.agents {
        match opener.view.resolve(name.as_str()) {
            Resolved::One(node) => found.push(node.id),
            Resolved::Several(_) => shared = Some(name),
            Resolved::Unknown => {}
        }
    }
    match (found.is_empty(), shared) {
        (true, Some(name)) => Err(ResourceError::offline(
            listed,
            &format!("several nodes are called {name}; one of them has to go (sallyport admin rm node/ID)"),
        )),
        (true, None) => Err(ResourceError::offline(listed, "it has no agent")),
        (false, _) => Ok(found),
    }
}

/// What an event says of a resource.
pub(super) fn about(event: Event, listed: &Listed) -> Event {
    event.node(listed.name.as_str()).field("kind", listed.kind.row().document)
}
