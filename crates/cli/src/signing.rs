//! The user's agent at this end of a stream: signs the one login that was asked for, with the key of the stored login.
//!
//! The proxy asks where it records a server that trusts the user's own certificate alone. Everywhere else nothing here is
//! ever used, and the key is not even read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use sallyport_ssh::agent::LoginSigner;
use sallyport_ssh::client::Credentials;
use sallyport_wire::v1::ProxySshRequest;
use sallyport_wire::v1::proxy_ssh_request::Frame;
use tokio::sync::mpsc::WeakSender;
use tonic::Status;
use tracing::info;

use crate::profile::Stored;

/// Whose key signs, for what, and where answers go.
struct Agent {
    stored: Arc<Stored>,
    node: String,
    login: String,
    signer: Option<LoginSigner>,
    /// Not what keeps the stream open.
    outgoing: WeakSender<ProxySshRequest>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Box<Agent>, Status>> + Send>>;

enum State {
    Idle(Box<Agent>),
    Busy(Answering),
    /// No agent was offered, or it has refused.
    Gone,
}

/// The agent of one stream. One question at a time.
pub(crate) struct StreamAgent(State);

impl std::fmt::Debug for StreamAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamAgent")
    }
}

impl StreamAgent {
    /// For one login on one node.
    pub(crate) fn new(
        stored: Arc<Stored>,
        node: &str,
        login: &str,
        outgoing: WeakSender<ProxySshRequest>,
    ) -> Self {
        let (node, login) = (node.to_owned(), login.to_owned());
        Self(State::Idle(Box::new(Agent { stored, node, login, signer: None, outgoing })))
    }

    /// Begins to answer; [`StreamAgent::poll`] then leads to the end.
    pub(crate) fn ask(&mut self, message: Bytes) {
        self.0 = match std::mem::replace(&mut self.0, State::Gone) {
            State::Idle(agent) => State::Busy(Box::pin(agent.answer(message))),
            other => other,
        };
    }

    /// Ready when nothing is to be answered.
    ///
    /// # Errors
    /// What was asked for and is not signed.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if let State::Busy(answering) = &mut self.0 {
            let answered = ready!(answering.as_mut().poll(context));
            self.0 = State::Gone;
            self.0 = State::Idle(answered?);
        }
        Poll::Ready(Ok(()))
    }
}

impl Agent {
    async fn answer(self: Box<Self>, message: Bytes) -> Result<Box<Self>, Status> {
        let mut agent = self;
        // Reads files, and signs.
        let answering = tokio::task::spawn_blocking(move || {
            let answer = agent.reply(&message);
            (agent, answer)
        });
        let (agent, answer) = answering.await.map_err(|error| Status::internal(error.to_string()))?;
        let answer = answer.map_err(Status::aborted)?;
        if let Some(outgoing) = agent.outgoing.upgrade() {
            // When it is closed, the reading side hears why.
            let _ = outgoing.send(ProxySshRequest { frame: Some(Frame::Agent(answer.into())) }).await;
        }
        Ok(agent)
    }

    fn reply(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        if self.signer.is_none() {
            self.signer = Some(self.signer()?);
            info!(node = self.node, login = self.login, "the proxy asks for the signature of this login");
        }
        let signer = self.signer.as_mut().ok_or("there is no key")?;
        signer.answer(message).map_err(|error| error.to_string())
    }

    fn signer(&self) -> Result<LoginSigner, String> {
        let read = |name: &str| self.stored.read(name).map_err(|error| error.to_string());
        let credentials = Credentials::from_openssh(&read("ssh_key")?, &read("ssh_key-cert.pub")?)
            .map_err(|error| error.to_string())?;
        let trust = Arc::new(self.stored.trust().map_err(|error| error.to_string())?);
        LoginSigner::new(&credentials, trust, &self.node, &self.login)
            .ok_or_else(|| "the stored login has no key".to_owned())
    }
}
