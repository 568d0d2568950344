//! Connections whose bytes are seen by the recorder.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::recorder::{Recorder, recorder_here};
use super::round_trips::RoundTrips;

/// A connection whose round trips are counted, where this process traces.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    recorder: Option<&'static Recorder>,
}

impl<S> Counted<S> {
    /// A connection whose bytes the recorder sees.
    pub fn new(stream: S) -> Self {
        Self { stream, recorder: recorder_here() }
    }

    fn sent<T>(&self, written: &Poll<io::Result<T>>) {
        if let (Some(recorder), Poll::Ready(Ok(_))) = (self.recorder, written) {
            recorder.with_round_trips(RoundTrips::sent);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(recorder) = self.recorder
            && buffer.filled().len() > before
        {
            recorder.with_round_trips(RoundTrips::came);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, data);
        self.sent(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
