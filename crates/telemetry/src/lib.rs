//! Traces of connections: those that are slow, failed or asked for go to an OpenTelemetry collector. Spans of one target become
//! parts of a trace, and all other traces are forgotten.
//!
//! The decision falls when the first span of a trace in this process ends (tail sampling), by what is known here. Whatever
//! waits is bounded: traces under way, spans in all, exports a second. A collector that is slow or away costs its traces
//! and nothing else; what is lost is counted.
//!
//! Spans say what they need in fields: `otel.kind` (`client` or `server`, without which no trace begins), `traceparent`
//! (where a peer says that the first span belongs; see [`Trust`]), `trace.id` (of a trace that begins here) and `error.type`
//! (which makes it failed). All other fields become attributes.
//!
//! Where nothing is installed, [`context`] is one look at a flag, and a span of the target is disabled where it stands.

mod budget;
mod export;
mod held;
mod layer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sallyport_wire::trace_context::TraceContext;
use tokio::sync::mpsc;
use tracing::{Span, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::{LookupSpan, Registry};

pub use export::Exporter;
use held::Held;

/// Traces that wait for the exporter; more are lost.
const QUEUED_TRACES: usize = 1_024;

/// Whether any layer was ever made in this process.
static ON: AtomicBool = AtomicBool::new(false);

/// What is kept, and as whose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The target of the spans that are parts of traces.
    pub target: &'static str,
    /// A trace is slow, and kept, when its first span here takes at least this long.
    pub slow: Duration,
    /// The share of all others that is kept as well, 0 to 1.
    pub sample: f64,
    /// What the collector is told of this process: `service.name` and others.
    pub resource: Vec<(String, String)>,
}

/// How far a peer's word goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// A host of the cluster: its trace, and its decision to keep it.
    Host,
    /// A user who has proven who they are: their trace; the wish to keep it counts as long as not too many have it.
    User,
    /// Any other peer: nothing.
    Stranger,
}

/// What makes traces of spans. Clones share it.
#[derive(Debug, Clone)]
pub struct Telemetry {
    held: Arc<Held>,
    target: &'static str,
}

impl Telemetry {
    /// What makes traces, and what takes them to a collector.
    #[must_use]
    pub fn new(settings: Settings) -> (Self, Exporter) {
        let (queue, finished) = mpsc::channel(QUEUED_TRACES);
        let held = Arc::new(Held::new(settings.slow, settings.sample, queue));
        ON.store(true, Ordering::Relaxed);
        let exporter = Exporter::new(finished, Arc::clone(&held), settings.resource);
        (Self { held, target: settings.target }, exporter)
    }

    /// The layer that sees the spans of the target, and nothing else.
    #[must_use]
    pub fn layer<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let target = self.target;
        let only = filter_fn(move |metadata| metadata.is_span() && metadata.target() == target);
        layer::Phases::new(Arc::clone(&self.held)).with_filter(only).boxed()
    }

    /// What of a peer's context counts: the value for the field `traceparent` of the first span.
    #[must_use]
    pub fn admit(&self, said: Option<TraceContext>, by: Trust) -> Option<TraceContext> {
        let said = said?;
        match by {
            Trust::Host => Some(said),
            Trust::User => Some(said.with_sampled(said.sampled() && self.held.may_wish())),
            Trust::Stranger => None,
        }
    }
}

/// Whether traces are made in this process.
#[must_use]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Where whatever a span asks others for belongs: for the header of a request. `None` where nothing is traced.
#[must_use]
pub fn context(span: &Span) -> Option<TraceContext> {
    if !is_on() {
        return None;
    }
    let found = span.with_subscriber(|(id, dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        let context = span.scope().find_map(|above| layer::context(&above.extensions()));
        context.flatten()
    });
    found.flatten()
}
