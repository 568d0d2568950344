//! A stream in memory that counts bytes, and knows on how many answers each of them rests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::PollSender;

/// Writes that wait to be read, at most: past so many the writer waits. A handshake has fewer than that.
const WRITES_MOST: usize = 64;

/// What one end has done so far.
#[derive(Debug, Default)]
pub(super) struct Count {
    sent: AtomicUsize,
    /// The longest chain of messages that led to what this end has read: what it sends is one more. A clock of Lamport's.
    depth: AtomicUsize,
}

impl Count {
    /// Bytes that it sent.
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// How often it waited: there and back is one round trip.
    pub(super) fn round_trips(&self) -> usize {
        self.depth.load(Ordering::Relaxed).div_ceil(2)
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Pipe {
    outgoing: PollSender<(usize, Vec<u8>)>,
    incoming: Receiver<(usize, Vec<u8>)>,
    rest: Vec<u8>,
    count: Arc<Count>,
}

/// Two ends of one stream.
pub(super) fn pipe() -> (Pipe, Pipe) {
    let ((near, to_near), (far, to_far)) = (channel(WRITES_MOST), channel(WRITES_MOST));
    let end = |outgoing, incoming| Pipe {
        outgoing: PollSender::new(outgoing),
        incoming,
        rest: Vec::new(),
        count: Arc::default(),
    };
    (end(far, to_near), end(near, to_far))
}

impl Pipe {
    /// What it counts.
    pub(super) fn count(&self) -> Arc<Count> {
        Arc::clone(&self.count)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            let Some((depth, bytes)) = ready!(self.incoming.poll_recv(context)) else {
                return Poll::Ready(Ok(()));
            };
            self.count.depth.fetch_max(depth, Ordering::Relaxed);
            self.rest = bytes;
        }
        let fitting = self.rest.len().min(buffer.remaining());
        let later = self.rest.split_off(fitting);
        buffer.put_slice(&self.rest);
        self.rest = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.outgoing.poll_reserve(context)).map_err(|_| gone())?;
        let depth = self.count.depth.load(Ordering::Relaxed) + 1;
        self.outgoing.send_item((depth, data.to_vec())).map_err(|_| gone())?;
        self.count.sent.fetch_add(data.len(), Ordering::Relaxed);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn it_counts_who_waited_for_whom() {
        let (mut near, mut far) = pipe();
        let mut two = [0; 2];
        // Both speak at once, as in SSH: neither waited.
        near.write_all(b"ab").await.unwrap();
        far.write_all(b"cd").await.unwrap();
        near.read_exact(&mut two).await.unwrap();
        assert_eq!((&two, near.count().round_trips()), (b"cd", 1), "half of one");
        far.read_exact(&mut two).await.unwrap();
        // An answer to what was read is one deeper.
        far.write_all(b"ef").await.unwrap();
        near.read_exact(&mut two[..1]).await.unwrap();
        assert_eq!(near.count().round_trips(), 1);
        near.write_all(b"g").await.unwrap();
        far.read_exact(&mut two[..1]).await.unwrap();
        far.write_all(b"h").await.unwrap();
        near.read_exact(&mut two).await.unwrap();
        assert_eq!((&two, near.count().round_trips(), near.count().sent()), (b"fh", 2, 3));
        drop(far);
        assert_eq!(near.read(&mut two).await.unwrap(), 0);
        assert!(near.write_all(b"x").await.is_err());
    }
    #[tokio::test]
    async fn a_writer_waits_while_the_other_end_does_not_read() {
        let (mut near, mut far) = pipe();
        let count = near.count();
        for _ in 0..WRITES_MOST {
            near.write_all(b"x").await.unwrap();
        }
        {
            let mut waiting = std::pin::pin!(near.write_all(b"y"));
            assert!(futures::poll!(waiting.as_mut()).is_pending(), "it is full");
            assert_eq!(count.sent(), WRITES_MOST, "what waits is not sent");
            far.read_exact(&mut [0]).await.unwrap();
            waiting.await.unwrap();
        }
        let mut waiting = std::pin::pin!(near.write_all(b"z"));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(far);
        assert_eq!(waiting.await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
