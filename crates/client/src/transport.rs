//! The proxy's Transport service as byte streams: SSH, or a database's protocol, inside gRPC.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::future::poll_fn;
use futures::{Stream, StreamExt as _, stream};
use parking_lot::{Mutex, MutexGuard};
use sallyport_access::HostId;
use sallyport_wire::v1::transport_client::TransportClient;
use sallyport_wire::v1::{
    DatabaseTarget, ProxyDatabaseRequest, ProxyDatabaseResponse, ProxyResourceRequest, ProxyResourceResponse,
    ProxySshRequest, ProxySshResponse, ResourceTarget, SshTarget, proxy_database_request,
    proxy_database_response, proxy_resource_request, proxy_resource_response, proxy_ssh_request,
    proxy_ssh_response,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::{Response, Status, Streaming};
use tracing::{Instrument, info_span};

use super::channel::Channel;
use super::profile::Stored;
use super::signing::{self, StreamAgent};
use super::trace::{PHASE, recorder};
use crate::error::Error;

/// Bytes in one message at most.
const CHUNK_BYTES: usize = 64 * 1024;

/// Messages that wait for the network; more make the writer wait.
const QUEUED_MESSAGES: usize = 8;

/// What a stream's messages are, around the bytes that it carries.
pub trait Protocol: Send + Unpin + 'static {
    /// What goes to the proxy.
    type Request: Send + 'static;
    /// What comes from it.
    type Response: Send + 'static;

    /// A message with bytes.
    fn message(bytes: Bytes) -> Self::Request;

    /// The bytes of an answer, where it has any.
    fn bytes(&mut self, response: Self::Response) -> Option<Bytes>;

    /// Ready when nothing is left to do before the next answer is looked at.
    fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }
}

/// SSH; beside the bytes, the proxy may ask for signatures.
#[derive(Debug)]
pub struct Ssh {
    agent: StreamAgent,
}

impl Protocol for Ssh {
    type Request = ProxySshRequest;
    type Response = ProxySshResponse;

    fn message(bytes: Bytes) -> ProxySshRequest {
        ProxySshRequest { frame: Some(proxy_ssh_request::Frame::Ssh(bytes)) }
    }

    fn bytes(&mut self, response: ProxySshResponse) -> Option<Bytes> {
        match response.frame? {
            proxy_ssh_response::Frame::Ssh(bytes) => Some(bytes),
            proxy_ssh_response::Frame::Agent(message) => {
                self.agent.ask(message);
                None
            }
            proxy_ssh_response::Frame::Connected(connected) => {
                recorder::proxy_said(&connected);
                None
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.agent.poll(context)
    }
}

/// A database's own protocol.
#[derive(Debug)]
pub struct Database;

impl Protocol for Database {
    type Request = ProxyDatabaseRequest;
    type Response = ProxyDatabaseResponse;

    fn message(bytes: Bytes) -> ProxyDatabaseRequest {
        ProxyDatabaseRequest { frame: Some(proxy_database_request::Frame::Data(bytes)) }
    }

    fn bytes(&mut self, response: ProxyDatabaseResponse) -> Option<Bytes> {
        match response.frame? {
            proxy_database_response::Frame::Data(bytes) => Some(bytes),
            proxy_database_response::Frame::Connected(_) => None,
        }
    }
}

/// TLS to an agent of a resource of the catalogue.
#[derive(Debug)]
pub struct Resource;

impl Protocol for Resource {
    type Request = ProxyResourceRequest;
    type Response = ProxyResourceResponse;

    fn message(bytes: Bytes) -> ProxyResourceRequest {
        ProxyResourceRequest { frame: Some(proxy_resource_request::Frame::Data(bytes)) }
    }

    fn bytes(&mut self, response: ProxyResourceResponse) -> Option<Bytes> {
        match response.frame? {
            proxy_resource_response::Frame::Data(bytes) => Some(bytes),
            proxy_resource_response::Frame::Connected(_) => None,
        }
    }
}

type Opening<P> =
    Pin<Box<dyn Future<Output = Result<Response<Streaming<<P as Protocol>::Response>>, Status>> + Send>>;

enum Incoming<P: Protocol> {
    /// The proxy has not answered yet. What is written goes out all the same.
    Opening(Opening<P>),
    Open(Box<Streaming<P::Response>>),
    Ended,
}

/// A stream to something behind the proxy.
pub struct Carried<P: Protocol> {
    outgoing: PollSender<P::Request>,
    incoming: Incoming<P>,
    ready: Bytes,
    ending: Ending,
    protocol: P,
}

/// A stream to the SSH service of a node.
pub type NodeStream = Carried<Ssh>;

/// How the proxy ended a stream, readable while and after something else owns the stream.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    said: Arc<Mutex<Option<Said>>>,
    reached: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Said {
    Status(Status),
    /// In the words of the helper daemon, which heard it from the proxy.
    Words(Error),
}

impl Ending {
    /// The proxy has ended it so.
    pub fn set(&self, status: Status) {
        *self.said() = Some(Said::Status(status));
    }

    /// Another process, which carries it, has said this.
    pub fn say(&self, error: Error) {
        *self.said() = Some(Said::Words(error));
    }

    fn said(&self) -> MutexGuard<'_, Option<Said>> {
        self.said.lock()
    }

    /// Whether the proxy has opened the stream to the other end, whatever came of it.
    pub fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// Whether it was not the proxy that ended it, but the connection to the proxy.
    pub fn is_local(&self) -> bool {
        let slot = self.said();
        matches!(&*slot, Some(Said::Status(status)) if std::error::Error::source(status).is_some())
    }

    /// Whether the proxy says that the target has nothing like what was asked for.
    pub fn is_unimplemented(&self) -> bool {
        let slot = self.said();
        matches!(&*slot, Some(Said::Status(status)) if status.code() == tonic::Code::Unimplemented)
    }

    /// What the proxy has a database's client read, in the database's own protocol.
    pub fn refusal(&self) -> Option<Bytes> {
        match &*self.said() {
            Some(Said::Status(status)) => {
                let bytes = status.details();
                let whole = refusal_length(bytes) == Some(bytes.len());
                whole.then(|| Bytes::copy_from_slice(bytes))
            }
            _ => None,
        }
    }

    /// The proxy's words, with what to try next. `None` when the proxy did not complain.
    pub fn error(&self, node: &str, login: &str) -> Option<Error> {
        self.in_words(|status| explain(status, node, login))
    }

    /// The same of a database.
    pub fn database_error(&self, database: &str) -> Option<Error> {
        self.in_words(|status| explain_database(status, database))
    }

    /// The same of a resource of the catalogue.
    pub fn resource_error(&self, kind: &str, name: &str) -> Option<Error> {
        self.in_words(|status| explain_resource(status, kind, name))
    }

    fn in_words(&self, explain: impl Fn(&Status) -> Error) -> Option<Error> {
        let slot = self.said();
        slot.as_ref().map(|said| match said {
            Said::Status(status) => explain(status),
            Said::Words(error) => error.clone(),
        })
    }
}

/// The length of an error message of PostgreSQL's, where bytes begin with one (§53.7).
fn refusal_length(bytes: &[u8]) -> Option<usize> {
    let (head, _) = bytes.split_first_chunk::<5>()?;
    let [b'E', a, b, c, d] = *head else { return None };
    usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?.checked_add(1)
}

/// Not the proxy's words: the connection broke under them, as when a proxy is killed.
fn was_lost(status: &Status) -> bool {
    use tonic::Code;
    std::error::Error::source(status).is_some()
        && matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled)
}

/// A proxy's answer about a node.
fn explain(status: &Status, node: &str, login: &str) -> Error {
    if was_lost(status) {
        return Error::StreamLost { to: node.to_owned() };
    }
    Error::Node { node: node.to_owned(), login: login.to_owned(), status: status.clone() }
}

fn explain_database(status: &Status, database: &str) -> Error {
    if was_lost(status) {
        return Error::StreamLost { to: format!("database {database}") };
    }
    Error::Database { database: database.to_owned(), status: status.clone() }
}

fn explain_resource(status: &Status, kind: &str, name: &str) -> Error {
    if was_lost(status) {
        return Error::StreamLost { to: format!("{kind} {name}") };
    }
    Error::Resource { kind: kind.to_owned(), name: name.to_owned(), status: status.clone() }
}

/// Asks the proxy for a node. Returns at once: the first bytes travel together with the question. Where the proxy needs it
/// for this login, the stored key signs.
pub fn open(channel: Channel, stored: &Arc<Stored>, node: &str, login: &str) -> (NodeStream, Ending) {
    open_to(channel, stored, node, login, false)
}

/// The same for the native listener of a node. The caller speaks TLS on the stream.
pub fn open_native(channel: Channel, stored: &Arc<Stored>, node: &str, login: &str) -> (NodeStream, Ending) {
    open_to(channel, stored, node, login, true)
}

fn open_to(
    channel: Channel,
    stored: &Arc<Stored>,
    node: &str,
    login: &str,
    native: bool,
) -> (NodeStream, Ending) {
    let (sender, receiver) = mpsc::channel(QUEUED_MESSAGES);
    let agent = StreamAgent::new(Arc::clone(stored), node, login, sender.downgrade());
    // A client that names no login has none signed.
    let signs = !login.is_empty() && !native;
    let mut target = SshTarget {
        node: node.to_owned(),
        login: login.to_owned(),
        agent: signs,
        word: None,
        timed: recorder::recorder().is_some(),
        native,
    };
    let stored = Arc::clone(stored);
    // An agent may have to sign the word. What the caller writes meanwhile waits behind the question.
    let first = async move {
        if signs {
            target.word = signing::word(&stored, &target.node, &target.login).await;
        }
        ProxySshRequest { frame: Some(proxy_ssh_request::Frame::Target(target)) }
    };
    let requests = stream::once(first).chain(ReceiverStream::new(receiver));
    let mut client = TransportClient::new(channel);
    let span = info_span!(target: PHASE, "stream");
    let opening = async move { client.proxy_ssh(requests).await }.instrument(span);
    Carried::begin(sender, Box::pin(opening), Ssh { agent })
}

/// Asks the proxy for a database; the same way.
pub fn open_database(channel: Channel, database: &str) -> (Carried<Database>, Ending) {
    open_database_to(channel, DatabaseTarget { database: database.to_owned(), ..DatabaseTarget::default() })
}

fn open_database_to(channel: Channel, target: DatabaseTarget) -> (Carried<Database>, Ending) {
    let (sender, receiver) = mpsc::channel(QUEUED_MESSAGES);
    let first = ProxyDatabaseRequest { frame: Some(proxy_database_request::Frame::Target(target)) };
    // The queue is empty, so this cannot fail.
    let _ = sender.try_send(first);
    let mut client = TransportClient::new(channel);
    let opening = async move { client.proxy_database(ReceiverStream::new(receiver)).await };
    Carried::begin(sender, Box::pin(opening), Database)
}

/// The same for TLS to one of these agents, which is asked for as this database user, with this name on its server.
pub fn open_database_end_to_end(
    channel: Channel,
    database: &str,
    as_whom: (&str, &str),
    agents: &[HostId],
) -> (Carried<Database>, Ending) {
    open_database_to(
        channel,
        DatabaseTarget {
            database: database.to_owned(),
            end_to_end: true,
            db_user: as_whom.0.to_owned(),
            db_name: as_whom.1.to_owned(),
            agents: agents.iter().map(ToString::to_string).collect(),
        },
    )
}

/// Asks the proxy for one of these agents of a resource, the same way. The caller speaks TLS on the stream.
pub fn open_resource(
    channel: Channel,
    kind: &str,
    name: &str,
    agents: &[HostId],
) -> (Carried<Resource>, Ending) {
    let (sender, receiver) = mpsc::channel(QUEUED_MESSAGES);
    let agents = agents.iter().map(ToString::to_string).collect();
    let target = ResourceTarget { kind: kind.to_owned(), name: name.to_owned(), agents };
    let first = ProxyResourceRequest { frame: Some(proxy_resource_request::Frame::Target(target)) };
    // The queue is empty, so this cannot fail.
    let _ = sender.try_send(first);
    let mut client = TransportClient::new(channel);
    let opening = async move { client.proxy_resource(ReceiverStream::new(receiver)).await };
    Carried::begin(sender, Box::pin(opening), Resource)
}

impl<P: Protocol> Carried<P> {
    fn begin(sender: mpsc::Sender<P::Request>, opening: Opening<P>, protocol: P) -> (Self, Ending) {
        let ending = Ending::default();
        let stream = Self {
            outgoing: PollSender::new(sender),
            incoming: Incoming::Opening(opening),
            ready: Bytes::new(),
            ending: ending.clone(),
            protocol,
        };
        (stream, ending)
    }

    /// Both directions on their own, once the proxy has answered and before anything was read.
    pub fn into_halves(self) -> Option<(Outgoing<P>, Answers<P>)> {
        let outgoing = self.outgoing.get_ref().cloned().map(Outgoing)?;
        match self.incoming {
            Incoming::Open(answers) => Some((outgoing, Answers { answers, protocol: self.protocol })),
            Incoming::Opening(_) | Incoming::Ended => None,
        }
    }

    fn fail(&mut self, status: Status) -> io::Error {
        let words = status.message().to_owned();
        self.incoming = Incoming::Ended;
        self.outgoing.close();
        self.ending.set(status);
        io::Error::other(words)
    }

    /// Drives the question, which also carries what is written before the answer.
    pub fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Incoming::Opening(opening) = &mut self.incoming {
            match ready!(opening.as_mut().poll(cx)) {
                Ok(response) => {
                    self.ending.reached.store(true, Ordering::Relaxed);
                    self.incoming = Incoming::Open(Box::new(response.into_inner()));
                }
                Err(status) => return Poll::Ready(Err(self.fail(status))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// What goes to the other end, for a task that waits for capacity before there are bytes.
#[derive(Debug)]
pub struct Outgoing<P: Protocol>(mpsc::Sender<P::Request>);

/// Capacity for one message.
#[derive(Debug)]
pub struct Capacity<'a, P: Protocol>(mpsc::Permit<'a, P::Request>);

/// The stream has ended.
#[derive(Debug, Clone, Copy)]
pub struct Gone;

impl<P: Protocol> Outgoing<P> {
    /// Waits for capacity.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn capacity(&self) -> Result<Capacity<'_, P>, Gone> {
        self.0.reserve().await.map(Capacity).map_err(|_| Gone)
    }

    /// Waits for capacity, and sends.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.capacity().await.map(|capacity| capacity.send(bytes))
    }
}

impl<P: Protocol> Capacity<'_, P> {
    /// Sends.
    pub fn send(self, bytes: Bytes) {
        self.0.send(P::message(bytes));
    }
}

/// What comes from the other end.
#[derive(Debug)]
pub struct Answers<P: Protocol> {
    answers: Box<Streaming<P::Response>>,
    protocol: P,
}

impl<P: Protocol> Answers<P> {
    /// The next bytes; `None` when the other end has said everything.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let Some(answer) = self.answers.message().await? else { return Ok(None) };
            if let Some(bytes) = self.protocol.bytes(answer) {
                return Ok(Some(bytes));
            }
            poll_fn(|context| self.protocol.poll(context)).await?;
        }
    }
}

impl<P: Protocol> AsyncRead for Carried<P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.ready.is_empty() {
                let count = this.ready.len().min(buffer.remaining());
                if let Some(bytes) = this.ready.get(..count) {
                    buffer.put_slice(bytes);
                }
                this.ready.advance(count);
                return Poll::Ready(Ok(()));
            }
            ready!(this.poll_open(cx))?;
            if let Err(status) = ready!(this.protocol.poll(cx)) {
                return Poll::Ready(Err(this.fail(status)));
            }
            let Incoming::Open(stream) = &mut this.incoming else { return Poll::Ready(Ok(())) };
            match ready!(Pin::new(stream).poll_next(cx)) {
                Some(Ok(message)) => this.ready = this.protocol.bytes(message).unwrap_or_default(),
                Some(Err(status)) => return Poll::Ready(Err(this.fail(status))),
                None => {
                    this.incoming = Incoming::Ended;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<P: Protocol> AsyncWrite for Carried<P> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        // Until the answer is there nothing else drives the question, and reading may not have begun.
        if let Poll::Ready(Err(error)) = this.poll_open(cx) {
            return Poll::Ready(Err(error));
        }
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(this.outgoing.poll_reserve(cx)).map_err(gone)?;
        let count = data.len().min(CHUNK_BYTES);
        let bytes = data.get(..count).map(Bytes::copy_from_slice).unwrap_or_default();
        this.outgoing.send_item(P::message(bytes)).map_err(gone)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.close();
        Poll::Ready(Ok(()))
    }
}
