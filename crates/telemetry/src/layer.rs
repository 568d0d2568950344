//! Spans as they begin and end.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use sallyport_wire::trace_context::TraceContext;
use tracing::field::{Field, Visit};
use tracing::{Subscriber, span};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{Extensions, LookupSpan};

use crate::held::{Finished, Held, Side, Trace, Value};

/// Attributes of one span,
const MOST_ATTRIBUTES: usize = 16;
/// and bytes of one text.
const TEXT_BYTES: usize = 256;

/// Makes traces of spans.
pub(crate) struct Phases {
    held: Arc<Held>,
}

/// What is kept with a span while it lasts.
enum Part {
    Live(Box<Live>),
    /// There were too many traces; its parts begin none either.
    Untraced,
}

struct Live {
    trace: Arc<Trace>,
    /// The trace's first span here.
    first: bool,
    span: u64,
    parent: u64,
    parent_is_remote: bool,
    began: SystemTime,
    since: Instant,
    fields: Fields,
}

/// The context of what a span is part of; `Some(None)` where it is known not to be traced.
pub(crate) fn context(extensions: &Extensions<'_>) -> Option<Option<TraceContext>> {
    match extensions.get::<Part>()? {
        Part::Live(live) => Some(TraceContext::new(live.trace.id, live.span, live.trace.keep)),
        Part::Untraced => Some(None),
    }
}

/// What a span's fields say.
struct Fields {
    peer: Option<TraceContext>,
    own: Option<u128>,
    side: Side,
    failed: bool,
    attributes: Vec<(&'static str, Value)>,
}

impl Default for Fields {
    fn default() -> Self {
        Self { peer: None, own: None, side: Side::Inside, failed: false, attributes: Vec::new() }
    }
}

impl Fields {
    fn text(&mut self, field: &Field, mut text: String) {
        match field.name() {
            "traceparent" => return self.peer = TraceContext::parse(&text),
            "trace.id" => return self.own = u128::from_str_radix(&text, 16).ok().filter(|id| *id != 0),
            "otel.kind" => {
                self.side = match text.as_str() {
                    "server" => Side::Server,
                    "client" => Side::Client,
                    _ => Side::Inside,
                };
                return;
            }
            "error.type" => self.failed = true,
            _ => {}
        }
        while text.len() > TEXT_BYTES {
            text.pop();
        }
        self.add(field, Value::Text(text));
    }

    fn add(&mut self, field: &Field, value: Value) {
        let room = self.attributes.len() < MOST_ATTRIBUTES;
        match self.attributes.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, known)) => *known = value,
            None if room => self.attributes.push((field.name(), value)),
            None => {}
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::Number(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Flag(value));
    }
}

impl Phases {
    pub(crate) fn new(held: Arc<Held>) -> Self {
        Self { held }
    }

    fn part(&self, above: Option<(Arc<Trace>, u64)>, fields: Fields) -> Part {
        let (began, since) = (SystemTime::now(), Instant::now());
        let live = match above {
            Some((trace, parent)) => {
                let span = trace.span_id();
                Live { trace, first: false, span, parent, parent_is_remote: false, began, since, fields }
            }
            None => {
                let Some(trace) = self.held.begin(fields.peer, fields.own) else { return Part::Untraced };
                let (trace, parent) = (Arc::new(trace), fields.peer.map_or(0, |peer| peer.span()));
                let (span, parent_is_remote) = (trace.span_id(), parent != 0);
                Live { trace, first: true, span, parent, parent_is_remote, began, since, fields }
            }
        };
        Part::Live(Box::new(live))
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Phases {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        // The nearest span above that has a part, whatever stands between.
        let above = span.scope().skip(1).find_map(|above| match above.extensions().get::<Part>() {
            Some(Part::Live(live)) => Some(Some((Arc::clone(&live.trace), live.span))),
            Some(Part::Untraced) => Some(None),
            None => None,
        });
        let part = match above {
            Some(None) => Part::Untraced,
            Some(Some(above)) => self.part(Some(above), fields),
            // A client's or a server's span begins a trace. One of another kind is a part, of nothing that is traced.
            None if fields.side == Side::Inside => Part::Untraced,
            None => self.part(None, fields),
        };
        span.extensions_mut().insert(part);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Part::Live(live)) = span.extensions_mut().get_mut::<Part>() {
            values.record(&mut live.fields);
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Part::Live(live)) = span.extensions_mut().remove::<Part>() else { return };
        let now = Instant::now();
        let finished = Finished {
            trace: live.trace.id,
            span: live.span,
            parent: live.parent,
            parent_is_remote: live.parent_is_remote,
            name: span.name(),
            side: live.fields.side,
            began: live.began,
            took: now.saturating_duration_since(live.since),
            attributes: live.fields.attributes,
            failed: live.fields.failed,
        };
        if live.first {
            live.trace.add(finished.clone());
            live.trace.finish(&finished, now);
        } else {
            live.trace.add(finished);
        }
    }
}
