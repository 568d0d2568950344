//! A user's program at the other end of TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sallyport_wire::tunnel;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::server::TlsStream;

/// How long the last bytes may take to be on their way.
const GRACE: Duration = Duration::from_secs(3);

/// The program. Shutting it down says the end of one direction inside TLS (RFC 8446 §6.1), while the stream below stays open for the
/// other: to the proxy, a stream that has ended is over.
pub(super) struct Client {
    tls: TlsStream<tunnel::Stream>,
    closed: bool,
}

impl Client {
    pub(super) fn new(tls: TlsStream<tunnel::Stream>) -> Self {
        Self { tls, closed: false }
    }

    /// Ends the session in order.
    pub(super) async fn finish(&mut self) {
        let _ = tokio::time::timeout(GRACE, self.tls.shutdown()).await;
    }

    /// Ends the session before its time, for a reason that the proxy reads.
    pub(super) fn reset(&self, reason: &str) {
        self.tls.get_ref().0.reset(reason);
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(context, buffer)
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.closed, true) {
            self.tls.get_mut().1.send_close_notify();
        }
        ready!(Pin::new(&mut self.tls).poll_flush(context))?;
        Poll::Ready(Ok(()))
    }
}
