//! An open stream to a server, whatever it leads over: read by one task, written by another.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use sallyport_ssh::BoxedStream;
use sallyport_wire::tunnel;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};

/// Room that is made for what a stream brings.
const READ_BYTES: usize = 32 * 1024;

/// The stream.
pub(crate) enum Upstream {
    /// A stream of a node's tunnel, whose chunks are handed on as they are.
    Tunnel(tunnel::Stream),
    /// Any other stream. Each half belongs to one task, until both are taken away to end it.
    Other { read: Mutex<Option<ReadHalf<BoxedStream>>>, write: Mutex<Option<WriteHalf<BoxedStream>>> },
}

fn cut() -> UpstreamError {
    io::Error::from(io::ErrorKind::ConnectionAborted).into()
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tunnel(_) => "Upstream::Tunnel",
            Self::Other { .. } => "Upstream::Other",
        })
    }
}

/// Why a stream ended before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("{0}")]
    Tunnel(#[from] tunnel::TunnelError),
    #[error("{0}")]
    Other(#[from] io::Error),
}

impl Upstream {
    pub(crate) fn over(stream: BoxedStream) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self::Other { read: Mutex::new(Some(read)), write: Mutex::new(Some(write)) }
    }

    /// Ends it both ways at once, while other tasks may read or write: the server's side is closed.
    pub(crate) fn cut(&self, reason: &str) {
        match self {
            Self::Tunnel(stream) => stream.reset(reason),
            Self::Other { read, write } => {
                let read = read.lock().take();
                let write = write.lock().take();
                drop((read, write));
            }
        }
    }

    /// Takes some of the bytes.
    pub(crate) fn poll_send(
        &self,
        bytes: &mut Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, UpstreamError>> {
        match self {
            Self::Tunnel(stream) => stream.poll_send(bytes, context).map_err(UpstreamError::from),
            Self::Other { write, .. } => {
                let mut write = write.lock();
                let Some(write) = write.as_mut() else { return Poll::Ready(Err(cut())) };
                let written = ready!(Pin::new(write).poll_write(context, bytes))?;
                if written == 0 {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
                }
                bytes.advance(written);
                Poll::Ready(Ok(written))
            }
        }
    }

    /// The next bytes, `None` at the end.
    pub(crate) fn poll_receive(
        &self,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, UpstreamError>> {
        match self {
            Self::Tunnel(stream) => stream.poll_receive(most, context).map_err(UpstreamError::from),
            Self::Other { read, .. } => {
                let mut read = read.lock();
                let Some(read) = read.as_mut() else { return Poll::Ready(Err(cut())) };
                let mut room = BytesMut::zeroed(most.min(READ_BYTES));
                let mut buffer = ReadBuf::new(&mut room);
                ready!(Pin::new(read).poll_read(context, &mut buffer))?;
                let length = buffer.filled().len();
                room.truncate(length);
                Poll::Ready(Ok((length > 0).then(|| room.freeze())))
            }
        }
    }

    /// Sends what waits, and with `end` says that nothing more will be sent. The other direction goes on.
    pub(crate) async fn flush(&self, end: bool) {
        match self {
            Self::Tunnel(stream) if end => stream.finish(),
            Self::Tunnel(_) => {}
            Self::Other { write, .. } => {
                let done = std::future::poll_fn(|context| {
                    let mut write = write.lock();
                    let Some(write) = write.as_mut() else { return Poll::Ready(Ok(())) };
                    let write = Pin::new(write);
                    if end { write.poll_shutdown(context) } else { write.poll_flush(context) }
                });
                // The reading side learns of a failure, and tells the client.
                let _ = done.await;
            }
        }
    }

    /// As one stream, for those who both read and write.
    pub(crate) fn into_stream(self) -> BoxedStream {
        match self {
            Self::Tunnel(stream) => Box::new(stream),
            Self::Other { read, write } => {
                let read = read.into_inner();
                let write = write.into_inner();
                match (read, write) {
                    (Some(read), Some(write)) => read.unsplit(write),
                    // It was cut.
                    _ => Box::new(tokio::io::join(tokio::io::empty(), tokio::io::sink())),
                }
            }
        }
    }
}
