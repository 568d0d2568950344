//! What is recorded of one connection of one process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_wire::trace_context::TraceContext;
use sallyport_wire::v1::SshConnected;
use serde_json::Value;
use tracing::Span;
use uuid::Uuid;

use super::round_trips::RoundTrips;
use crate::error::{Error, Result};

/// Phases that are kept; a connection has a dozen.
const MOST_PHASES: usize = 256;

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// What is known of a connection so far.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    context: TraceContext,
    round_trips: Mutex<RoundTrips>,
    seen: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    phases: Vec<Phase>,
    /// What the helper daemon told of itself before it had the stream, and whose it is.
    helped: Option<(PathBuf, Option<Value>)>,
}

/// One phase. Times are since the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// What it is called.
    pub name: String,
    /// Where in the list the phase is that this one is a part of.
    pub parent: Option<usize>,
    /// When it began.
    pub start: Duration,
    /// `None` while it lasts.
    pub end: Option<Duration>,
    /// Round trips before it.
    pub before: u32,
    /// At its end.
    pub after: u32,
    /// What is told of it.
    pub notes: Vec<(String, String)>,
}

impl Recorder {
    /// The name of the trace.
    pub fn id(&self) -> String {
        format!("{:032x}", self.context.trace())
    }

    pub(super) fn with_round_trips(&self, tell: impl FnOnce(&mut RoundTrips, Duration)) {
        tell(&mut self.round_trips.lock(), self.began.elapsed());
    }

    fn round_trips(&self) -> u32 {
        self.round_trips.lock().count()
    }

    /// What a round trip takes, as far as known.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trips.lock().round_trip()
    }

    /// Takes the phases out.
    pub fn take_phases(&self) -> Vec<Phase> {
        self.with(|seen| std::mem::take(&mut seen.phases))
    }

    /// Takes out which helper had the stream, by the directory of its login, and how it stood before.
    pub fn take_helped(&self) -> Option<(PathBuf, Option<Value>)> {
        self.with(|seen| seen.helped.take())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Recorded) -> T) -> T {
        act(&mut self.seen.lock())
    }

    /// Begins a phase; `None` when there are too many.
    pub fn begin(&self, name: &str, parent: Option<usize>, notes: Vec<(String, String)>) -> Option<usize> {
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

    /// Adds to what is told of a phase.
    pub fn note(&self, place: usize, notes: Vec<(String, String)>) {
        self.with(|seen| {
            if let Some(phase) = seen.phases.get_mut(place) {
                phase.notes.extend(notes);
            }
        });
    }

    /// Ends a phase.
    pub fn end(&self, place: usize) {
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
pub fn recorder() -> Option<&'static Recorder> {
    RECORDER.get()
}

/// The same, where the code that runs is part of what is traced: a profile that is brought up to date beside it is not.
pub(super) fn recorder_here() -> Option<&'static Recorder> {
    recorder().filter(|_| !Span::current().is_none())
}

/// Where requests of this process belong: a header for the proxy and the authority.
pub fn context() -> Option<TraceContext> {
    recorder().map(|recorder| sallyport_telemetry::context(&Span::current()).unwrap_or(recorder.context))
}

/// The trace's name, for its first span.
pub fn id() -> Option<String> {
    recorder().map(Recorder::id)
}

/// TCP is there, after this time.
pub fn dialled(took: Duration) {
    if let Some(recorder) = recorder_here() {
        recorder.with_round_trips(|trips, _| trips.dialled(took));
    }
}

/// What the proxy told of itself.
pub fn proxy_said(connected: &SshConnected) {
    if let Some(recorder) = recorder() {
        recorder.proxy_said(connected);
    }
}

/// A helper has the stream: the directory of its login, and how it stood before.
pub fn helped(directory: &Path, before: Option<Value>) {
    if let Some(recorder) = recorder() {
        recorder.with(|seen| seen.helped = Some((directory.to_owned(), before)));
    }
}

/// The recorder of this process, from now on.
///
/// # Errors
/// There is no randomness to name the trace by.
pub fn start() -> Result<&'static Recorder> {
    let (trace, span) = (Uuid::new_v4().as_u128(), Uuid::new_v4().as_u64_pair().1);
    let context = TraceContext::new(trace, span, true).ok_or(Error::Failed {
        doing: "name a trace".to_owned(),
        source: Arc::new(std::io::Error::other("there is no randomness")),
    })?;
    let (round_trips, seen) = (Mutex::default(), Mutex::default());
    Ok(RECORDER.get_or_init(|| Recorder { began: Instant::now(), context, round_trips, seen }))
}
