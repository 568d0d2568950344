//! The one stream of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use quinn::crypto::rustls::HandshakeData;
use quinn::rustls::pki_types::CertificateDer;
use quinn::{Connection, RecvStream, SendStream, VarInt, WriteError, ZeroRttAccepted};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::early::{Answer, Early, Side};

/// How long what was written last may take to arrive once the stream is dropped.
const LINGER: Duration = Duration::from_secs(5);
/// How long it may take to put the last packet on the line, which on a busy machine is long, and how often that is looked at.
const LAST_WORD: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_micros(200);
const ENDED: VarInt = VarInt::from_u32(0);

/// Bytes both ways. Dropped, it says what was written and ends the connection.
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
    /// Always there until the drop.
    send: Option<SendStream>,
    receive: RecvStream,
    /// Until the server has answered, where something is said before.
    early: Option<Early>,
}

/// What the handshake told of the peer.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The protocol that both have chosen (RFC 7301).
    pub protocol: Vec<u8>,
    /// What the peer has proved that it is, the leaf first.
    pub certificates: Vec<CertificateDer<'static>>,
}

impl Stream {
    pub(super) fn new(connection: Connection, send: SendStream, receive: RecvStream) -> Self {
        Self { connection, send: Some(send), receive, early: None }
    }

    /// A client's stream before the server has answered.
    pub(super) fn early(
        connection: Connection,
        send: SendStream,
        receive: RecvStream,
        accepted: ZeroRttAccepted,
    ) -> (Self, Answer) {
        let (early, answer) = Early::new(connection.clone(), accepted);
        (Self { connection, send: Some(send), receive, early: Some(early) }, answer)
    }

    /// What the handshake told.
    #[must_use]
    pub fn told(&self) -> Told {
        let data = self.connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
        let shown = self.connection.peer_identity();
        let shown = shown.and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
        Told {
            protocol: data.and_then(|data| data.protocol).unwrap_or_default(),
            certificates: shown.map(|shown| *shown).unwrap_or_default(),
        }
    }

    /// To end the connection by when the process ends.
    #[must_use]
    pub fn farewell(&self) -> Farewell {
        Farewell(self.connection.clone())
    }

    fn sending(&mut self) -> io::Result<Pin<&mut SendStream>> {
        self.send.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Waits for the server's answer, and puts another stream in the place of one that it has not taken.
    fn poll_answered(&mut self, side: Side, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(early) = &mut self.early else { return Poll::Ready(Ok(())) };
        let anew = ready!(early.poll(side, &self.connection, context));
        self.early = None;
        if let Some((send, receive)) = anew? {
            self.send = Some(send);
            self.receive = receive;
        }
        Poll::Ready(Ok(()))
    }

    /// Says something before the server has answered.
    fn poll_say_early(&mut self, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let room = self.early.as_ref().map_or(0, Early::room);
        let Some(now) = data.get(..data.len().min(room)).filter(|now| !now.is_empty()) else {
            return Poll::Pending;
        };
        match ready!(self.sending()?.poll_write(context, now)) {
            Ok(count) => {
                if let Some(early) = &mut self.early {
                    early.said(now.get(..count).unwrap_or_default());
                }
                Poll::Ready(Ok(count))
            }
            // The answer has come this moment.
            Err(WriteError::ZeroRttRejected) => {
                ready!(self.poll_answered(Side::Writer, context))?;
                AsyncWrite::poll_write(self.sending()?, context, data)
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (connection, send) = (self.connection.clone(), self.send.take());
        let Some(mut send) = send else { return };
        let unsaid = send.finish().is_ok() && connection.close_reason().is_none();
        match tokio::runtime::Handle::try_current() {
            // The system would send what is left of a TCP connection; here it is us.
            Ok(runtime) if unsaid => {
                runtime.spawn(async move {
                    let _ = tokio::time::timeout(LINGER, send.stopped()).await;
                    connection.close(ENDED, b"");
                });
            }
            _ => connection.close(ENDED, b""),
        }
    }
}

/// Ends a connection when its process does, which the system does for TCP and not for UDP.
#[derive(Debug, Clone)]
pub struct Farewell(Connection);

impl Farewell {
    /// Whether the connection is over already.
    #[must_use]
    pub fn is_said(&self) -> bool {
        self.0.close_reason().is_some()
    }

    /// Ends the connection and waits, shortly, until the peer has been told.
    pub async fn say(&self) {
        if self.is_said() {
            // The peer has said it, or the stream's own end has, this moment: it is not said twice.
            tokio::time::sleep(LOOK).await;
            return;
        }
        // Frames that end connections are not among those that are counted; what is sent after this is one.
        let sent = || self.0.stats().udp_tx.datagrams;
        let before = sent();
        self.0.close(ENDED, b"");
        let began = Instant::now();
        while sent() == before && began.elapsed() < LAST_WORD {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_answered(Side::Reader, context))?;
        Pin::new(&mut self.receive).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_answered(Side::Writer, context)? {
            Poll::Ready(()) => AsyncWrite::poll_write(self.sending()?, context, data),
            Poll::Pending => self.poll_say_early(context, data),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self.sending()?, context)
    }

    /// Not before the server has answered: the end may have to be said again, behind the rest.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answered(Side::Writer, context))?;
        AsyncWrite::poll_shutdown(self.sending()?, context)
    }

    /// A caller that frames writes a head and a body: both go into one packet.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.as_mut().poll_write(context, slice) {
                Poll::Ready(Ok(count)) => {
                    written += count;
                    if count < slice.len() {
                        break;
                    }
                }
                Poll::Ready(Err(error)) if written == 0 => return Poll::Ready(Err(error)),
                Poll::Pending if written == 0 => return Poll::Pending,
                // The next write meets it again.
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
