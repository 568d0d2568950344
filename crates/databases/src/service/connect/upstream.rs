//! A connection to a database.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use sallyport_access::DatabaseTlsMode;
use sallyport_ca::tls::database::server_end_point;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::postgres::scram::Channel;
use crate::service::read_ahead::ReadAhead;

/// All that a server may say before it is ready.
pub(super) const LONGEST_GREETING: usize = 128 * 1024;

/// A connection to a database.
pub(crate) enum Upstream {
    Plain(TcpStream),
    Tls(Box<TlsStream<ReadAhead<TcpStream>>>),
}

impl Upstream {
    /// What a login can be bound to, at a server of which TLS has verified what the mode says.
    pub(super) fn channel(&self, mode: DatabaseTlsMode) -> Channel {
        let Self::Tls(stream) = self else { return Channel::Plain };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let end_point = certificate.and_then(|certificate| server_end_point(certificate));
        Channel::Tls { end_point, named: mode == DatabaseTlsMode::VerifyFull }
    }
}

impl AsyncRead for Upstream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
