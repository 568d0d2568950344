//! Connections to nodes through the proxy.

use super::*;

pub(crate) async fn exec(
    connection: &Connection,
    command: &str,
) -> (String, String, sallyport_ssh::client::Exit) {
    let mut session = connection.start(SessionRequest::exec(command)).await.unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while let Some(output) = session.next().await {
        match output {
            Output::Stdout(bytes) => out.extend_from_slice(&bytes),
            Output::Stderr(bytes) => err.extend_from_slice(&bytes),
            Output::Exit(exit) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                return (text(&out), text(&err), exit);
            }
            _ => {}
        }
    }
    panic!("the session ended without an exit");
}

pub(crate) async fn open(channel: Channel, node: &str, login: &str) -> Result<NodeStream, Status> {
    let (send, receive) = tokio::sync::mpsc::channel(16);
    let target = v1::SshTarget {
        node: node.to_owned(),
        login: login.to_owned(),
        agent: false,
        timed: false,
        native: false,
        word: None,
    };
    send.send(v1::ProxySshRequest { frame: Some(Ask::Target(target)) }).await.unwrap();
    let mut client = TransportClient::new(channel);
    let mut answers = client.proxy_ssh(ReceiverStream::new(receive)).await?.into_inner();
    match answers.message().await?.and_then(|message| message.frame) {
        Some(Answer::Connected(connected)) => Ok(NodeStream {
            connected,
            send: tokio_util::sync::PollSender::new(send),
            answers,
            rest: Bytes::new(),
            end: None,
        }),
        other => Err(Status::internal(format!("not connected: {other:?}"))),
    }
}

/// The bytes of a `ProxySsh` call as a stream.
pub(crate) struct NodeStream {
    pub(crate) connected: v1::SshConnected,
    send: tokio_util::sync::PollSender<v1::ProxySshRequest>,
    answers: Streaming<v1::ProxySshResponse>,
    rest: Bytes,
    /// How the call ended.
    pub(crate) end: Option<Status>,
}

impl NodeStream {
    /// Sends something other than bytes.
    pub(crate) async fn ask(&mut self, frame: Ask) {
        let message = v1::ProxySshRequest { frame: Some(frame) };
        std::future::poll_fn(|context| self.send.poll_reserve(context)).await.unwrap();
        self.send.send_item(message).unwrap();
    }

    /// Reads until the call ends; the status that it ended with, if it was an error.
    pub(crate) async fn ended(&mut self) -> Option<Status> {
        loop {
            match self.answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }
}

impl AsyncRead for NodeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        use futures::Stream;
        loop {
            if !self.rest.is_empty() {
                let take = self.rest.len().min(buffer.remaining());
                buffer.put_slice(&self.rest[..take]);
                self.rest.advance(take);
                return Poll::Ready(Ok(()));
            }
            match std::task::ready!(Pin::new(&mut self.answers).poll_next(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(status)) => {
                    let error = std::io::Error::other(status.message().to_owned());
                    self.end = Some(status);
                    return Poll::Ready(Err(error));
                }
                Some(Ok(message)) => {
                    if let Some(Answer::Ssh(bytes)) = message.frame {
                        self.rest = bytes;
                    }
                }
            }
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if std::task::ready!(self.send.poll_reserve(context)).is_err() {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        }
        let chunk = &data[..data.len().min(64 * 1024)];
        let message = v1::ProxySshRequest { frame: Some(Ask::Ssh(Bytes::copy_from_slice(chunk))) };
        match self.send.send_item(message) {
            Ok(()) => Poll::Ready(Ok(chunk.len())),
            Err(_) => Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.send.close();
        Poll::Ready(Ok(()))
    }
}
