//! `--trace=otlp`: this program's part of a trace, for the collector that has the cluster's.

use std::time::Duration;

use parking_lot::Mutex;
use sallyport_telemetry::{Settings, Telemetry};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::Layer;

use crate::error::{CliError, CliResult, Exit};
use sallyport_client::trace::PHASE;

/// Where OpenTelemetry's own programs look for it, and the default that they have.
const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const DEFAULT: &str = "http://127.0.0.1:4317";
/// The command waits so long at its end.
const PATIENCE: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

static EXPORTING: Mutex<Option<(JoinHandle<()>, CancellationToken)>> = Mutex::new(None);

/// Begins to export. Nothing is said to the collector before there is something to say.
pub(super) fn start() -> CliResult<Box<dyn Layer<Registry> + Send + Sync>> {
    let address = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty());
    let address = address.unwrap_or_else(|| DEFAULT.to_owned());
    let wrong = || {
        CliError::new(format!("{VARIABLE} is {address:?}; expected http://HOST:PORT"))
            .hint(
                "run a collector on this machine, which takes traces without TLS and passes them on with it",
            )
            .exit(Exit::Usage)
    };
    if !address.starts_with("http://") {
        return Err(wrong());
    }
    let endpoint = Endpoint::from_shared(address.clone()).map_err(|_| wrong())?;
    let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy();
    let resource = vec![
        ("service.name".to_owned(), "sallyport-ssh".to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let settings = Settings { target: PHASE, slow: Duration::ZERO, sample: 1.0, resource };
    let (telemetry, exporter) = Telemetry::new(settings);
    let stop = CancellationToken::new();
    let exporting = tokio::spawn(exporter.run(channel, stop.clone()));
    *EXPORTING.lock() = Some((exporting, stop));
    Ok(telemetry.layer())
}

/// Sends what there is, within a bound.
pub(super) async fn finish() {
    let exporting = EXPORTING.lock().take();
    if let Some((exporting, stop)) = exporting {
        stop.cancel();
        let _ = tokio::time::timeout(PATIENCE, exporting).await;
    }
}
