//! The user's agent at this end of a stream: signs the one login that was asked for, with the key of the stored login.
//!
//! The proxy asks where it records a server that trusts the user's own certificate alone. For servers at which it logs in in the
//! user's place, the authority wants the user's word, which goes along with the question for the server. Whether a server is one of those the authority says, on a connection that ends
//! there: a proxy that was taken over could ask for a login of its own on any host.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use sallyport_access::HostId;
use sallyport_ca::WantedLogin;
use sallyport_ca::keys::SshKeyPair;
use sallyport_ssh::agent::LoginSigner;
use sallyport_ssh::client::Credentials;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::proxy_ssh_request::Frame;
use sallyport_wire::v1::{ListNodesRequest, LoginWord, ProxySshRequest};
use time::OffsetDateTime;
use tokio::sync::mpsc::WeakSender;
use tonic::Status;
use tracing::info;

use super::profile::Stored;
use super::{connect, vouched};
use crate::error::{Doing, Error};

/// How long the authority may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The user's word that a login is wanted, good for a minute and once. None where the stored key cannot give it: then the user's
/// roles decide whether the way is open without.
pub(crate) fn word(stored: &Stored, server: &str, login: &str) -> Option<LoginWord> {
    let key = SshKeyPair::from_openssh(&stored.read("ssh_key").ok()?).ok()?;
    let word = WantedLogin { server, login }.sign(&*key.signer(), OffsetDateTime::now_utc()).ok()?;
    Some(LoginWord {
        server: server.to_owned(),
        at: word.at,
        nonce: word.nonce.into(),
        signature: word.signature.into(),
    })
}

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
    async fn answer(self: Box<Self>, mut message: Bytes) -> Result<Box<Self>, Status> {
        let mut agent = self;
        // Reads files, and checks signatures.
        let (back, asked, question) = blocking(move || {
            let asked = agent.server_asked(&message);
            (agent, asked, message)
        })
        .await?;
        (agent, message) = (back, question);
        if let Some(server) = asked.map_err(aborted)? {
            agent.vouch(server).await?;
        }
        // Signs.
        let (agent, answer) = blocking(move || {
            let answer = agent.reply(&message);
            (agent, answer)
        })
        .await?;
        let answer = answer.map_err(aborted)?;
        if let Some(outgoing) = agent.outgoing.upgrade() {
            // When it is closed, the reading side hears why.
            let _ = outgoing.send(ProxySshRequest { frame: Some(Frame::Agent(answer.into())) }).await;
        }
        Ok(agent)
    }

    fn reply(&mut self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.at_hand()?.answer(message).map_err(|refused| Error::NotSigned(Arc::new(refused)))
    }

    fn server_asked(&mut self, message: &[u8]) -> Result<Option<HostId>, Error> {
        Ok(self.at_hand()?.server_asked(message))
    }

    fn at_hand(&mut self) -> Result<&mut LoginSigner, Error> {
        if self.signer.is_none() {
            self.signer = Some(self.signer()?);
            info!(node = self.node, login = self.login, "the proxy asks for the signature of this login");
        }
        self.signer.as_mut().ok_or(Error::NoKey)
    }

    /// Asks the authority about a server, unless it was asked a short while ago. Where it does not say that the user's key
    /// logs in there, the signer refuses by itself, in its own words.
    async fn vouch(&mut self, server: HostId) -> Result<(), Status> {
        let cluster = &self.stored.directory;
        if vouched::lately(cluster, server) || self.is_for_users(server).await? {
            vouched::remember(cluster, server);
            if let Some(signer) = &mut self.signer {
                signer.vouch(server);
            }
        }
        Ok(())
    }

    /// Asks by TLS that ends at the authority; the proxy passes on ciphertext.
    async fn is_for_users(&self, server: HostId) -> Result<bool, Status> {
        let unasked = |why: String| {
            Status::unavailable(format!(
                "the proxy asks your key to log in on {}, and the authority cannot be asked whether that is a server \
                 where it should ({why}); nothing was signed",
                self.node
            ))
        };
        let asking = async {
            let channel = connect::authority(&self.stored).await.map_err(|error| unasked(error.told()))?;
            let request =
                ListNodesRequest { query: format!("id == \"{server}\""), limit: 1, ..Default::default() };
            let listed = ClusterClient::new(channel).list_nodes(request).await;
            listed.map_err(|status| unasked(status.message().to_owned()))
        };
        let listed = tokio::time::timeout(PATIENCE, asking).await;
        let nodes = listed.map_err(|_| unasked(format!("no answer within {} s", PATIENCE.as_secs())))??;
        let is = |node: &sallyport_wire::v1::NodeInfo| {
            node.id == server.to_string() && node.kind == "openssh" && node.trust == "user"
        };
        Ok(nodes.into_inner().nodes.iter().any(is))
    }

    fn signer(&self) -> Result<LoginSigner, Error> {
        let read = |name: &str| self.stored.read(name);
        let credentials = Credentials::from_openssh(&read("ssh_key")?, &read("ssh_key-cert.pub")?)
            .doing("use the stored SSH certificate")?;
        let trust = Arc::new(self.stored.trust()?);
        LoginSigner::new(&credentials, trust, &self.node, &self.login).ok_or(Error::NoKey)
    }
}

fn aborted(error: Error) -> Status {
    Status::aborted(error.told())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}
