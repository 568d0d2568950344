//! What tracing costs a connection: nothing to speak of while it is off, and microseconds while it is on.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use sallyport_telemetry::{Settings, Telemetry, context};
use sallyport_wire::trace_context::TraceContext;
use tracing::{Span, info_span};
use tracing_subscriber::layer::SubscriberExt;

const PHASE: &str = "sallyport::phase";
const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// The spans and headers of one connection: proxy and node together, each with its parts.
fn connection() {
    for _ in 0..2 {
        let peer = sallyport_telemetry::is_on().then(|| TraceContext::parse(black_box(HEADER))).flatten();
        let root = info_span!(target: PHASE, parent: None, "connect", otel.kind = "server", traceparent = peer.map(display));
        for _ in 0..6 {
            let part = info_span!(target: PHASE, parent: &root, "part", answer = 42);
            black_box(context(&part));
        }
    }
    black_box(Span::current());
}

fn phases(criterion: &mut Criterion) {
    criterion.bench_function("off", |bencher| bencher.iter(connection));
    let filter = tracing_subscriber::filter::LevelFilter::WARN;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(filter), || {
        criterion.bench_function("off, with a log", |bencher| bencher.iter(connection));
    });
    let settings =
        Settings { target: PHASE, slow: Duration::from_secs(1), sample: 0.0, resource: Vec::new() };
    let (telemetry, _exporter) = Telemetry::new(settings);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(telemetry.layer()), || {
        criterion.bench_function("on, and forgotten", |bencher| bencher.iter(connection));
    });
}

criterion_group!(benches, phases);
criterion_main!(benches);
