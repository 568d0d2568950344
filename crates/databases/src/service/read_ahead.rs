//! Reads a connection in larger pieces than its reader asks for: the TLS library takes 4 KiB at a time, and a call of the
//! system for each is most of what a copy costs.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

/// What is read at once while much comes.
const AHEAD_BYTES: usize = 64 * 1024;

/// A connection. While little comes it has no buffer.
pub(super) struct ReadAhead<T> {
    inner: T,
    ahead: BytesMut,
    /// More came than was asked for, the last time.
    eager: bool,
}

impl<T> ReadAhead<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, ahead: BytesMut::new(), eager: false }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadAhead<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            if !this.eager {
                let wanted = buffer.remaining();
                ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
                this.eager = wanted > 0 && buffer.remaining() == 0;
                return Poll::Ready(Ok(()));
            }
            this.ahead.reserve(AHEAD_BYTES);
            match poll_read_buf(Pin::new(&mut this.inner), cx, &mut this.ahead) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.ahead = BytesMut::new();
                    this.eager = false;
                    return Poll::Pending;
                }
            }
        }
        let taken = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(this.ahead.get(..taken).unwrap_or_default());
        this.ahead.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadAhead<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn bytes_come_as_they_were_and_nothing_is_kept() {
        let (mut from, to) = duplex(100_000);
        let mut ahead = ReadAhead::new(to);
        let sent: Vec<u8> = (0..200_000_u32).map(|number| number.to_be_bytes()[3] ^ 7).collect();
        let writer = tokio::spawn({
            let sent = sent.clone();
            async move {
                from.write_all(&sent).await.unwrap();
                from
            }
        });
        let mut got = Vec::new();
        let mut piece = [0; 4096];
        while got.len() < sent.len() {
            let read = ahead.read(&mut piece).await.unwrap();
            got.extend_from_slice(&piece[..read]);
        }
        assert!(got == sent);
        let from = writer.await.unwrap();
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), ahead.read(&mut piece)).await;
        assert!(waits.is_err());
        assert_eq!((ahead.ahead.capacity(), ahead.eager), (0, false));
        drop(from);
        assert_eq!(ahead.read(&mut piece).await.unwrap(), 0);
    }
}
