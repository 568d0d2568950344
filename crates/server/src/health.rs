//! Health, readiness and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::run::Readiness;

/// What every part of the process still waits for.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    parts: Arc<std::sync::Mutex<BTreeMap<&'static str, Option<String>>>>,
    readiness: watch::Sender<Readiness>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self { parts: Arc::default(), readiness: watch::channel(Readiness::default()).0 }
    }

    /// Declares that `part` is not ready, and why.
    pub(crate) fn waiting(&self, part: &'static str, why: impl Into<String>) {
        self.set(part, Some(why.into()));
    }

    /// Declares that `part` is ready.
    pub(crate) fn ready(&self, part: &'static str) {
        self.set(part, None);
    }

    fn set(&self, part: &'static str, waiting: Option<String>) {
        let mut parts = self.parts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        parts.insert(part, waiting);
        let waiting =
            parts.iter().filter_map(|(part, why)| why.as_ref().map(|why| format!("{part}: {why}"))).collect();
        let fresh = Readiness { waiting };
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

/// `GET /healthz`: the process answers. `GET /readyz`: every part works; else 503 and what is missing.
pub(crate) fn health_routes(health: Health) -> Router {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readyz)).with_state(health)
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let readiness = health.readiness();
    if readiness.waiting.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", readiness.waiting.join("\n")))
    }
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

fn describe() {
    describe_counter!("sallyport_connections_total", "Connections by what they speak.");
    describe_gauge!("sallyport_connections_open", "Open connections.");
    describe_counter!("sallyport_connections_refused_total", "Connections closed because of a limit.");
    describe_counter!(
        "sallyport_first_bytes_dropped_total",
        "Connections dropped before their protocol was known."
    );
    describe_counter!("sallyport_sessions_total", "Attempts to reach a node, by result.");
    describe_gauge!("sallyport_sessions_open", "Open ways to nodes.");
    describe_histogram!(
        "sallyport_session_open_seconds",
        Unit::Seconds,
        "From the target's name to an open stream."
    );
    describe_gauge!("sallyport_tunnels_open", "Tunnels of agents.");
    describe_counter!("sallyport_tunnels_total", "Tunnels that agents have opened.");
    describe_counter!("sallyport_tunnel_streams_total", "Streams opened on tunnels.");
    describe_counter!("sallyport_bytes_total", Unit::Bytes, "SSH ciphertext carried, by direction.");
    describe_counter!(
        "sallyport_authority_calls_total",
        "Calls of this process to the authority, by method and result."
    );
    describe_counter!("sallyport_events_dropped_total", "Audit events lost because the spool was full.");
    describe_counter!(
        "sallyport_handshake_failures_total",
        "TLS handshakes that failed or showed a bad certificate."
    );
    describe_counter!("sallyport_recording_bytes_total", Unit::Bytes, "Recordings handed to the authority.");
    describe_gauge!("sallyport_recording_spool_bytes", Unit::Bytes, "Recordings on this node's disk.");
    describe_gauge!("sallyport_recordings_waiting", "Recordings that wait for upload.");
}

async fn render() -> impl IntoResponse {
    let text = metrics_handle().map(PrometheusHandle::render).unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// Serves health and metrics until `stop`.
pub(crate) async fn serve_diagnostics(listener: TcpListener, health: Health, stop: CancellationToken) {
    let routes = health_routes(health).route("/metrics", get(render));
    let server = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = server.await {
        warn!(%error, "the diagnostics address is no longer served");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
