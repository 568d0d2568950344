//! Spans that are phases, as they begin and end.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Subscriber, span};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Registry};

use super::waterfall::WHOLE;
use sallyport_client::trace::{PHASE, Recorder};

/// Longest note, in bytes.
const NOTE_BYTES: usize = 256;

/// Writes them down.
pub(super) struct Phases(&'static Recorder);

impl Phases {
    /// A layer that sees nothing else.
    pub(super) fn of(recorder: &'static Recorder) -> Box<dyn Layer<Registry> + Send + Sync> {
        Self(recorder)
            .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == PHASE))
            .boxed()
    }
}

/// Where a span's phase is in the list.
struct Place(usize);

#[derive(Default)]
struct Notes(Vec<(String, String)>);

impl Notes {
    fn push(&mut self, field: &Field, mut text: String) {
        // What is for the collector alone.
        if matches!(field.name(), "otel.kind" | "trace.id") {
            return;
        }
        while text.len() > NOTE_BYTES {
            text.pop();
        }
        self.0.push((field.name().to_owned(), text));
    }
}

impl Visit for Notes {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Phases {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut notes = Notes::default();
        attributes.record(&mut notes);
        let mut above = span.scope().skip(1);
        let parent = above.find_map(|above| above.extensions().get::<Place>().map(|place| place.0));
        // What begins by itself is the whole, or something that only happens at the same time.
        if parent.is_none() && span.name() != WHOLE {
            return;
        }
        if let Some(place) = self.0.begin(span.name(), parent, notes.0) {
            span.extensions_mut().insert(Place(place));
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let mut notes = Notes::default();
        values.record(&mut notes);
        if let Some(place) = place(id, &context) {
            self.0.note(place, notes.0);
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        if let Some(place) = place(&id, &context) {
            self.0.end(place);
        }
    }
}

fn place<S: Subscriber + for<'a> LookupSpan<'a>>(id: &span::Id, context: &Context<'_, S>) -> Option<usize> {
    context.span(id)?.extensions().get::<Place>().map(|place| place.0)
}
