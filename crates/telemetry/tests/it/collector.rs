//! Spans in, OTLP out: against a collector in this process.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span as Exported;
use sallyport_telemetry::{Exporter, Settings, Telemetry, Trust, context};
use sallyport_wire::trace_context::TraceContext;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server};
use tracing::field::Empty;
use tracing::{Span, info_span};
use tracing_subscriber::layer::SubscriberExt;

const PHASE: &str = "phase";

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Exported>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let spans = request.into_inner().resource_spans.into_iter().flat_map(|resource| {
            assert_eq!(resource.resource.unwrap().attributes[0].key, "service.name");
            resource.scope_spans.into_iter().flat_map(|scope| scope.spans)
        });
        self.0.lock().unwrap().extend(spans);
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> (Self, Channel) {
        let collector = Self::default();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let channel = channel(listener.local_addr().unwrap());
        let server = Server::builder().add_service(TraceServiceServer::new(collector.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        (collector, channel)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.lock().unwrap().iter().map(|span| span.name.clone()).collect();
        names.sort_unstable();
        names
    }

    fn find(&self, name: &str) -> Exported {
        self.0.lock().unwrap().iter().find(|span| span.name == name).unwrap().clone()
    }
}

fn channel(address: std::net::SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

fn telemetry(slow: Duration, sample: f64) -> (Telemetry, Exporter) {
    let resource = vec![("service.name".to_owned(), "test".to_owned())];
    Telemetry::new(Settings { target: PHASE, slow, sample, resource })
}

/// What is exported of what `act` does, before the exporter ends.
async fn exported(slow: Duration, act: impl FnOnce(&Telemetry)) -> Collector {
    let (collector, channel) = Collector::start().await;
    let (telemetry, exporter) = telemetry(slow, 0.0);
    // The log has spans of its own between those of traces.
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
    let subscriber = tracing_subscriber::registry().with(telemetry.layer()).with(log);
    tracing::subscriber::with_default(subscriber, || {
        act(&telemetry);
        drop(
            info_span!(target: PHASE, parent: None, "the last", otel.kind = "client", "error.type" = "failed"),
        );
    });
    let stop = CancellationToken::new();
    let exporting = tokio::spawn(exporter.run(channel, stop.clone()));
    // They are exported in the order in which they ended.
    let began = Instant::now();
    while !collector.names().iter().any(|name| name == "the last") {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is exported");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    exporting.await.unwrap();
    collector.0.lock().unwrap().retain(|span| span.name != "the last");
    collector
}

const HOUR: Duration = Duration::from_secs(3_600);

fn said(sampled: bool) -> TraceContext {
    TraceContext::new(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7, sampled).unwrap()
}

#[tokio::test]
async fn a_trace_goes_on_where_the_peer_has_begun_it() {
    let collector = exported(HOUR, |telemetry| {
        let peer = telemetry.admit(Some(said(true)), Trust::Host);
        let whole = info_span!(
            target: PHASE,
            parent: None,
            "whole",
            traceparent = peer.map(display),
            otel.kind = "server",
            answer = 42,
            "error.type" = Empty
        );
        // A span of another target in between is no part of the trace, and does not tear it.
        let between = info_span!(parent: &whole, "between");
        let part = info_span!(target: PHASE, parent: &between, "part");
        let told = context(&part).unwrap();
        assert_eq!((told.trace(), told.sampled()), (said(true).trace(), true));
        assert_ne!(told.span(), said(true).span());
        assert_eq!(context(&between).unwrap().trace(), told.trace());
        whole.record("error.type", "lost");
    })
    .await;
    assert_eq!(collector.names(), ["part", "whole"]);
    let (whole, part) = (collector.find("whole"), collector.find("part"));
    assert_eq!(whole.parent_span_id, said(true).span().to_be_bytes());
    assert_eq!(part.parent_span_id, whole.span_id);
    assert_eq!(whole.trace_id, said(true).trace().to_be_bytes());
    assert_eq!((whole.kind, part.kind, whole.flags & 0x300, part.flags & 0x300), (2, 1, 0x300, 0x100));
    assert_eq!(whole.status.unwrap().code, 2);
    let keys: Vec<String> = whole.attributes.into_iter().map(|attribute| attribute.key).collect();
    assert_eq!(keys, ["answer", "error.type"]);
}

#[tokio::test]
async fn what_is_quick_is_forgotten_and_what_is_slow_or_failed_is_not() {
    let collector = exported(Duration::from_millis(200), |_| {
        drop(info_span!(target: PHASE, parent: None, "quick", otel.kind = "server"));
        let slow = info_span!(target: PHASE, parent: None, "slow", otel.kind = "server");
        // The slow operation itself.
        std::thread::sleep(Duration::from_millis(210));
        drop(slow);
        drop(
            info_span!(target: PHASE, parent: None, "failed", otel.kind = "client", "error.type" = "refused"),
        );
        drop(info_span!(parent: None, "of another target", otel.kind = "client", "error.type" = "refused"));
        drop(info_span!(target: PHASE, parent: None, "of no kind", "error.type" = "refused"));
    })
    .await;
    assert_eq!(collector.names(), ["failed", "slow"]);
}

#[tokio::test]
async fn no_peer_makes_a_process_keep_what_it_likes() {
    let collector = exported(HOUR, |telemetry| {
        assert_eq!(telemetry.admit(Some(said(true)), Trust::Stranger), None);
        assert_eq!(telemetry.admit(None, Trust::Host), None);
        let mut granted = 0;
        for _ in 0..1_000 {
            let peer = telemetry.admit(Some(said(true)), Trust::User).unwrap();
            granted += usize::from(peer.sampled());
            drop(info_span!(target: PHASE, parent: None, "wished", otel.kind = "server", traceparent = display(peer)));
        }
        assert!((50..60).contains(&granted), "{granted}");
        assert!(!telemetry.admit(Some(said(false)), Trust::Host).unwrap().sampled());
        // A header of a peer that is not asked for one is not believed, and neither is a malformed one.
        drop(info_span!(target: PHASE, parent: None, "malformed", otel.kind = "server", traceparent = "00-zz-01"));
    })
    .await;
    let names = collector.names();
    assert!((50..60).contains(&names.len()) && names.iter().all(|name| name == "wished"), "{}", names.len());
}

#[tokio::test]
async fn a_collector_that_is_away_or_silent_costs_only_its_traces() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let gone = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), gone] {
        let (telemetry, exporter) = telemetry(Duration::ZERO, 0.0);
        let stop = CancellationToken::new();
        let exporting = tokio::spawn(exporter.run(channel(address), stop.clone()));
        let began = Instant::now();
        let subscriber = tracing_subscriber::registry().with(telemetry.layer());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..10_000 {
                drop(info_span!(target: PHASE, parent: None, "slow", otel.kind = "server"));
            }
        });
        // A debug build, and a machine that does other things: a millisecond each would be ten seconds.
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        // The exporter has begun to try: the silent one is connected to; the other is never reached.
        let held = if address == gone {
            tokio::time::sleep(Duration::from_millis(300)).await;
            None
        } else {
            Some(silent.accept().await.unwrap())
        };
        let ending = Instant::now();
        stop.cancel();
        exporting.await.unwrap();
        assert!(ending.elapsed() < Duration::from_secs(20), "{:?}", ending.elapsed());
        drop(held);
    }
}

#[tokio::test]
async fn without_a_layer_there_is_no_context() {
    assert_eq!(context(&Span::current()), None);
    assert_eq!(context(&info_span!(target: PHASE, "disabled")), None);
}
