//! Whether a connection still lives, as seen by what comes from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;

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

/// Marks a connection as over with what reads from it.
struct Ending(Liveness);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.shared.ended.store(true, Ordering::Relaxed);
    }
}

/// A connection, and whether it still lives.
pub fn watched<S: AsyncRead>(
    stream: S,
) -> (InspectReader<S, impl FnMut(&[u8]) + Send + Unpin + 'static>, Liveness) {
    let liveness = Liveness { began: Instant::now(), shared: Arc::default() };
    let seen = Ending(liveness.clone());
    let stream = InspectReader::new(stream, move |bytes: &[u8]| match bytes {
        [] => seen.0.shared.ended.store(true, Ordering::Relaxed),
        _ => seen.0.note(),
    });
    (stream, liveness)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_are_a_sign_of_life_and_the_end_is_the_end() {
        let (here, mut there) = tokio::io::duplex(64);
        let (mut watched, liveness) = watched(here);
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
