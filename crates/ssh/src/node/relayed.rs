//! A session of which the node behind a [relay](super::relay) has the say: it is handed on, and its end handed back.

use std::sync::Arc;

use async_trait::async_trait;
use sallyport_audit::{Event, Sink};
use tokio::time::timeout;

use super::backend::{Asked, Place};
use super::endpoint::ChannelEndpoint;
use super::remote::AGENT_VARIABLE;
use super::wanted::{FromClient, GOODBYE, Wanted, notify};
use crate::session::{Happening, Observer, Stop};

/// Hands a session on, and its end back.
pub(super) async fn session(endpoint: ChannelEndpoint, wanted: Wanted, place: &dyn Place) {
    let Wanted { kind, terminal, variables: mut environment, notice, agent, mut display, .. } = wanted;
    notify(&endpoint, notice).await;
    // That would ask for the agent; see `RemotePlace::agent`.
    environment.retain(|(name, _)| name != AGENT_VARIABLE);
    let mut reaches = Vec::new();
    if agent {
        reaches.extend(place.agent(endpoint.client()).await);
    }
    if let Some(asked) = &display {
        match place.display(endpoint.client(), asked).await {
            Ok(reach) => reaches.push(reach),
            Err(_) => display = None,
        }
    }
    environment.extend(reaches.iter().flat_map(|reach| reach.environment.iter().cloned()));
    let asked = Asked { kind, terminal, environment, hash_files: false, from: None, display };
    let input = Box::new(FromClient(endpoint.inbox.clone()));
    let ended = place.run(asked, None, input, Arc::new(endpoint.clone()), Arc::new(Discard)).await;
    drop(reaches);
    if let Some(reason) = &ended.cut {
        // A client that takes nothing is not waited for.
        let _ = timeout(GOODBYE, endpoint.refuse(reason)).await;
    }
    endpoint.close().await;
}

/// Drops events: the node behind tells them.
#[derive(Debug)]
pub(super) struct Discard;

impl Sink for Discard {
    fn emit(&self, _: Event) {}
}

#[async_trait]
impl Observer for Discard {
    async fn happened(&self, _: Happening) -> Result<(), Stop> {
        Ok(())
    }
}
