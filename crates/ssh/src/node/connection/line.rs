//! The connection's stream, with a switch that ends it from outside.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The connection's stream, with a switch that ends it from outside.
pub(super) struct Line<S> {
    stream: S,
    token: CancellationToken,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Line<S> {
    pub(super) fn new(stream: S, token: CancellationToken) -> Self {
        let cancelled = Box::pin(token.clone().cancelled_owned());
        Self { stream, token, cancelled }
    }

    fn off() -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was cut")
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Self::off()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // Both halves are polled by one task, so the waker that the future keeps is always the right one.
        if self.token.is_cancelled() || self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Self::off()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
