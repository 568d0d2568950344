//! A stream that is read along with.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Reader, SshOffer};

/// What was read in passing, once it is known.
#[derive(Debug, Clone, Default)]
pub struct Offered(Arc<OnceLock<SshOffer>>);

impl Offered {
    /// What the peer can do; `None` until it has said so, and for ever when it does not.
    #[must_use]
    pub fn offer(&self) -> Option<&SshOffer> {
        self.0.get()
    }

    /// Known from elsewhere. The first to be known stays.
    pub(crate) fn set(&self, offer: SshOffer) {
        let _ = self.0.set(offer);
    }
}

/// `stream`, unchanged, with an eye on the beginning of what is read from it. Afterwards a read costs one comparison.
#[derive(Debug)]
pub struct GreetingObserver<S> {
    stream: S,
    reader: Option<Reader>,
    offered: Offered,
}

impl<S> GreetingObserver<S> {
    /// Reads along with what comes out of `stream`.
    pub fn new(stream: S) -> (Self, Offered) {
        let offered = Offered::default();
        (Self::along(stream, &offered), offered)
    }

    /// The same, for a place that waits for it already.
    pub(crate) fn along(stream: S, offered: &Offered) -> Self {
        Self { stream, reader: Some(Reader::default()), offered: offered.clone() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GreetingObserver<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if let Some(reader) = &mut self.reader
            && let Some(fresh) = buffer.filled().get(before..)
            && let Some(answer) = reader.read(fresh)
        {
            self.reader = None;
            match answer {
                Ok(offer) => self.offered.set(offer),
                Err(reason) => tracing::debug!(%reason, "the peer's algorithms are not known"),
            }
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GreetingObserver<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
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
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn every_byte_comes_through_whatever_it_is() {
        let mut hello = b"SSH-2.0-probe_1\r\n".to_vec();
        let mut payload = vec![20];
        payload.extend_from_slice(&[0; 16]);
        for names in ["mlkem768x25519-sha256", "ssh-ed25519", "", "", "", "", "", "", "", ""] {
            payload.extend_from_slice(&u32::try_from(names.len()).unwrap().to_be_bytes());
            payload.extend_from_slice(names.as_bytes());
        }
        payload.extend_from_slice(&[0; 5]);
        hello.extend_from_slice(&u32::try_from(payload.len() + 5).unwrap().to_be_bytes());
        hello.push(4);
        hello.extend_from_slice(&payload);
        hello.extend_from_slice(&[0; 4]);
        let later: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        for (bytes, known) in [([hello, later.clone()].concat(), true), (later, false)] {
            let (mut far, near) = tokio::io::duplex(1000);
            let sent = bytes.clone();
            let writer = tokio::spawn(async move {
                far.write_all(&sent).await.unwrap();
                far
            });
            let (mut tap, offered) = GreetingObserver::new(near);
            let mut got = vec![0; bytes.len()];
            tap.read_exact(&mut got).await.unwrap();
            assert!(got == bytes, "bytes differ");
            assert_eq!(offered.offer().map(|offer| offer.kex.len()), known.then_some(1));
            assert!(tap.reader.is_none(), "it still looks");
            tap.write_all(b"answer").await.unwrap();
            let mut answer = [0; 6];
            writer.await.unwrap().read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
        }
    }
}
