//! The phases of a connection as spans, which say where the time went.
//!
//! They have a target of their own, so that one filter takes them all. Where none is set, a span is one look at a flag.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;
use tracing::{Span, info_span};

pub use sallyport_audit::PHASE;

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
    pub(super) fn watch<S: AsyncRead>(&self, stream: S) -> InspectReader<S, impl FnMut(&[u8]) + use<S>> {
        let mut greeting = Some(self.clone());
        InspectReader::new(stream, move |came| {
            if !came.is_empty()
                && let Some(exchange) = greeting.take()
            {
                exchange.greeted();
            }
        })
    }

    fn greeted(&self) {
        self.become_span(info_span!(target: PHASE, parent: &self.parent, "ssh.key_exchange"));
    }

    fn become_span(&self, next: Span) {
        *self.current.lock() = next;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tracing::span;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// Names of spans as they begin (`+`) and end (`-`).
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> Layer<S> for Seen {
        fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
            self.0.lock().push(format!("+{}", attributes.metadata().name()));
        }

        fn on_close(&self, id: span::Id, context: Context<'_, S>) {
            self.0.lock().push(format!("-{}", context.span(&id).unwrap().name()));
        }
    }

    #[tokio::test]
    async fn the_first_bytes_part_the_greeting_from_the_exchange() {
        let seen = Seen::default();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
        let (here, mut there) = tokio::io::duplex(64);
        let exchange = Exchange::begin();
        let mut stream = exchange.watch(here);
        assert_eq!(*seen.0.lock(), ["+ssh.version"]);
        there.write_all(b"SS").await.unwrap();
        stream.read_exact(&mut [0; 2]).await.unwrap();
        there.write_all(b"H-").await.unwrap();
        stream.read_exact(&mut [0; 2]).await.unwrap();
        assert_eq!(*seen.0.lock(), ["+ssh.version", "+ssh.key_exchange", "-ssh.version"]);
        exchange.end();
        assert_eq!(seen.0.lock().last().unwrap(), "-ssh.key_exchange");
    }
}
