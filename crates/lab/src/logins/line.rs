//! Connections to the authority.

use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint};

/// For how long a program makes its calls on one connection. The authority ends those of programs without a certificate after three
/// minutes, and with them what is on its way.
const AGE: Duration = Duration::from_secs(100);

/// A channel of gRPC over a connection that `dial` makes, at the first call.
pub(super) fn channel_by<D, F, S>(dial: D) -> Channel
where
    D: Fn() -> F + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let connect = tower::service_fn(move |_| {
        let dialled = dial();
        async move { dialled.await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://lab.invalid").connect_with_connector_lazy(connect)
}

/// A program's way to the authority: a connection that is replaced before the authority ends it. Calls that are on their way then end on
/// the old one.
pub(super) struct Line {
    dial: Box<dyn Fn() -> Channel + Send + Sync>,
    kept: Mutex<(Channel, Instant)>,
}

impl Line {
    pub(super) fn by(dial: impl Fn() -> Channel + Send + Sync + 'static) -> Self {
        let kept = Mutex::new((dial(), Instant::now()));
        Self { dial: Box::new(dial), kept }
    }

    pub(super) fn channel(&self) -> Channel {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Channel {
        let mut kept = self.kept.lock();
        if now.saturating_duration_since(kept.1) > AGE {
            *kept = ((self.dial)(), now);
        }
        kept.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_connection_of_a_certain_age_is_replaced_once() {
        let dialled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&dialled);
        let line = Line::by(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            channel_by(|| async { Ok(tokio::io::empty()) })
        });
        let began = line.kept.lock().1;
        for (seconds, dials) in [(0, 1), (100, 1), (101, 2), (102, 2), (201, 2), (202, 3)] {
            line.at(began + Duration::from_secs(seconds));
            assert_eq!(dialled.load(Ordering::Relaxed), dials, "after {seconds} s");
        }
    }
}
