//! The beginning of a connection as spans: one phase after the other, up to the first byte of the first session.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::{Span, info_span};

use crate::client::PHASE;

/// What the node waits for, in this order: of SSH, and then of the native protocol, which begins with `Hello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Version,
    KeyExchange,
    Authentication,
    Channel,
    Program,
    /// The first words behind the handshake, and who may come in by them.
    Hello,
    NativeProgram,
}

struct Lasting {
    whole: Span,
    phase: Phase,
    _current: Span,
}

/// The phases of one connection. Costs one look at a flag where no subscriber traces it, and once it is
/// over.
pub(super) struct Opening {
    lasts: AtomicBool,
    state: Mutex<Option<Lasting>>,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("lasts", &self.lasts).finish_non_exhaustive()
    }
}

impl Opening {
    pub(super) fn begin(whole: Span, phase: Phase) -> Self {
        let lasting = (!whole.is_disabled()).then(|| {
            let _current = span(phase, &whole);
            Lasting { whole, phase, _current }
        });
        Self { lasts: AtomicBool::new(lasting.is_some()), state: Mutex::new(lasting) }
    }

    /// The next phase begins, and the one before it ends. One that has been cannot come back.
    pub(super) fn reached(&self, phase: Phase) {
        if !self.lasts.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        if let Some(lasting) = state.as_mut().filter(|lasting| lasting.phase < phase) {
            let _current = span(phase, &lasting.whole);
            (lasting.phase, lasting._current) = (phase, _current);
        }
    }

    /// The first byte goes out.
    pub(super) fn over(&self) {
        self.end(None);
    }

    /// The connection comes to nothing.
    pub(super) fn failed(&self, why: &'static str) {
        self.end(Some(why));
    }

    fn end(&self, error: Option<&'static str>) {
        if !self.lasts.swap(false, Ordering::Relaxed) {
            return;
        }
        let lasting = self.state.lock().take();
        if let (Some(lasting), Some(why)) = (lasting, error) {
            lasting.whole.record("error.type", why);
        }
    }
}

fn span(phase: Phase, whole: &Span) -> Span {
    match phase {
        Phase::Version => info_span!(target: PHASE, parent: whole, "ssh.version"),
        Phase::KeyExchange => info_span!(target: PHASE, parent: whole, "ssh.key_exchange"),
        Phase::Authentication => info_span!(target: PHASE, parent: whole, "ssh.authentication"),
        Phase::Channel => info_span!(target: PHASE, parent: whole, "ssh.channel"),
        Phase::Program => info_span!(target: PHASE, parent: whole, "ssh.program"),
        Phase::Hello => info_span!(target: PHASE, parent: whole, "native.hello"),
        Phase::NativeProgram => info_span!(target: PHASE, parent: whole, "native.program"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> Layer<S> for Seen {
        fn on_close(&self, id: tracing::span::Id, context: Context<'_, S>) {
            self.0.lock().push(context.span(&id).unwrap().name().to_owned());
        }
    }

    #[test]
    fn phases_follow_each_other_once_and_end_with_the_first_byte() {
        let seen = Seen::default();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
        let opening =
            Opening::begin(info_span!("whole", "error.type" = tracing::field::Empty), Phase::Version);
        for phase in [Phase::KeyExchange, Phase::Authentication, Phase::Authentication, Phase::KeyExchange] {
            opening.reached(phase);
        }
        opening.reached(Phase::Program);
        opening.over();
        opening.failed("late");
        opening.reached(Phase::Program);
        let expected = ["ssh.version", "ssh.key_exchange", "ssh.authentication", "ssh.program", "whole"];
        let mut ended = seen.0.lock().clone();
        ended.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(ended, expected);
    }

    #[test]
    fn without_a_span_nothing_lasts() {
        let opening = Opening::begin(Span::none(), Phase::Hello);
        opening.reached(Phase::Program);
        assert!(!opening.lasts.load(Ordering::Relaxed) && opening.state.lock().is_none());
    }
}
