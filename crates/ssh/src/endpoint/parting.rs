//! The end of a stream, whichever side lets go of it and when.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy, sink};

use super::EndpointStream;
use crate::Stream;

/// How long the other end has to take its leave.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A stream that takes its leave when it is dropped: what TLS has to say still goes out, tickets among it, both ends are
/// told of the end, and the other one's is waited for. A stream below that breaks off would look like a lost connection.
#[derive(Debug)]
pub struct Parting<IO: Stream + 'static>(Option<EndpointStream<IO>>);

impl<IO: Stream + 'static> Parting<IO> {
    /// Takes care of a stream's end. To be dropped inside a runtime; elsewhere it ends without a word.
    #[must_use]
    pub fn new(stream: EndpointStream<IO>) -> Self {
        Self(Some(stream))
    }

    fn with<T>(
        &mut self,
        f: impl FnOnce(Pin<&mut EndpointStream<IO>>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.0 {
            Some(stream) => f(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl<IO: Stream + 'static> Drop for Parting<IO> {
    fn drop(&mut self) {
        let (Some(mut stream), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            let leave = async {
                stream.shutdown().await?;
                copy(&mut stream, &mut sink()).await
            };
            let _ = tokio::time::timeout(LAST_WORDS, leave).await;
        });
    }
}

impl<IO: Stream + 'static> AsyncRead for Parting<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(context, buffer))
    }
}

impl<IO: Stream + 'static> AsyncWrite for Parting<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(context, data))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(context))
    }
}
