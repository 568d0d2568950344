//! The connection's stream, with a switch that ends it from outside, and a gate before what is read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lets a connection be read, or not for a while. What it writes goes on all the time.
#[derive(Default)]
pub(crate) struct Gate(Mutex<Option<Pause>>);

impl Gate {
    /// Nothing is read until `pause` is over.
    pub(crate) fn hold(&self, pause: impl Future<Output = ()> + Send + 'static) {
        *self.pause() = Some(Box::pin(pause));
    }

    fn pause(&self) -> MutexGuard<'_, Option<Pause>> {
        self.0.lock()
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pause = self.pause();
        if let Some(waiting) = pause.as_mut() {
            ready!(waiting.as_mut().poll(cx));
            *pause = None;
        }
        Poll::Ready(())
    }
}

/// The connection's stream, with a switch that ends it from outside, and a gate before what is read.
pub(crate) struct Line<S> {
    stream: S,
    gate: Arc<Gate>,
    token: CancellationToken,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Line<S> {
    pub(crate) fn new(stream: S, token: CancellationToken, gate: Arc<Gate>) -> Self {
        let cancelled = Box::pin(token.clone().cancelled_owned());
        Self { stream, gate, token, cancelled }
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
        ready!(self.gate.poll(cx));
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.token.is_cancelled() || self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Self::off()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
