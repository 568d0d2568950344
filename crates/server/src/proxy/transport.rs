//! The Transport service: SSH from client to node, and other protocols to agents, inside gRPC streams, as ciphertext.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::poll_fn;
use metrics::{Counter, counter};
use parking_lot::Mutex;
use sallyport_access::{DatabaseName, Login, NodeKind, NodeName};
use sallyport_audit::{Code, Sink};
use sallyport_ssh::agent::{MAX_MESSAGE_BYTES, Question, UserAgent};
use sallyport_ssh::client::PHASE;
use sallyport_wire::v1;
use sallyport_wire::v1::proxy_ssh_request::Frame as Asked;
use sallyport_wire::v1::proxy_ssh_response::Frame as Answered;
use sallyport_wire::v1::transport_server::Transport;
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::field::Empty;
use tracing::{Instrument, Span, debug, info, info_span};

use super::client::{Answer, Grpc};
use super::databases::{DatabaseFrames, Databases, connected};
use super::nodes::{NodeAsked, Nodes};
use super::open::Opened;
use super::peer::{Peer, caller};
use super::resources::{self, ResourceFrames, Resources};
use super::servers::DialError;
use super::upstream::{Upstream, UpstreamError};
use super::watcher::{Session, Watcher};
use crate::member::cluster_cache::Resolved;
use crate::member::session_factors::of_factor;
use crate::tasks;
use crate::telemetry;

/// One message's worth of SSH: large enough to make the framing negligible, small enough to share a connection.
const CHUNK_BYTES: usize = 64 * 1024;

/// Answers of a database or another resource that wait for the network; more make the agent wait.
const QUEUED_ANSWERS: usize = 4;

/// Serves `ProxySsh`, `ProxyDatabase` and `ProxyResource`.
#[derive(Debug, Clone)]
pub(crate) struct TransportService {
    nodes: Nodes,
    databases: Databases,
    resources: Resources,
}

impl TransportService {
    pub(crate) fn new(nodes: Nodes, databases: Databases, resources: Resources) -> Self {
        Self { nodes, databases, resources }
    }
}

pub(crate) fn status(error: &DialError) -> Status {
    let message = error.to_string();
    match error {
        DialError::Unknown(_) => Status::not_found(message),
        DialError::Ambiguous { .. } => Status::invalid_argument(message),
        DialError::Refused(_) | DialError::NotJoinable(_) | DialError::NoUser => {
            Status::permission_denied(message)
        }
        DialError::SeesProxy { .. } => Status::failed_precondition(message),
        DialError::Factor(missing) => of_factor(missing),
        DialError::TooMany(_) => Status::resource_exhausted(message),
        DialError::Offline(_)
        | DialError::Server { .. }
        | DialError::Gateway { .. }
        | DialError::NotRecordable { .. }
        | DialError::Stopping => Status::unavailable(message),
    }
}

#[tonic::async_trait]
impl Transport for TransportService {
    type ProxySshStream = FromNode;
    type ProxyDatabaseStream = ReceiverStream<Answer<DatabaseFrames>>;
    type ProxyResourceStream = ReceiverStream<Answer<ResourceFrames>>;

    async fn proxy_resource(
        &self,
        request: Request<Streaming<v1::ProxyResourceRequest>>,
    ) -> Result<Response<Self::ProxyResourceStream>, Status> {
        let client = caller(request.extensions().get::<Peer>(), OffsetDateTime::now_utc())?;
        let said = telemetry::parent(request.metadata().as_ref(), Some(&client.identity));
        let mut frames = request.into_inner();
        let first = frames.message().await?.and_then(|message| message.frame);
        let Some(v1::proxy_resource_request::Frame::Target(target)) = first else {
            return Err(Status::invalid_argument("the first message must name the target"));
        };
        let opened = self.resources.open(client, said, &target).await?;
        let (answers, stream) = mpsc::channel(QUEUED_ANSWERS);
        // The queue is empty and has room, so this cannot fail.
        let _ = answers.try_send(Ok(resources::connected(opened.agent)));
        tasks::start((opened.carry)(Grpc::new(frames, answers)));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn proxy_database(
        &self,
        request: Request<Streaming<v1::ProxyDatabaseRequest>>,
    ) -> Result<Response<Self::ProxyDatabaseStream>, Status> {
        let now = OffsetDateTime::now_utc();
        let client = caller(request.extensions().get::<Peer>(), now)?;
        let said = telemetry::parent(request.metadata().as_ref(), Some(&client.identity));
        let mut frames = request.into_inner();
        let first = frames.message().await?.and_then(|message| message.frame);
        let Some(v1::proxy_database_request::Frame::Target(target)) = first else {
            return Err(Status::invalid_argument("the first message must name the target"));
        };
        let name = DatabaseName::new(target.database.clone())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        if !self.databases.knows(&name) {
            return Err(Status::not_found(format!(
                "no database of the cluster is called {name:?}; `sallyport db ls` lists those that you may use",
                name = name.as_str()
            )));
        }
        let (answers, stream) = mpsc::channel(QUEUED_ANSWERS);
        if target.end_to_end {
            let databases = self.databases.clone();
            let carry = databases.open_end_to_end(client, said, name.clone(), &target).await?;
            let _ = answers.try_send(Ok(connected(name.as_str())));
            tasks::start(carry(Grpc::new(frames, answers)));
            return Ok(Response::new(ReceiverStream::new(stream)));
        }
        // The queue is empty and has room, so this cannot fail.
        let _ = answers.try_send(Ok(connected(name.as_str())));
        let databases = self.databases.clone();
        // Ends when the client is gone: then neither direction goes on.
        tasks::start(
            async move { databases.serve_grpc(client, said, name, Grpc::new(frames, answers)).await },
        );
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn proxy_ssh(
        &self,
        request: Request<Streaming<v1::ProxySshRequest>>,
    ) -> Result<Response<FromNode>, Status> {
        let now = OffsetDateTime::now_utc();
        let client = caller(request.extensions().get::<Peer>(), now)?;
        let said = telemetry::parent(request.metadata().as_ref(), Some(&client.identity));
        let mut frames = request.into_inner();
        let first = frames.message().await?.and_then(|message| message.frame);
        let Some(Asked::Target(target)) = first else {
            return Err(Status::invalid_argument("the first message must name the target"));
        };
        let login = match target.login.as_str() {
            "" => None,
            login => Some(Login::new(login).map_err(|error| Status::invalid_argument(error.to_string()))?),
        };
        if target.native
            && let Resolved::One(node) = self.nodes.opener.view.resolve(&target.node)
            && !matches!(node.kind, NodeKind::Sallyport)
        {
            return Err(Status::unimplemented("this server speaks SSH alone"));
        }
        let span = info_span!("proxy.session", user = %client.identity.display_name(), node = %target.node);
        let (agent, questions) = match target.agent {
            true => {
                let (agent, questions) = UserAgent::new();
                (Some(agent), Some(questions))
            }
            false => (None, None),
        };
        let opening = info_span!(
            target: PHASE,
            parent: None,
            "proxy.connect",
            traceparent = said.map(display),
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = "sallyport.v1.Transport",
            rpc.method = "ProxySsh",
            client.address = %client.address.ip(),
            "error.type" = Empty
        );
        let asked = NodeAsked {
            nodes: &self.nodes,
            target: &target.node,
            login: login.as_ref(),
            agent: agent.as_ref(),
            word: target.word.as_ref(),
            ssh_alone: !target.native,
        };
        let opened = self.nodes.opener.open(&client, &asked, &opening, now).instrument(span.clone()).await;
        let Opened { found: node, stream, counted, took, .. } = opened.map_err(|error| status(&error))?;
        drop(agent);
        let connected = v1::SshConnected {
            node_id: node.id.to_string(),
            node_name: node.name.to_string(),
            decision_us: if target.timed { microseconds(took.decision) } else { 0 },
            open_us: if target.timed { microseconds(took.open) } else { 0 },
        };
        let stream = Arc::new(stream);
        let (refuse, refused) = oneshot::channel();
        let waiting = Waiting::default();
        let upstream = tokio::spawn(
            client_to_node(frames, Arc::clone(&stream), refuse, waiting.clone()).instrument(span.clone()),
        );
        let (cut, carrying) = (Arc::clone(&stream), upstream.abort_handle());
        let (view, sink) = (Arc::clone(&self.nodes.opener.view), Arc::clone(&self.nodes.opener.sink));
        let name = node.name.clone();
        let session = Session::with_node(view, client.identity, node, login, sink);
        let watcher = span.in_scope(|| {
            Watcher::new(session, Some(counted), move |reason| {
                carrying.abort();
                cut.cut(reason);
            })
        });
        let stream = FromNode {
            connected: Some(connected),
            from_node: stream,
            refused: Some(refused),
            questions,
            waiting,
            first_byte: Some(info_span!(target: PHASE, parent: &opening, "node.first_byte")),
            upstream: upstream.abort_handle(),
            watcher,
            node: name,
            sink: Arc::clone(&self.nodes.opener.sink),
            received: counter!("sallyport_bytes_total", "direction" => "from_node"),
            span,
            ended: false,
        };
        Ok(Response::new(stream))
    }
}

/// What was measured is never nothing.
fn microseconds(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// Carries the client's bytes. Not reading the next message until these are taken is what slows the client down.
async fn client_to_node(
    mut frames: Streaming<v1::ProxySshRequest>,
    to_node: Arc<Upstream>,
    refuse: oneshot::Sender<Status>,
    waiting: Waiting,
) {
    let sent = counter!("sallyport_bytes_total", "direction" => "to_node");
    loop {
        let frame = match frames.message().await {
            Ok(Some(message)) => message.frame,
            Ok(None) => {
                // The client has said everything; the node may still answer.
                to_node.flush(true).await;
                return;
            }
            Err(status) => {
                debug!(%status, "client stream ended");
                let _ = refuse.send(status);
                return;
            }
        };
        match frame {
            Some(Asked::Ssh(mut bytes)) => {
                sent.increment(bytes.len() as u64);
                while !bytes.is_empty() {
                    if poll_fn(|context| to_node.poll_send(&mut bytes, context)).await.is_err() {
                        // The reading side learns why, and tells the client.
                        return;
                    }
                }
                to_node.flush(false).await;
            }
            Some(Asked::Agent(answer)) => {
                if let Err(status) = waiting.answer(answer) {
                    let _ = refuse.send(status);
                    return;
                }
            }
            Some(Asked::Target(_)) => {
                let _ = refuse.send(Status::invalid_argument("the target was named already"));
                return;
            }
            None => {}
        }
    }
}

/// Where the answer of the user's agent is waited for, while it was asked.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Option<oneshot::Sender<Bytes>>>>);

impl Waiting {
    /// Waits for an answer. An answer to an earlier question that has not come yet is dropped.
    fn ask(&self, answer: oneshot::Sender<Bytes>) {
        *self.0.lock() = Some(answer);
    }

    fn answer(&self, answer: Bytes) -> Result<(), Status> {
        let waiting = self.0.lock().take();
        let waiting = waiting.ok_or_else(|| {
            Status::failed_precondition(
                "an agent frame that the node has not asked for; agents are forwarded inside SSH (ssh -A)",
            )
        })?;
        if answer.len() > MAX_MESSAGE_BYTES {
            return Err(Status::invalid_argument(format!(
                "an agent frame of {} bytes, at most {MAX_MESSAGE_BYTES} are allowed",
                answer.len()
            )));
        }
        // The session that asked may have given up.
        let _ = waiting.send(answer);
        Ok(())
    }
}

/// What the client receives: `connected`, then the node's bytes as they come, and questions to its agent.
pub(crate) struct FromNode {
    connected: Option<v1::SshConnected>,
    from_node: Arc<Upstream>,
    refused: Option<oneshot::Receiver<Status>>,
    questions: Option<mpsc::Receiver<Question>>,
    waiting: Waiting,
    /// Ends with the first bytes of the node.
    first_byte: Option<Span>,
    upstream: AbortHandle,
    watcher: Watcher,
    /// What the node is called.
    node: NodeName,
    sink: Arc<dyn Sink>,
    received: Counter,
    span: tracing::Span,
    ended: bool,
}

impl Drop for FromNode {
    fn drop(&mut self) {
        // The tunnel stream closes with its last owner.
        self.upstream.abort();
        self.span.in_scope(|| info!("session closed at the proxy"));
    }
}

impl FromNode {
    fn lost(&self, error: &UpstreamError) -> Status {
        let message = format!(
            "the connection to node {} was lost ({error}); if it comes back, connect again",
            self.node
        );
        self.sink.emit(self.watcher.event(Code::SessionLost).message(message.clone()));
        Status::unavailable(message)
    }
}

impl futures::Stream for FromNode {
    type Item = Result<v1::ProxySshResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(connected) = this.connected.take() {
            return Poll::Ready(Some(Ok(answer(Answered::Connected(connected)))));
        }
        if let Some(reason) = this.watcher.poll_cut(context) {
            this.ended = true;
            return Poll::Ready(Some(Err(Status::permission_denied(reason))));
        }
        if let Some(refused) = this.refused.as_mut() {
            match Pin::new(refused).poll(context) {
                Poll::Ready(Ok(status)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(status)));
                }
                Poll::Ready(Err(_)) => this.refused = None,
                Poll::Pending => {}
            }
        }
        if let Some(questions) = this.questions.as_mut() {
            match questions.poll_recv(context) {
                Poll::Ready(Some(Question { message, answer: to })) => {
                    this.waiting.ask(to);
                    return Poll::Ready(Some(Ok(answer(Answered::Agent(message)))));
                }
                // No session is left that could ask. Where no agent is needed, there is none from the beginning.
                Poll::Ready(None) => this.questions = None,
                Poll::Pending => {}
            }
        }
        match this.from_node.poll_receive(CHUNK_BYTES, context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(None)) => {
                (this.ended, this.first_byte) = (true, None);
                Poll::Ready(None)
            }
            Poll::Ready(Ok(Some(bytes))) => {
                this.first_byte = None;
                this.received.increment(bytes.len() as u64);
                Poll::Ready(Some(Ok(answer(Answered::Ssh(bytes)))))
            }
            Poll::Ready(Err(error)) => {
                this.ended = true;
                // It may have been cut between the two questions.
                let status = match this.watcher.poll_cut(context) {
                    Some(reason) => Status::permission_denied(reason),
                    None => this.lost(&error),
                };
                Poll::Ready(Some(Err(status)))
            }
        }
    }
}

fn answer(frame: Answered) -> v1::ProxySshResponse {
    v1::ProxySshResponse { frame: Some(frame) }
}
