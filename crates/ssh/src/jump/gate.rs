//! A stream that can be cut from outside.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::Stream;

/// Fails every read and write once its token is cancelled. The SSH library ends a connection only when its stream
/// does, and a peer that reads nothing would otherwise keep it for ever.
pub(super) struct Gate<S> {
    stream: S,
    cut: CancellationToken,
    read_cut: Pin<Box<WaitForCancellationFutureOwned>>,
    write_cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: Stream> Gate<S> {
    pub(super) fn new(stream: S, cut: CancellationToken) -> Self {
        Self {
            stream,
            read_cut: Box::pin(cut.clone().cancelled_owned()),
            write_cut: Box::pin(cut.clone().cancelled_owned()),
            cut,
        }
    }
}

fn aborted() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionAborted)
}

impl<S: Stream> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(aborted()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: Stream> AsyncWrite for Gate<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.write_cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(aborted()));
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.write_cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(aborted()));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
