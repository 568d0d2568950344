//! A stream that first gives back bytes which were read ahead.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// `inner` with `ahead` in front of what it will still give.
#[derive(Debug)]
pub(crate) struct Rewind<T> {
    ahead: Bytes,
    inner: T,
    /// Reads after which something is done still, and what.
    after: (u8, fn(&T)),
}

impl<T> Rewind<T> {
    pub(crate) fn new(ahead: Bytes, inner: T) -> Self {
        Self { ahead, inner, after: (0, |_| ()) }
    }
}

impl Rewind<TcpStream> {
    /// The same, with so many reads whose bytes are acknowledged at once.
    pub(crate) fn prompt(self, reads: u8) -> Self {
        // The system forgets it with every answer. Without it everything works, only later.
        let acknowledge = |_tcp: &TcpStream| {
            #[cfg(target_os = "linux")]
            let _ = _tcp.set_quickack(true);
        };
        Self { after: (reads, acknowledge), ..self }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewind<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            let read = Pin::new(&mut self.inner).poll_read(context, buffer);
            if read.is_ready() && self.after.0 > 0 {
                self.after.0 -= 1;
                (self.after.1)(&self.inner);
            }
            return read;
        }
        let take = self.ahead.len().min(buffer.remaining());
        let (Some(part), true) = (self.ahead.get(..take), take > 0) else { return Poll::Ready(Ok(())) };
        buffer.put_slice(part);
        self.ahead.advance(take);
        if self.ahead.is_empty() {
            // An empty view would keep the buffer for as long as the connection lasts.
            self.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewind<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_read_ahead_come_first() {
        let (mut far, near) = tokio::io::duplex(64);
        far.write_all(b" world").await.unwrap();
        far.shutdown().await.unwrap();
        let mut rewind = Rewind::new(Bytes::from_static(b"hello"), near);
        let mut small = [0u8; 2];
        rewind.read_exact(&mut small).await.unwrap();
        let mut rest = String::new();
        rewind.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&small[..], rest.as_str()), (&b"he"[..], "llo world"));
    }
}
