//! Whether a connection still lives, as seen by what comes from it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Signs of life of one connection, for tasks that do not hold it.
#[derive(Debug, Clone)]
pub struct Liveness {
    began: Instant,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Milliseconds from the beginning to the last bytes that came.
    heard: AtomicU64,
    ended: AtomicBool,
}

impl Liveness {
    /// How long nothing has come.
    pub fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.shared.heard.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(heard)
    }

    /// Whether the connection is over.
    pub fn ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.shared.heard.store(now, Ordering::Relaxed);
    }
}

/// A connection whose liveness is seen.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    liveness: Liveness,
}

impl<S> Watched<S> {
    /// A connection, and what is seen of it.
    pub fn new(stream: S) -> (Self, Liveness) {
        let liveness = Liveness { began: Instant::now(), shared: Arc::default() };
        (Self { stream, liveness: liveness.clone() }, liveness)
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.liveness.shared.ended.store(true, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            if buffer.filled().len() > before {
                self.liveness.note();
            } else {
                self.liveness.shared.ended.store(true, Ordering::Relaxed);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_are_a_sign_of_life_and_the_end_is_the_end() {
        let (here, mut there) = tokio::io::duplex(64);
        let (mut watched, liveness) = Watched::new(here);
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(liveness.silence() >= Duration::from_millis(20) && !liveness.ended());
        let before = Instant::now();
        there.write_all(b"x").await.unwrap();
        watched.read_exact(&mut [0]).await.unwrap();
        // A silence counts in whole milliseconds.
        assert!(liveness.silence() <= before.elapsed() + Duration::from_millis(1) && !liveness.ended());
        drop(there);
        assert_eq!(watched.read(&mut [0]).await.unwrap(), 0);
        assert!(liveness.ended());
    }
}
