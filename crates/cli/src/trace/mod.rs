//! `--trace`: where the time of a connection went, phase by phase.
//!
//! Phases are spans with the target [`PHASE`]; the code that they are in knows nothing of this module. One connection of one
//! process is traced, so that its recorder is the process's.

mod export;
mod flights;
mod layer;
mod waterfall;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sallyport_wire::trace_context::TraceContext;
use sallyport_wire::v1::SshConnected;
use serde_json::Value;
use tracing::Span;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt};
use uuid::Uuid;

pub(crate) use flights::Counted;
pub(crate) use sallyport_ssh::client::PHASE;

use crate::error::{CliError, CliResult, Context};
use crate::profile::Stored;
use crate::resident;
use crate::ui;
use flights::Flights;
use layer::Phases;
use waterfall::{Helper, Report};

/// Phases that are kept; a connection has a dozen.
const MOST_PHASES: usize = 256;

static RECORDER: OnceLock<Recorder> = OnceLock::new();

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

/// What is known of a connection so far.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: Instant,
    context: TraceContext,
    flights: Mutex<Flights>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    phases: Vec<Phase>,
    /// What the resident helper told of itself before it had the stream, and whose it is.
    helped: Option<(PathBuf, Option<Value>)>,
}

/// One phase. Times are since the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Phase {
    name: String,
    /// Where in the list the phase is that this one is a part of.
    parent: Option<usize>,
    start: Duration,
    /// `None` while it lasts.
    end: Option<Duration>,
    /// Round trips before it and at its end.
    before: u32,
    after: u32,
    /// What is told of it.
    notes: Vec<(String, String)>,
}

impl Recorder {
    fn id(&self) -> String {
        format!("{:032x}", self.context.trace())
    }

    fn with_flights(&self, tell: impl FnOnce(&mut Flights, Duration)) {
        tell(&mut self.flights.lock().unwrap_or_else(PoisonError::into_inner), self.began.elapsed());
    }

    fn round_trips(&self) -> u32 {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).round_trips()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a phase; `None` when there are too many.
    fn begin(&self, name: &str, parent: Option<usize>, notes: Vec<(String, String)>) -> Option<usize> {
        let (start, before) = (self.began.elapsed(), self.round_trips());
        self.with(|seen| {
            let place = seen.phases.len();
            (place < MOST_PHASES).then(|| {
                let name = name.to_owned();
                seen.phases.push(Phase { name, parent, start, end: None, before, after: before, notes });
                place
            })
        })
    }

    fn note(&self, place: usize, notes: Vec<(String, String)>) {
        self.with(|seen| {
            if let Some(phase) = seen.phases.get_mut(place) {
                phase.notes.extend(notes);
            }
        });
    }

    fn end(&self, place: usize) {
        let (now, after) = (self.began.elapsed(), self.round_trips());
        self.with(|seen| {
            if let Some(phase) = seen.phases.get_mut(place) {
                (phase.end, phase.after) = (Some(now), after);
            }
        });
    }

    /// The proxy's own phases, inside that of the stream: their clocks differ, so they stand in its middle.
    fn proxy_said(&self, connected: &SshConnected) {
        let (now, at) = (self.began.elapsed(), self.round_trips());
        if connected.decision_us == 0 && connected.open_us == 0 {
            return;
        }
        let parts = [
            ("decision", Duration::from_micros(connected.decision_us)),
            ("tunnel", Duration::from_micros(connected.open_us)),
        ];
        self.with(|seen| {
            let parent = seen.phases.iter().rposition(|phase| phase.name == "stream");
            let Some(stream) = parent.and_then(|place| seen.phases.get(place)) else { return };
            let (begin, end) = (stream.start, stream.end.unwrap_or(now));
            let spent: Duration = parts.iter().map(|(_, took)| *took).sum();
            let mut start = begin + end.saturating_sub(begin).saturating_sub(spent) / 2;
            for (name, took) in parts {
                let notes = vec![("by".to_owned(), "proxy".to_owned())];
                let (name, end) = (name.to_owned(), Some(start + took));
                seen.phases.push(Phase { name, parent, start, end, before: at, after: at, notes });
                start += took;
            }
        });
    }
}

/// The recorder, when this process has one.
pub(crate) fn recorder() -> Option<&'static Recorder> {
    RECORDER.get()
}

/// The same, where the code that runs is part of what is traced: a profile that is brought up to date beside it is not.
fn recorder_here() -> Option<&'static Recorder> {
    recorder().filter(|_| !Span::current().is_none())
}

/// Where requests of this process belong: a header for the proxy and the authority.
pub(crate) fn context() -> Option<TraceContext> {
    recorder().map(|recorder| sallyport_telemetry::context(&Span::current()).unwrap_or(recorder.context))
}

/// The trace's name, for its first span.
pub(crate) fn id() -> Option<String> {
    recorder().map(Recorder::id)
}

/// TCP is there, after this time.
pub(crate) fn dialled(took: Duration) {
    if let Some(recorder) = recorder_here() {
        recorder.with_flights(|flights, _| flights.dialled(took));
    }
}

/// What the proxy told of itself.
pub(crate) fn proxy_said(connected: &SshConnected) {
    if let Some(recorder) = recorder() {
        recorder.proxy_said(connected);
    }
}

/// Has the resident helper asked how it stands, before it gets a stream.
pub(crate) fn before_help(stored: &Stored) -> Option<Value> {
    recorder().and_then(|_| resident::standing(&stored.directory))
}

/// The helper has the stream.
pub(crate) fn helped(stored: &Stored, before: Option<Value>) {
    if let Some(recorder) = recorder() {
        recorder.with(|seen| seen.helped = Some((stored.directory.clone(), before)));
    }
}

/// Begins to trace, and to log what the filter lets through.
pub(crate) fn start(format: Format, filter: Option<EnvFilter>, log_file: Option<&Path>) -> CliResult {
    let (trace, span) = (Uuid::new_v4().as_u128(), Uuid::new_v4().as_u64_pair().1);
    let context = TraceContext::new(trace, span, true).ok_or_else(|| CliError::new("cannot name a trace"))?;
    let seen = Mutex::new(Seen::default());
    let recorder =
        RECORDER.get_or_init(|| Recorder { began: Instant::now(), context, flights: Mutex::default(), seen });
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
    let round_trip = recorder.flights.lock().unwrap_or_else(PoisonError::into_inner).round_trip();
    let report = recorder.with(|seen| Report {
        trace: recorder.id(),
        destination: destination.to_owned(),
        phases: std::mem::take(&mut seen.phases),
        round_trip,
        helper: seen
            .helped
            .take()
            .map(|(directory, before)| Helper::of(before.as_ref(), resident::standing(&directory).as_ref())),
        failed: failed.map(|error| error.what().to_owned()),
    });
    ui::say(match format {
        Format::Json => report.json().to_string(),
        Format::Text | Format::Otlp => report.text(),
    });
}
