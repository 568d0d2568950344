//! A subsystem as one stream of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::PollSender;
use tracing::debug;

use super::halves::{BLOCK_BYTES, Halves, Outgoing, Typed};
use crate::client::request::{Exit, Output, REFUSAL_BYTES};

/// Standard input and output of a program that runs. What it says on standard error has no place here, and is logged.
pub(in crate::client) struct SubsystemStream {
    typed: PollSender<Typed>,
    output: Outgoing,
    /// What has come and was not read yet.
    rest: Bytes,
}

/// Why there is no stream.
pub(in crate::client) enum NoStream {
    /// The host runs no such program, and says this.
    Refused(String),
    /// The connection is gone.
    Lost,
}

impl SubsystemStream {
    /// Waits until the program runs, of which the host tells in the flight that opens the channel.
    pub(in crate::client) async fn begin(halves: Halves) -> Result<Self, NoStream> {
        let Halves { input, mut output } = halves;
        let mut words = Vec::new();
        let rest = loop {
            match output.next().await.ok_or(NoStream::Lost)? {
                Output::Started => break Bytes::new(),
                Output::Stdout(bytes) => break bytes,
                Output::Stderr(bytes) if words.len() < REFUSAL_BYTES => words.extend_from_slice(&bytes),
                Output::Exit(Exit::Lost { .. }) => return Err(NoStream::Lost),
                Output::Exit(_) => {
                    return Err(NoStream::Refused(String::from_utf8_lossy(&words).trim().to_owned()));
                }
                _ => {}
            }
        };
        Ok(Self { typed: PollSender::new(input.into_typed()), output, rest })
    }

    /// A place for one more piece of input.
    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.typed.poll_reserve(cx).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn send(&mut self, typed: Typed) -> io::Result<()> {
        self.typed.send_item(typed).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncRead for SubsystemStream {
    /// The end is the end, whichever it is: the protocol inside says whether it may be there.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.output.poll_next(cx)) {
                Some(Output::Stdout(bytes)) => self.rest = bytes,
                Some(Output::Stderr(bytes)) => {
                    debug!(words = %String::from_utf8_lossy(&bytes), "beside the stream")
                }
                Some(Output::Exit(_)) | None => return Poll::Ready(Ok(())),
                Some(_) => {}
            }
        }
        let count = self.rest.len().min(buffer.remaining());
        buffer.put_slice(self.rest.get(..count).unwrap_or_default());
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SubsystemStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_place(cx))?;
        let piece = data.get(..data.len().min(BLOCK_BYTES)).unwrap_or_default();
        self.send(Typed::Data(Bytes::copy_from_slice(piece)))?;
        Poll::Ready(Ok(piece.len()))
    }

    /// The connection's task sends queued data without being asked.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.typed.is_closed() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_place(cx))?;
        self.send(Typed::Eof)?;
        self.typed.close();
        Poll::Ready(Ok(()))
    }
}
