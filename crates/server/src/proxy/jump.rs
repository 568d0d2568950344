//! The plain SSH face (`ssh -J`), on the same path to nodes as everything else.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use parking_lot::Mutex;
use sallyport_access::{Identity, Kind, SessionTarget};
use sallyport_audit::{Code, Event, Sink};
use sallyport_ca::Trust;
use sallyport_sal::HybridKeyExchange;
use sallyport_ssh::BoxedStream;
use sallyport_ssh::capabilities::{Sighting, Whose};
use sallyport_ssh::client::PHASE;
use sallyport_ssh::jump::{ASKS, Admits, Answered, Dial, Jump, JumpConfig, Question, Refusal};
use sallyport_wire::stream_header::UserCertificate;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{info, info_span};

use super::gateway::ServeSsh;
use super::nodes::{NodeAsked, Nodes};
use super::open::{ClientContext, Opened};
use super::proving;
use super::servers::DialError;
use super::watcher::{Session, Watcher};
use crate::ServerError;
use crate::listener::Faults;
use crate::member::client_sightings::Sightings;
use crate::member::cluster_cache::Resolved;
use crate::member::host::{Credentials, certificates};
use crate::sessions::SessionGuard;

/// Reads that logging in takes at most, with a few keys that do not fit. They are acknowledged at once: stock clients leave
/// Nagle's algorithm on until they are logged in, and keep their next packet for as long as the one before is not
/// acknowledged, for which the system otherwise takes 40 ms.
const LOGIN_READS: u8 = 24;

/// Finds and opens nodes for the SSH face.
struct JumpDial {
    nodes: Nodes,
    sightings: Sightings,
    faults: Faults,
}

#[async_trait]
impl Dial for JumpDial {
    fn trust(&self) -> Arc<Trust> {
        self.nodes.opener.view.trust()
    }

    async fn dial(
        &self,
        identity: &Identity,
        certificate: &str,
        host: &str,
        client: SocketAddr,
        cut: CancellationToken,
    ) -> Result<BoxedStream, Refusal> {
        let now = OffsetDateTime::now_utc();
        // Which login is asked for is inside the SSH that passes through; the node decides about it.
        let certificate = UserCertificate::Ssh(certificate.into());
        // An agent comes, if at all, forwarded by the SSH that passes through.
        let opening = info_span!(
            target: PHASE,
            parent: None,
            "proxy.connect",
            otel.kind = "server",
            client.address = %client.ip(),
            network.protocol.name = "ssh",
            "error.type" = Empty
        );
        let asked = NodeAsked {
            nodes: &self.nodes,
            target: host,
            login: None,
            agent: None,
            word: None,
            ssh_alone: true,
        };
        let client = ClientContext { identity: Arc::new(identity.clone()), certificate, address: client };
        let opened = match self.nodes.opener.open(&client, &asked, &opening, now).await {
            Ok(opened) => opened,
            Err(error) => return Err(self.refusal(&client, host, &error).await),
        };
        let Opened { found: node, stream, counted, .. } = opened;
        let (view, sink) = (Arc::clone(&self.nodes.opener.view), Arc::clone(&self.nodes.opener.sink));
        let session = Session::with_node(view, client.identity, node, None, sink);
        Ok(Box::new(ToNode::new(stream.into_stream(), session, counted, cut)))
    }

    async fn question(&self, identity: &Identity, _: &str, client: SocketAddr) -> Option<Question> {
        self.nodes.opener.asking.question(identity, client)
    }

    async fn answer(
        &self,
        question: &Question,
        typed: &str,
        certificate: &str,
        client: SocketAddr,
    ) -> Answered {
        self.nodes.opener.asking.answer(question, typed, certificate, client).await
    }

    fn saw(&self, sighting: Sighting) {
        // Whose name is not known has proved nothing.
        if let Some(Whose::Address(address)) = sighting.whose {
            self.faults.note(address, std::time::Instant::now());
        }
        // Under other suites those who fail here are scanners, which a public address has many of.
        let required = self.nodes.opener.view.trust().suite().key_exchange() == HybridKeyExchange::Required;
        if let (true, Some(reason)) = (required, &sighting.refused) {
            let source = match &sighting.whose {
                Some(Whose::Address(address)) => address.to_string(),
                Some(Whose::User(_)) | None => String::new(),
            };
            let event = Event::new(Code::SessionRefused, OffsetDateTime::now_utc())
                .source(source)
                .message(format!("the client cannot talk to this proxy: {reason}"))
                .field("client", sighting.offer.software.as_str());
            self.nodes.opener.sink.emit(event);
        }
        self.sightings.saw_ssh(sighting);
    }
}

impl JumpDial {
    /// What the user reads. A client of this face cannot ask for a second factor, so that the words say where it is proven.
    async fn refusal(&self, client: &ClientContext, host: &str, error: &DialError) -> Refusal {
        let opener = &self.nodes.opener;
        let demanded = match error {
            DialError::Factor(missing) => missing.demanded(),
            _ => None,
        };
        let Some(demanded) = demanded else { return Refusal::new(error.to_string()) };
        let (resource, name) = match opener.view.resolve(host) {
            Resolved::One(node) => (node.id.to_string(), node.name.to_string()),
            Resolved::Unknown | Resolved::Several(_) => (host.to_owned(), host.to_owned()),
        };
        let target = SessionTarget::any(Kind::Node, resource);
        let whose = (&client.certificate, client.address);
        match opener.asking.words(&client.identity, whose, (target, &name)).await {
            Some(words) => Refusal::new(format!(
                "a second factor has to be proven before this session (require_session_mfa: {}): {words}; or, to type a one-time code, as \
                 the user {ASKS} of this proxy: ssh -J {ASKS}@PROXY",
                demanded.as_str()
            )),
            None => Refusal::new(error.to_string()),
        }
    }
}

/// A node's stream that ends when a lock takes its permit away, and counts as a session while it lives.
struct ToNode {
    /// Taken away to end it.
    stream: Arc<Mutex<Option<BoxedStream>>>,
    watcher: Watcher,
}

impl ToNode {
    fn new(stream: BoxedStream, session: Session, counted: SessionGuard, cut: CancellationToken) -> Self {
        let stream = Arc::new(Mutex::new(Some(stream)));
        let ends = Arc::clone(&stream);
        let watcher = Watcher::new(session, Some(counted), move |_| {
            drop(ends.lock().take());
            cut.cancel();
        });
        Self { stream, watcher }
    }

    fn with<T>(
        &self,
        work: impl FnOnce(Pin<&mut BoxedStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match self.stream.lock().as_mut() {
            Some(stream) => work(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl AsyncRead for ToNode {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(reason) = self.watcher.poll_cut(context) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)));
        }
        self.with(|stream| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for ToNode {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(context, data))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(context))
    }
}

/// The face, with this proxy's host key.
pub(crate) fn face(
    nodes: Nodes,
    sightings: Sightings,
    faults: Faults,
    credentials: &Credentials,
) -> Result<Arc<Jump>, ServerError> {
    let identity = credentials.identity();
    Jump::new(
        JumpConfig::default(),
        identity.ssh_key.expose(),
        &identity.ssh_certificate,
        Arc::new(JumpDial { nodes, sightings, faults }),
    )
    .map(Arc::new)
    .map_err(|error| certificates("cannot use this proxy's SSH host key", error))
}

/// Serves connections with the face.
pub(crate) fn serve(jump: Arc<Jump>, sink: Arc<dyn Sink>) -> ServeSsh {
    Arc::new(move |stream, client, slot| {
        let (jump, sink) = (Arc::clone(&jump), Arc::clone(&sink));
        Box::pin(async move {
            let admits: Admits = Arc::new(move |identity| {
                proving::prove(&slot, identity).map_err(|crowded| {
                    proving::refused(&*sink, identity, client, crowded);
                    Refusal::new(crowded.message())
                })
            });
            if let Err(error) = jump.serve(stream.prompt(LOGIN_READS), client, admits).await {
                info!(%error, "SSH connection ended");
            }
        })
    })
}

/// Uses each renewed host key.
pub(crate) fn follow_renewals(jump: &Arc<Jump>, credentials: &Credentials) {
    let jump = Arc::clone(jump);
    credentials.present_with(Box::new(move |identity| {
        jump.replace_host_key(identity.ssh_key.expose(), &identity.ssh_certificate)
            .map_err(|error| certificates("the SSH face cannot use the renewed host key", error))
    }));
}
