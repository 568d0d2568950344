//! The proxy's Transport service as a byte stream: SSH inside gRPC.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::Stream;
use futures::future::poll_fn;
use sallyport_wire::v1::proxy_ssh_request::Frame as Asked;
use sallyport_wire::v1::proxy_ssh_response::Frame as Answered;
use sallyport_wire::v1::transport_client::TransportClient;
use sallyport_wire::v1::{ProxySshRequest, ProxySshResponse, SshTarget};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::{Response, Status, Streaming};

use crate::error::{CliError, Exit};
use crate::follow::Channel;
use crate::profile::Stored;
use crate::signing::StreamAgent;

/// Bytes in one message at most.
const CHUNK_BYTES: usize = 64 * 1024;

/// Messages that wait for the network; more make the writer wait.
const QUEUED_MESSAGES: usize = 8;

type Opening = Pin<Box<dyn Future<Output = Result<Response<Streaming<ProxySshResponse>>, Status>> + Send>>;

enum Incoming {
    /// The proxy has not answered yet. What is written goes out all the same.
    Opening(Opening),
    Open(Box<Streaming<ProxySshResponse>>),
    Ended,
}

/// A stream to the SSH service of a node.
pub(crate) struct NodeStream {
    outgoing: PollSender<ProxySshRequest>,
    incoming: Incoming,
    ready: Bytes,
    ending: Ending,
    agent: StreamAgent,
}

/// How the proxy ended a stream, readable while and after something else owns the stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<Option<Said>>>);

#[derive(Debug)]
enum Said {
    Status(Status),
    /// In the words of the resident helper, which heard it from the proxy.
    Words(CliError),
}

impl Ending {
    pub(crate) fn set(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Said::Status(status));
    }

    pub(crate) fn say(&self, error: CliError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Said::Words(error));
    }

    /// Whether it was not the proxy that ended it, but the connection to the proxy.
    pub(crate) fn is_local(&self) -> bool {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*slot, Some(Said::Status(status)) if std::error::Error::source(status).is_some())
    }

    /// The proxy's words, with what to try next. `None` when the proxy did not complain.
    pub(crate) fn error(&self, node: &str, login: &str) -> Option<CliError> {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|said| match said {
            Said::Status(status) => explain(status, node, login),
            Said::Words(error) => error.clone(),
        })
    }
}

/// A proxy's answer in words.
fn explain(status: &Status, node: &str, login: &str) -> CliError {
    use tonic::Code;
    // Not the proxy's words: the connection broke under them, as when a proxy is killed.
    let is_local = std::error::Error::source(status).is_some();
    if is_local && matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled) {
        return CliError::new(format!(
            "the connection to {node} was lost: the proxy, or the way to it, went away"
        ))
        .hint("connect again; sallyport status  (is the proxy up, and reachable from here?)")
        .exit(Exit::Connection);
    }
    let error = CliError::from_status(&format!("connect to {node}"), status);
    let error = match status.code() {
        Code::NotFound => error.hint("sallyport ls"),
        Code::PermissionDenied if !login.is_empty() => {
            error.hint(format!("sallyport ls  (shows the logins you may use; {login} is not one of them on {node}, or a lock is in force)"))
        }
        Code::PermissionDenied => error.hint("sallyport ls"),
        Code::InvalidArgument => error.hint("sallyport ls --verbose  (then use the id in place of the name)"),
        Code::Unauthenticated => error.hint("sallyport login"),
        Code::ResourceExhausted => error.hint("close some sessions and try again"),
        _ => error,
    };
    error.exit(Exit::Connection)
}

/// Asks the proxy for a node. Returns at once: the first bytes travel together with the question. Where the proxy needs it
/// for this login, the stored key signs.
pub(crate) fn open(channel: Channel, stored: &Arc<Stored>, node: &str, login: &str) -> (NodeStream, Ending) {
    let (sender, receiver) = mpsc::channel(QUEUED_MESSAGES);
    let agent = StreamAgent::new(Arc::clone(stored), node, login, sender.downgrade());
    // Who names no login has none signed.
    let target = SshTarget { node: node.to_owned(), login: login.to_owned(), agent: !login.is_empty() };
    // The queue is empty and has room, so this cannot fail.
    let _ = sender.try_send(ProxySshRequest { frame: Some(Asked::Target(target)) });
    let mut client = TransportClient::new(channel);
    let opening = async move { client.proxy_ssh(ReceiverStream::new(receiver)).await };
    let ending = Ending::default();
    let stream = NodeStream {
        outgoing: PollSender::new(sender),
        incoming: Incoming::Opening(Box::pin(opening)),
        ready: Bytes::new(),
        ending: ending.clone(),
        agent,
    };
    (stream, ending)
}

impl NodeStream {
    /// Both directions on their own, once the proxy has answered and before anything was read.
    pub(crate) fn into_halves(self) -> Option<(ToNode, FromNode)> {
        let to_node = self.outgoing.get_ref().cloned().map(ToNode)?;
        match self.incoming {
            Incoming::Open(from_node) => Some((to_node, FromNode { from_node, agent: self.agent })),
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
    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Incoming::Opening(opening) = &mut self.incoming {
            match ready!(opening.as_mut().poll(cx)) {
                Ok(response) => self.incoming = Incoming::Open(Box::new(response.into_inner())),
                Err(status) => return Poll::Ready(Err(self.fail(status))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// What goes to the node, for whoever waits for room before there are bytes.
#[derive(Debug)]
pub(crate) struct ToNode(mpsc::Sender<ProxySshRequest>);

/// Room for one message to the node.
#[derive(Debug)]
pub(crate) struct Room<'a>(mpsc::Permit<'a, ProxySshRequest>);

/// The stream has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gone;

impl ToNode {
    pub(crate) async fn room(&self) -> Result<Room<'_>, Gone> {
        self.0.reserve().await.map(Room).map_err(|_| Gone)
    }

    pub(crate) async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.room().await.map(|room| room.send(bytes))
    }
}

impl Room<'_> {
    pub(crate) fn send(self, bytes: Bytes) {
        self.0.send(ProxySshRequest { frame: Some(Asked::Ssh(bytes)) });
    }
}

/// What comes from the node.
#[derive(Debug)]
pub(crate) struct FromNode {
    from_node: Box<Streaming<ProxySshResponse>>,
    agent: StreamAgent,
}

impl FromNode {
    /// The next bytes; `None` when the node has said everything.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            match self.from_node.message().await? {
                Some(ProxySshResponse { frame: Some(Answered::Ssh(bytes)) }) => return Ok(Some(bytes)),
                Some(ProxySshResponse { frame: Some(Answered::Agent(message)) }) => {
                    self.agent.ask(message);
                    poll_fn(|context| self.agent.poll(context)).await?;
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

impl AsyncRead for NodeStream {
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
            if let Err(status) = ready!(this.agent.poll(cx)) {
                return Poll::Ready(Err(this.fail(status)));
            }
            let Incoming::Open(stream) = &mut this.incoming else { return Poll::Ready(Ok(())) };
            match ready!(Pin::new(stream).poll_next(cx)) {
                Some(Ok(message)) => match message.frame {
                    Some(Answered::Ssh(bytes)) => this.ready = bytes,
                    Some(Answered::Agent(message)) => this.agent.ask(message),
                    _ => {}
                },
                Some(Err(status)) => return Poll::Ready(Err(this.fail(status))),
                None => {
                    this.incoming = Incoming::Ended;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        // Until the answer is there nobody else drives the question, and reading may not have begun.
        if let Poll::Ready(Err(error)) = this.poll_open(cx) {
            return Poll::Ready(Err(error));
        }
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(this.outgoing.poll_reserve(cx)).map_err(gone)?;
        let count = data.len().min(CHUNK_BYTES);
        let bytes = data.get(..count).map(Bytes::copy_from_slice).unwrap_or_default();
        this.outgoing.send_item(ProxySshRequest { frame: Some(Asked::Ssh(bytes)) }).map_err(gone)?;
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
