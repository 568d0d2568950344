//! The way of traces to a collector: OTLP over gRPC, in the background.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use metrics::counter;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::{info, warn};

use crate::held::{Finished, Held, SPANS_LOST, Side, Value};

/// Traces in one message.
const BATCH: usize = 64;
/// More come together while this passes.
const GATHER: Duration = Duration::from_millis(200);
/// A collector that has not answered by then gets no more of this message.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure the collector is left alone for so long; it doubles up to the most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// At the end, what is under way has this long, and then what is left.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// `flags` of a span: the parent is known to be remote or not, and it is (OTLP, `SpanFlags`).
const PARENT_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;
const SAMPLED: u32 = 1;

/// Takes what is kept to a collector.
#[derive(Debug)]
pub struct Exporter {
    finished: mpsc::Receiver<Vec<Finished>>,
    held: Arc<Held>,
    resource: Resource,
}

impl Exporter {
    pub(crate) fn new(
        finished: mpsc::Receiver<Vec<Finished>>,
        held: Arc<Held>,
        resource: Vec<(String, String)>,
    ) -> Self {
        let attributes =
            resource.into_iter().map(|(key, value)| attribute(&key, Value::Text(value))).collect();
        Self { finished, held, resource: Resource { attributes, ..Resource::default() } }
    }

    /// Exports until told to stop; then what is left, for at most two seconds. A collector that is away is told of once,
    /// and what was for it is lost and counted.
    pub async fn run(mut self, channel: Channel, stop: CancellationToken) {
        let mut client = TraceServiceClient::new(channel);
        let mut pause = None;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                got = self.finished.recv_many(&mut batch, 1) => if got == 0 { return },
                () = stop.cancelled() => break,
            }
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = stop.cancelled() => {}
            }
            self.take_more(&mut batch);
            let late = async {
                stop.cancelled().await;
                tokio::time::sleep(LAST_PATIENCE).await;
            };
            let sent = tokio::select! {
                sent = self.send(&mut client, batch, PATIENCE) => sent,
                () = late => break,
            };
            if sent {
                if pause.take().is_some() {
                    info!("the collector of traces takes them again");
                }
                continue;
            }
            let wait = pause.map_or(FIRST_PAUSE, |pause: Duration| (2 * pause).min(LONGEST_PAUSE));
            pause = Some(wait);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => break,
            }
        }
        let rest = async {
            loop {
                let mut batch = Vec::new();
                self.take_more(&mut batch);
                if batch.is_empty() || !self.send(&mut client, batch, LAST_PATIENCE).await {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LAST_PATIENCE, rest).await;
    }

    fn take_more(&mut self, batch: &mut Vec<Vec<Finished>>) {
        while batch.len() < BATCH
            && let Ok(more) = self.finished.try_recv()
        {
            batch.push(more);
        }
    }

    async fn send(
        &self,
        client: &mut TraceServiceClient<Channel>,
        batch: Vec<Vec<Finished>>,
        patience: Duration,
    ) -> bool {
        let spans: Vec<Span> = batch.into_iter().flatten().map(span).collect();
        let count = spans.len();
        let scope = InstrumentationScope {
            name: "sallyport".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scoped = ScopeSpans { scope: Some(scope), spans, schema_url: String::new() };
        let resource_spans = vec![ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scoped],
            schema_url: String::new(),
        }];
        let sending = client.export(ExportTraceServiceRequest { resource_spans });
        let problem = match tokio::time::timeout(patience, sending).await {
            Ok(Ok(_)) => None,
            Ok(Err(status)) => Some(format!("{}: {}", status.code(), status.message())),
            Err(_) => Some(format!("no answer within {} s", patience.as_secs())),
        };
        self.held.gone(count);
        let Some(problem) = problem else { return true };
        counter!(SPANS_LOST, "reason" => "collector").increment(count as u64);
        once(&problem);
        false
    }
}

/// Once in the life of a process: a collector may be away for days.
fn once(problem: &str) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        warn!(%problem, "the collector of traces takes none; they are lost until it does, and counted in {SPANS_LOST}");
    });
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text),
        Value::Integer(number) => any_value::Value::IntValue(number),
        Value::Number(number) => any_value::Value::DoubleValue(number),
        Value::Flag(flag) => any_value::Value::BoolValue(flag),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn nanoseconds(since: Duration) -> u64 {
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn span(finished: Finished) -> Span {
    let began = finished.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let kind = match finished.side {
        Side::Inside => SpanKind::Internal,
        Side::Server => SpanKind::Server,
        Side::Client => SpanKind::Client,
    };
    let status = finished.failed.then(|| Status { code: StatusCode::Error.into(), ..Status::default() });
    let parent = if finished.parent == 0 { Vec::new() } else { finished.parent.to_be_bytes().to_vec() };
    let remote = if finished.parent_is_remote { PARENT_REMOTE } else { 0 };
    Span {
        trace_id: finished.trace.to_be_bytes().to_vec(),
        span_id: finished.span.to_be_bytes().to_vec(),
        parent_span_id: parent,
        flags: SAMPLED | PARENT_KNOWN | remote,
        name: finished.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanoseconds(began),
        end_time_unix_nano: nanoseconds(began + finished.took),
        attributes: finished.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        status,
        ..Span::default()
    }
}
