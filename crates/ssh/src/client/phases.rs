//! The phases of a connection as spans, for whoever wants to know where the time went.
//!
//! They have a target of their own, so that one filter takes them all. When nobody does, a span is one look at a flag.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::{Span, info_span};

/// The target of spans that are phases of a connection, here and in whatever makes the stream below.
pub const PHASE: &str = "sallyport::phase";

/// Identification and key exchange: the first ends, and the second begins, with the first bytes of the host.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    current: Arc<Mutex<Span>>,
    parent: Span,
}

impl Exchange {
    pub(super) fn begin() -> Self {
        let current = Arc::new(Mutex::new(info_span!(target: PHASE, "ssh.version")));
        Self { current, parent: Span::current() }
    }

    /// The keys are exchanged.
    pub(super) fn end(&self) {
        self.become_span(Span::none());
    }

    /// A stream whose first bytes are noticed.
    pub(super) fn watch<S>(&self, stream: S) -> Watched<S> {
        Watched { stream, greeting: Some(self.clone()) }
    }

    fn greeted(&self) {
        self.become_span(info_span!(target: PHASE, parent: &self.parent, "ssh.key_exchange"));
    }

    fn become_span(&self, next: Span) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

/// A stream that tells when the first bytes come.
pub(super) struct Watched<S> {
    stream: S,
    /// Until then.
    greeting: Option<Exchange>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.greeting.is_some()
            && buffer.filled().len() > before
            && let Some(exchange) = self.greeting.take()
        {
            exchange.greeted();
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
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tracing::span;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// Names of spans as they begin (`+`) and end (`-`).
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> Layer<S> for Seen {
        fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
            self.0.lock().unwrap().push(format!("+{}", attributes.metadata().name()));
        }

        fn on_close(&self, id: span::Id, context: Context<'_, S>) {
            self.0.lock().unwrap().push(format!("-{}", context.span(&id).unwrap().name()));
        }
    }

    #[tokio::test]
    async fn the_first_bytes_part_the_greeting_from_the_exchange() {
        let seen = Seen::default();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
        let (here, mut there) = tokio::io::duplex(64);
        let exchange = Exchange::begin();
        let mut stream = exchange.watch(here);
        assert_eq!(*seen.0.lock().unwrap(), ["+ssh.version"]);
        there.write_all(b"SS").await.unwrap();
        stream.read_exact(&mut [0; 2]).await.unwrap();
        there.write_all(b"H-").await.unwrap();
        stream.read_exact(&mut [0; 2]).await.unwrap();
        assert_eq!(*seen.0.lock().unwrap(), ["+ssh.version", "+ssh.key_exchange", "-ssh.version"]);
        exchange.end();
        assert_eq!(seen.0.lock().unwrap().last().unwrap(), "-ssh.key_exchange");
    }
}
