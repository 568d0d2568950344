//! What a session channel asks to start, and the first words that it hears.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;

use super::backend::DisplayAsked;
use super::endpoint::ChannelEndpoint;
use crate::inbound::Inbox;
use crate::session::{Channel, Incoming, Input, Kind, Terminal};

/// How long a client has to take the reason for the end of its session.
pub(super) const GOODBYE: Duration = Duration::from_secs(1);

/// What a person reads before what they type or send is recorded.
pub(super) const INPUT_RECORDED: &str = "what you type or send in this session is recorded, passwords among it, and is played back to those who may see recordings";

/// What a channel asks to start.
pub(super) struct Wanted {
    pub(super) kind: Kind,
    pub(super) terminal: Option<Terminal>,
    pub(super) variables: Vec<(String, String)>,
    /// What the person is told before it starts.
    pub(super) notice: Option<String>,
    /// The agent is to be reached from the session.
    pub(super) agent: bool,
    /// The client has an agent that can sign the login on the server behind this one.
    pub(super) lends_agent: bool,
    pub(super) display: Option<DisplayAsked>,
}

pub(super) struct FromClient(pub(super) Arc<Inbox>);

#[async_trait]
impl Input for FromClient {
    async fn next(&mut self) -> Option<Incoming> {
        self.0.next().await
    }
}

/// Tells the person what of their wishes is left out.
pub(super) async fn notify(endpoint: &ChannelEndpoint, notice: Option<String>) {
    if let Some(notice) = notice {
        let text = format!("sallyport: {notice}\r\n");
        // A client that takes nothing is not waited for.
        let _ = timeout(GOODBYE, endpoint.send(Channel::Stderr, Bytes::from(text))).await;
    }
}
