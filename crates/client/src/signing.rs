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
use sallyport_ssh::agent::LoginSigner;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::proxy_ssh_request::Frame;
use sallyport_wire::v1::{ListNodesRequest, LoginWord, ProxySshRequest};
use time::OffsetDateTime;
use tokio::sync::mpsc::WeakSender;
use tonic::Status;
use tracing::info;

use super::profile::Stored;
use super::{connect, ssh_credentials, vouched};
use crate::error::Error;

/// How long the authority may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long an agent may take to sign the login that was asked for: it may ask its user.
const SIGNING: Duration = Duration::from_secs(30);
/// How long it may take to sign the word, without which most servers are reached: the login behind it has to have its time, too.
const SIGNING_WORD: Duration = Duration::from_secs(8);

/// What the types of keys in security keys begin with.
const SECURITY_KEY: &str = "sk-";

/// The user's word that a login is wanted, good for a minute and once. None where the key cannot give it: then the user's
/// roles decide whether the way is open without. A security key is not asked: the word goes along whether it is needed or not, and the
/// person would touch the key twice for each connection.
pub(crate) async fn word(stored: &Stored, server: &str, login: &str) -> Option<LoginWord> {
    if stored.own_ssh_key().is_some_and(|key| key.kind.starts_with(SECURITY_KEY)) {
        return None;
    }
    let (word, message) = WantedLogin { server, login }.unsigned(OffsetDateTime::now_utc()).ok()?;
    let signing = async {
        let credentials = ssh_credentials::credentials(stored).await.ok()?;
        credentials.sign_word(&message).await.ok()
    };
    let signature = tokio::time::timeout(SIGNING_WORD, signing).await.ok()??;
    let word = sallyport_ca::LoginWord { signature, ..word };
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
        let mut signer = match agent.signer.take() {
            Some(signer) => signer,
            None => agent.signer().await?,
        };
        // Checks signatures.
        let asked;
        (asked, signer, message) = blocking(move || (signer.server_asked(&message), signer, message)).await?;
        if let Some(server) = asked
            && agent.is_vouched(server).await?
        {
            signer.vouch(server);
        }
        let answer = tokio::time::timeout(SIGNING, signer.answer(&message)).await;
        let answer = answer.map_err(|_| {
            Status::aborted(format!(
                "your SSH agent did not sign the login on {} within {} s",
                agent.node,
                SIGNING.as_secs()
            ))
        })?;
        let answer = answer.map_err(|refused| aborted(Error::NotSigned(Arc::new(refused))))?;
        agent.signer = Some(signer);
        if let Some(outgoing) = agent.outgoing.upgrade() {
            // When it is closed, the reading side hears why.
            let _ = outgoing.send(ProxySshRequest { frame: Some(Frame::Agent(answer.into())) }).await;
        }
        Ok(agent)
    }

    /// Asks the authority about a server, unless it was asked a short while ago. Where it does not say that the user's key
    /// logs in there, the signer refuses by itself, in its own words.
    async fn is_vouched(&self, server: HostId) -> Result<bool, Status> {
        let cluster = &self.stored.directory;
        let is = vouched::lately(cluster, server) || self.is_for_users(server).await?;
        if is {
            vouched::remember(cluster, server);
        }
        Ok(is)
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

    async fn signer(&self) -> Result<LoginSigner, Status> {
        let credentials = ssh_credentials::credentials(&self.stored).await.map_err(aborted)?;
        let stored = Arc::clone(&self.stored);
        // Reads a file.
        let trust = blocking(move || stored.trust()).await?.map_err(aborted)?;
        info!(node = self.node, login = self.login, "the proxy asks for the signature of this login");
        Ok(LoginSigner::new(credentials, Arc::new(trust), &self.node, &self.login))
    }
}

fn aborted(error: Error) -> Status {
    Status::aborted(error.told())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}
