//! Health, readiness and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sallyport_sal::{economy, uses};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::member::host_keys;
use crate::routes::Routes;

/// How a part of the process is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Ready,
    Waiting(String),
    Degraded(String),
}

/// What works by now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Services that are not ready yet, each with the reason in words.
    pub waiting: Vec<String>,
    /// Services that are ready and do not do all they should, each with the reason in words.
    pub degraded: Vec<String>,
}

impl std::fmt::Display for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.waiting.is_empty() { f.write_str("ready") } else { f.write_str(&self.waiting.join("; ")) }
    }
}

impl std::error::Error for Readiness {}

/// What every part of the process still waits for.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    parts: Arc<parking_lot::Mutex<BTreeMap<&'static str, Condition>>>,
    readiness: watch::Sender<Readiness>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self { parts: Arc::default(), readiness: watch::channel(Readiness::default()).0 }
    }

    /// Declares that `part` is not ready, and why.
    pub(crate) fn waiting(&self, part: &'static str, why: impl Into<String>) {
        self.set(part, Condition::Waiting(why.into()));
    }

    /// Declares that `part` works, but not all of it, and why.
    pub(crate) fn degraded(&self, part: &'static str, why: impl Into<String>) {
        self.set(part, Condition::Degraded(why.into()));
    }

    /// Declares that `part` is ready.
    pub(crate) fn ready(&self, part: &'static str) {
        self.set(part, Condition::Ready);
    }

    fn set(&self, part: &'static str, condition: Condition) {
        let mut parts = self.parts.lock();
        parts.insert(part, condition);
        let mut fresh = Readiness::default();
        for (part, condition) in parts.iter() {
            match condition {
                Condition::Ready => {}
                Condition::Waiting(why) => fresh.waiting.push(format!("{part}: {why}")),
                Condition::Degraded(why) => fresh.degraded.push(format!("{part}: {why}")),
            }
        }
        drop(parts);
        self.readiness.send_if_modified(|readiness| {
            let changed = *readiness != fresh;
            *readiness = fresh;
            changed
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness.borrow().clone()
    }
}

/// `GET /healthz`: the process answers. `GET /readyz`: every part works; else 503 and what is missing. A part that does
/// not do all it should is named, and a load balancer goes on sending clients here.
pub(crate) fn health_routes(health: Health) -> Routes {
    Routes::default()
        .page("/healthz", get(|| async { "ok\n" }))
        .page("/readyz", get(readyz).with_state(health))
}

/// What the diagnostics address serves: health, and the metrics.
pub(crate) fn diagnostics_routes(health: Health) -> Routes {
    health_routes(health).page("/metrics", get(render))
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let readiness = health.readiness();
    let status = match readiness.waiting.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut lines = readiness.waiting;
    if lines.is_empty() {
        lines.push("ready".to_owned());
    }
    lines.extend(readiness.degraded.into_iter().map(|why| format!("degraded: {why}")));
    (status, format!("{}\n", lines.join("\n")))
}

/// The process has one recorder, however many services run in it.
pub(crate) fn metrics_handle() -> Option<&'static PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let handle = PrometheusBuilder::new().install_recorder();
            match handle {
                Ok(handle) => {
                    describe();
                    Some(handle)
                }
                Err(error) => {
                    warn!(%error, "metrics are not available");
                    None
                }
            }
        })
        .as_ref()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Counter,
    Gauge,
    Histogram,
}

/// Every metric of a process; docs/operations.md lists the same.
const METRICS: [(Shape, &str, &str); 38] = [
    (Shape::Counter, "sallyport_connections_total", "Connections, by what they speak (`kind`)."),
    (Shape::Gauge, "sallyport_connections_open", "Open connections."),
    (
        Shape::Counter,
        "sallyport_connections_refused_total",
        "Connections closed because of a limit (`reason`).",
    ),
    (
        Shape::Counter,
        "sallyport_quic_retries_total",
        "Connections by QUIC that were asked to prove their address first.",
    ),
    (
        Shape::Counter,
        "sallyport_quic_early_data_total",
        "Connections by QUIC that came with a ticket and said something with it, by what became of that (`outcome`).",
    ),
    (
        Shape::Counter,
        "sallyport_first_bytes_dropped_total",
        "Connections dropped before their protocol was known (`reason`).",
    ),
    (
        Shape::Counter,
        "sallyport_handshake_failures_total",
        "Handshakes by TLS or QUIC that failed or showed a bad certificate.",
    ),
    (Shape::Counter, "sallyport_sessions_total", "Attempts to reach a node (`result`)."),
    (Shape::Gauge, "sallyport_sessions_open", "Open ways to nodes."),
    (Shape::Histogram, "sallyport_session_open_seconds", "Time from a target's name to an open stream."),
    (Shape::Gauge, "sallyport_tunnels_open", "Tunnels of agents."),
    (Shape::Counter, "sallyport_tunnels_total", "Tunnels that agents have opened."),
    (Shape::Counter, "sallyport_tunnel_streams_total", "Streams opened on tunnels."),
    (Shape::Counter, "sallyport_bytes_total", "Bytes of SSH ciphertext carried (`direction`)."),
    (
        Shape::Counter,
        "sallyport_page_calls_refused_total",
        "Calls of browsers' pages that the proxy refused by itself (`reason`).",
    ),
    (Shape::Counter, "sallyport_authority_calls_total", "Calls to the authority (`method`, `result`)."),
    (
        Shape::Counter,
        "sallyport_auth_strangers_refused_total",
        "Calls without a certificate past the bound of their address.",
    ),
    (Shape::Gauge, "sallyport_auth_disk_free_bytes", "Free bytes on the authority's disk."),
    (
        Shape::Counter,
        "sallyport_audit_checkpoints_unposted_total",
        "Attempts to take a checkpoint of the audit log to a place that failed (`place`).",
    ),
    (
        Shape::Counter,
        "sallyport_session_factors_asked_total",
        "Second factors that users were asked for before sessions (`joined`: whether the request joined an open one).",
    ),
    (
        Shape::Counter,
        "sallyport_session_factors_checked_total",
        "Questions of hosts whether a factor is proven for a session that demands one (`result`).",
    ),
    (
        Shape::Counter,
        "sallyport_resource_sessions_total",
        "Sessions that users asked this agent for with resources of the catalogue, by their `kind` and what became of them (`result`).",
    ),
    (
        Shape::Counter,
        "sallyport_database_backends_left_total",
        "Processes of database sessions that were over, which cancelling and terminating did not end in time.",
    ),
    (Shape::Counter, "sallyport_events_dropped_total", "Audit events lost because the spool was full."),
    (Shape::Counter, "sallyport_recording_bytes_total", "Bytes of recordings handed to the authority."),
    (Shape::Gauge, "sallyport_recording_spool_bytes", "Bytes of recordings on this node's disk."),
    (Shape::Gauge, "sallyport_recordings_waiting", "Recordings of ended sessions that wait for upload."),
    (
        Shape::Gauge,
        "sallyport_crypto_quarantined",
        "Sources of cryptography that are out of service (`primitive`, `provider`).",
    ),
    (
        Shape::Counter,
        "sallyport_crypto_uses_total",
        "What sources of cryptography were asked for, keys that serve many times once each (`primitive`, `provider`).",
    ),
    (
        Shape::Gauge,
        "sallyport_crypto_fips_module",
        "1 where all cryptography comes from the FIPS module, whose self-tests have passed (`version`).",
    ),
    (
        Shape::Counter,
        "sallyport_tls_chains_total",
        "Certificate chains of peers, verified or known from before (`result`).",
    ),
    (
        Shape::Counter,
        "sallyport_keys_generated_total",
        "Keys that this process made (`algorithm`, `purpose`).",
    ),
    // The recorder's counters hold whole numbers.
    (
        Shape::Gauge,
        "sallyport_key_generation_cpu_seconds_total",
        "Processor time that went into them (`algorithm`, `purpose`).",
    ),
    (
        Shape::Gauge,
        "sallyport_key_pool_ready",
        "Keys that were made ahead and wait for a host (`algorithm`, `purpose`).",
    ),
    (
        Shape::Gauge,
        "sallyport_key_pool_capacity",
        "Keys that are made ahead now, none where that is quick (`algorithm`, `purpose`).",
    ),
    (
        Shape::Counter,
        "sallyport_key_pool_taken_total",
        "Keys that hosts took, ready or made on demand (`algorithm`, `purpose`, `source`).",
    ),
    (Shape::Counter, "sallyport_traces_total", "Traces, by what became of them (`result`)."),
    (
        Shape::Counter,
        "sallyport_trace_spans_lost_total",
        "Spans that a bound or the collector cost (`reason`).",
    ),
];

fn describe() {
    for (shape, name, text) in METRICS {
        match shape {
            Shape::Counter => describe_counter!(name, text),
            Shape::Gauge => describe_gauge!(name, text),
            Shape::Histogram => describe_histogram!(name, text),
        }
    }
}

/// Samples of histograms are folded when a scraper reads the metrics; without one they would pile up.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Sets the metrics up and keeps them small until `stop`.
pub(crate) async fn keep_metrics(stop: CancellationToken) {
    let Some(handle) = metrics_handle() else { return };
    let mut upkeep = tokio::time::interval(UPKEEP_INTERVAL);
    loop {
        tokio::select! {
            _ = upkeep.tick() => {
                count_chains();
                count_keys();
                count_uses();
                handle.run_upkeep();
            }
            () = stop.cancelled() => return,
        }
    }
}

/// Chains are counted where they are verified, which knows nothing of metrics.
fn count_chains() {
    let counts = sallyport_ca::chain_counts();
    metrics::counter!("sallyport_tls_chains_total", "result" => "verified").absolute(counts.verified);
    metrics::counter!("sallyport_tls_chains_total", "result" => "remembered").absolute(counts.remembered);
}

/// Keys are counted where they are made, which knows nothing of metrics either.
fn count_keys() {
    for count in economy::snapshot() {
        let labels = [("algorithm", count.algorithm.name()), ("purpose", count.purpose_name())];
        metrics::counter!("sallyport_keys_generated_total", &labels).absolute(count.generated);
        metrics::gauge!("sallyport_key_generation_cpu_seconds_total", &labels).set(count.cpu.as_secs_f64());
    }
    for count in host_keys::counts() {
        let labels = [("algorithm", count.algorithm.name()), ("purpose", count.purpose.name())];
        // There are never more of them than fit into any float.
        #[allow(clippy::cast_precision_loss)]
        let gauge = |number: usize| number as f64;
        metrics::gauge!("sallyport_key_pool_ready", &labels).set(gauge(count.ready));
        metrics::gauge!("sallyport_key_pool_capacity", &labels).set(gauge(count.capacity));
        for (source, taken) in [("pool", count.from_pool), ("on_demand", count.on_demand)] {
            let [algorithm, purpose] = labels;
            let labels = [algorithm, purpose, ("source", source)];
            metrics::counter!("sallyport_key_pool_taken_total", &labels).absolute(taken);
        }
    }
}

/// Uses are counted where they are made, which takes no lock there.
fn count_uses() {
    for one in uses::all() {
        metrics::counter!("sallyport_crypto_uses_total", "primitive" => one.primitive, "provider" => one.provider)
            .absolute(one.times);
    }
}

async fn render() -> impl IntoResponse {
    count_chains();
    count_keys();
    count_uses();
    let text = metrics_handle().map(PrometheusHandle::render).unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// Serves health and metrics until `stop`.
pub(crate) async fn serve_diagnostics(listener: TcpListener, health: Health, stop: CancellationToken) {
    let routes = diagnostics_routes(health);
    let server = axum::serve(listener, routes.router()).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = server.await {
        warn!(%error, "the diagnostics address is no longer served");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_lists_every_metric() {
        let guide = include_str!("../../../docs/operations.md");
        for (shape, name, text) in METRICS {
            let row = format!("| `{name}` | {} | {text} |", format!("{shape:?}").to_lowercase());
            assert!(guide.contains(&row), "docs/operations.md lacks the row\n{row}");
        }
    }

    #[tokio::test]
    async fn metrics_are_rendered_for_prometheus() {
        metrics::counter!("sallyport_connections_total", "kind" => "test").increment(1);
        let handle = metrics_handle().expect("a recorder");
        metrics::counter!("sallyport_connections_total", "kind" => "test").increment(1);
        let text = handle.render();
        assert!(
            text.contains("# HELP sallyport_connections_total Connections, by what they speak"),
            "{text}"
        );
        assert!(text.contains("sallyport_connections_total{kind=\"test\"}"), "{text}");
    }

    #[test]
    fn keys_are_counted_by_type_and_purpose() {
        let handle = metrics_handle().expect("a recorder");
        host_keys::take(sallyport_sal::Suite::FipsV1).expect("keys");
        count_keys();
        let text = handle.render();
        for sample in [
            "sallyport_keys_generated_total{algorithm=\"ecdsa-p256\",purpose=\"host-ssh\"}",
            "sallyport_key_generation_cpu_seconds_total{algorithm=\"ecdsa-p256\",purpose=\"host-tls\"}",
            "sallyport_key_pool_capacity{algorithm=\"ecdsa-p256\",purpose=\"host-ssh\"} 0",
            "sallyport_key_pool_taken_total{algorithm=\"ecdsa-p256\",purpose=\"host-ssh\",source=\"on_demand\"}",
        ] {
            assert!(text.contains(sample), "{sample} not in\n{text}");
        }
    }

    #[test]
    fn readiness_names_what_is_missing() {
        let health = Health::new();
        health.waiting("node", "has no tunnel yet");
        health.waiting("proxy", "has not heard from the authority");
        assert_eq!(
            health.readiness().waiting,
            ["node: has no tunnel yet", "proxy: has not heard from the authority"]
        );
        health.ready("node");
        health.ready("proxy");
        assert!(health.readiness().waiting.is_empty());
        health.degraded("auth", "its disk is short of room");
        assert_eq!(health.readiness().degraded, ["auth: its disk is short of room"]);
        assert!(health.readiness().waiting.is_empty());
    }
}
