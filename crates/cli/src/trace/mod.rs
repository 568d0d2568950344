//! `--trace`: where the time of a connection went, phase by phase.
//!
//! What is recorded is in `client::trace`; here it is turned on, and shown.

mod export;
mod layer;
mod waterfall;

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use crate::error::{CliError, CliResult, Context};
use crate::ui;
use layer::Phases;
use sallyport_client::trace::recorder::{self, recorder};
use sallyport_helper::control;
use waterfall::{Helper, Report};

/// How a trace is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// As a picture for people.
    Text,
    /// As one object for programs.
    Json,
    /// To a collector of OpenTelemetry, at OTEL_EXPORTER_OTLP_ENDPOINT or http://127.0.0.1:4317.
    Otlp,
}

/// Begins to trace, and to log what the filter lets through.
pub(crate) fn start(format: Format, filter: Option<EnvFilter>, log_file: Option<&Path>) -> CliResult {
    let recorder = recorder::start()?;
    let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = vec![Phases::of(recorder)];
    if format == Format::Otlp {
        layers.push(export::start()?);
    }
    if let Some(filter) = filter {
        layers.push(match log_file {
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file = file.doing(format!("open {}", path.display()))?;
                fmt::layer().with_ansi(false).with_writer(Mutex::new(file)).with_filter(filter).boxed()
            }
            None => fmt::layer().with_ansi(false).with_writer(|| crate::ui::Log).with_filter(filter).boxed(),
        });
    }
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Ok(())
}

/// Tells what was seen, to stderr or to a collector. `failed`: how it went wrong.
pub(crate) async fn tell(format: Format, destination: &str, failed: Option<&CliError>) {
    let Some(recorder) = recorder() else { return };
    if format == Format::Otlp {
        export::finish().await;
        return ui::say(format!("trace {}", recorder.id()));
    }
    let helped = recorder.take_helped();
    let report = Report {
        trace: recorder.id(),
        destination: destination.to_owned(),
        phases: recorder.take_phases(),
        round_trip: recorder.round_trip(),
        helper: helped
            .map(|(directory, before)| Helper::of(before.as_ref(), control::standing(&directory).as_ref())),
        failed: failed.map(|error| error.what().to_owned()),
    };
    ui::say(match format {
        Format::Json => report.json().to_string(),
        Format::Text | Format::Otlp => report.text(),
    });
}
