//! What was seen of a connection, as a picture for people and as JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use sallyport_client::trace::{Phase, TELLING};

/// Columns of the bars.
const BAR: usize = 40;

/// The span around all others: the session, however long it lasts.
pub(super) const WHOLE: &str = "ssh";

/// What the helper daemon did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Helper {
    /// Its process, where it told.
    pub(super) pid: Option<u64>,
    /// It was not there before.
    pub(super) started: bool,
    /// It connected to the proxy anew meanwhile; else the connection was warm.
    pub(super) dialled: bool,
    /// By QUIC, with a ticket: what was asked went out in the first flight.
    pub(super) early: bool,
}

impl Helper {
    /// From what it told of itself before and after; nothing before means that it was started.
    pub(super) fn of(before: Option<&Value>, after: Option<&Value>) -> Self {
        let number = |value: Option<&Value>, key: &str| value?.get(key)?.as_u64();
        let pid = number(after, "pid").or_else(|| number(before, "pid"));
        let more = |key| number(after, key).unwrap_or(0) > number(before, key).unwrap_or(0);
        let started = before.is_none() || number(before, "pid") != pid;
        let dialled = started || more("transports_made");
        Self { pid, started, dialled, early: !started && more("transports_early") }
    }

    fn words(&self) -> String {
        let pid = self.pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        let how = match (self.started, self.dialled) {
            (true, _) => "was started for this and connected to the proxy, which is part of the phases below",
            (_, true) if self.early => {
                "connected to the proxy anew by quic (0-RTT), which is part of the phases below"
            }
            (_, true) => "connected to the proxy anew, which is part of the phases below",
            _ => "had a warm connection to the proxy: nothing was dialled",
        };
        format!("the helper daemon{pid} {how}")
    }
}

/// One connection, up to its first byte or its failure.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) trace: String,
    pub(super) destination: String,
    pub(super) phases: Vec<Phase>,
    pub(super) round_trip: Option<Duration>,
    pub(super) helper: Option<Helper>,
    pub(super) failed: Option<String>,
}

/// A phase with its place in the tree.
struct Row<'a> {
    phase: &'a Phase,
    depth: usize,
    end: Duration,
    failed: bool,
}

impl Report {
    /// The rows in the order of their beginnings, parts under what they are part of.
    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = Vec::new();
        let last = self.last_leaf();
        self.add_parts(None, 0, last, &mut rows);
        rows
    }

    /// Those that are part of `parent`, with theirs. A part comes after its parent in the list, so this ends.
    fn add_parts<'a>(
        &'a self,
        parent: Option<usize>,
        depth: usize,
        last: Option<usize>,
        rows: &mut Vec<Row<'a>>,
    ) {
        let mut parts: Vec<(usize, &Phase)> = self
            .phases
            .iter()
            .enumerate()
            .filter(|(place, phase)| phase.parent == parent && parent.is_none_or(|parent| parent < *place))
            .collect();
        parts.sort_by_key(|(place, phase)| (phase.start, *place));
        for (place, phase) in parts {
            let end = phase.end.unwrap_or_else(|| self.end());
            if phase.name == WHOLE {
                self.add_parts(Some(place), depth, last, rows);
                continue;
            }
            rows.push(Row { phase, depth, end, failed: self.failed.is_some() && last == Some(place) });
            self.add_parts(Some(place), depth + 1, last, rows);
        }
    }

    /// What a failure ended: of those without parts, the one that began last of those that ended last.
    fn last_leaf(&self) -> Option<usize> {
        let has_parts = |place: usize| self.phases.iter().any(|phase| phase.parent == Some(place));
        let leaves =
            self.phases.iter().enumerate().filter(|(place, phase)| phase.name != WHOLE && !has_parts(*place));
        leaves.max_by_key(|(_, phase)| (phase.start, phase.end)).map(|(place, _)| place)
    }

    /// When the last phase ended.
    fn end(&self) -> Duration {
        let ends = self.phases.iter().filter(|phase| phase.name != WHOLE).filter_map(|phase| phase.end);
        ends.max().unwrap_or_default()
    }

    fn round_trips(&self) -> u32 {
        let phases = self.phases.iter().filter(|phase| phase.name != WHOLE);
        phases.map(|phase| phase.after).max().unwrap_or_default()
    }

    /// One object.
    pub(super) fn json(&self) -> Value {
        let phases: Vec<Value> = self
            .rows()
            .iter()
            .map(|row| {
                let mut phase = json!({
                    "name": row.phase.name,
                    "depth": row.depth,
                    "start_ms": milliseconds(row.phase.start),
                    "duration_ms": milliseconds(row.end.saturating_sub(row.phase.start)),
                    "round_trips": row.phase.after - row.phase.before,
                });
                for (name, text) in &row.phase.notes {
                    if let Some(object) = phase.as_object_mut() {
                        object.insert(name.clone(), json!(text));
                    }
                }
                phase
            })
            .collect();
        json!({
            "trace_id": self.trace,
            "destination": self.destination,
            "phases": phases,
            "duration_ms": milliseconds(self.end()),
            "round_trips": self.round_trips(),
            "round_trip_ms": self.round_trip.map(milliseconds),
            "helper": self.helper.as_ref().map(|helper| json!({
                "pid": helper.pid, "started": helper.started, "dialled": helper.dialled,
                "early": helper.early,
            })),
            "failed": self.failed,
        })
    }

    /// A line for each phase, and what it comes to.
    pub(super) fn text(&self) -> String {
        let mut text = format!("trace {}  {}\n", self.trace, self.destination);
        if let Some(helper) = &self.helper {
            let _ = writeln!(text, "  {}", helper.words());
        }
        let rows = self.rows();
        let width = rows.iter().map(|row| row.phase.name.len() + 2 * row.depth).max().unwrap_or(0).max(5);
        let end = self.end();
        let _ = writeln!(text, "  {:width$}  start ms     took  round trips", "phase");
        for row in &rows {
            let name = format!("{:indent$}{}", "", row.phase.name, indent = 2 * row.depth);
            let took = row.end.saturating_sub(row.phase.start);
            let mut notes: Vec<String> = row.phase.notes.iter().map(|(_, text)| text.clone()).collect();
            if row.failed {
                notes.insert(0, "failed".to_owned());
            }
            let line = format!(
                "  {name:width$}  {:8.1} {:8.1}  {:11}  |{}| {}",
                milliseconds(row.phase.start),
                milliseconds(took),
                row.phase.after - row.phase.before,
                bar(row.phase.start, row.end, end),
                notes.join(", "),
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let what = if self.failed.is_some() { "failed after" } else { "first byte, or the end, after" };
        let _ = write!(text, "  {what} {:.1} ms: {} round trips", milliseconds(end), self.round_trips());
        if let Some(round_trip) = self.round_trip.filter(|round_trip| !round_trip.is_zero()) {
            let _ = write!(text, "; one takes about {:.1} ms here", milliseconds(round_trip));
            // On a quicker link, programs take the time and not the way.
            if round_trip >= TELLING {
                let times = end.as_secs_f64() / round_trip.as_secs_f64();
                let _ = write!(text, ", so that this was {times:.1} of them");
            }
        }
        text
    }
}

fn milliseconds(time: Duration) -> f64 {
    // Microseconds are what is known.
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Where a phase is in the whole.
fn bar(start: Duration, end: Duration, whole: Duration) -> String {
    let column = |time: Duration| {
        let share = if whole.is_zero() { 0.0 } else { time.as_secs_f64() / whole.as_secs_f64() };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the width")]
        let column = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
        column
    };
    let from = column(start).min(BAR - 1);
    let to = column(end).clamp(from + 1, BAR);
    format!("{:from$}{:=<width$}{:rest$}", "", "", "", width = to - from, rest = BAR - to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, parent: Option<usize>, times: (u64, u64), trips: (u32, u32)) -> Phase {
        let (start, end) = (Duration::from_millis(times.0), Some(Duration::from_millis(times.1)));
        Phase {
            name: name.to_owned(),
            parent,
            start,
            end,
            before: trips.0,
            after: trips.1,
            notes: Vec::new(),
        }
    }

    fn report() -> Report {
        let mut stream = phase("stream", Some(0), (200, 301), (2, 3));
        stream.notes.push(("node".to_owned(), "web-1".to_owned()));
        Report {
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            destination: "root@web-1".to_owned(),
            phases: vec![
                phase(WHOLE, None, (0, 90_000), (0, 70)),
                phase("dial", Some(0), (0, 100), (0, 1)),
                phase("tls", Some(0), (100, 200), (1, 2)),
                stream,
                phase("ssh.version", Some(0), (200, 400), (2, 4)),
                phase("decision", Some(3), (250, 251), (3, 3)),
            ],
            round_trip: Some(Duration::from_millis(100)),
            helper: None,
            failed: None,
        }
    }

    #[test]
    fn a_waterfall_has_a_line_for_each_phase() {
        let said = report().text();
        assert_eq!(
            said,
            "trace 4bf92f3577b34da6a3ce929d0e0e4736  root@web-1
  phase        start ms     took  round trips
  dial              0.0    100.0            1  |==========                              |
  tls             100.0    100.0            1  |          ==========                    |
  stream          200.0    101.0            1  |                    ==========          | web-1
    decision      250.0      1.0            0  |                         =              |
  ssh.version     200.0    200.0            2  |                    ====================|
  first byte, or the end, after 400.0 ms: 4 round trips; one takes about 100.0 ms here, so that this was 4.0 of them"
        );
    }

    #[test]
    fn json_has_the_same() {
        let said = report().json();
        assert_eq!(said["round_trips"], 4);
        assert_eq!(said["phases"].as_array().unwrap().len(), 5);
        assert_eq!(said["phases"][2]["node"], "web-1");
        assert_eq!(said["phases"][3]["depth"], 1);
        assert_eq!(said["round_trip_ms"], 100.0);
        assert!(said["helper"].is_null() && said["failed"].is_null());
    }

    #[test]
    fn a_failure_is_marked_where_it_happened() {
        let mut report = report();
        report.phases.truncate(3);
        report.failed = Some("not the cluster".to_owned());
        let said = report.text();
        assert!(said.contains("tls          100.0") || said.contains("| failed\n"), "{said}");
        assert!(said.contains("failed after 200.0 ms: 2 round trips"), "{said}");
        let nothing = Report { phases: Vec::new(), round_trip: None, ..report };
        assert!(nothing.text().ends_with("failed after 0.0 ms: 0 round trips"));
    }

    #[test]
    fn the_helper_says_what_it_did() {
        let told = |pid: u64, made: u64| json!({ "pid": pid, "transports_made": made });
        let warm = Helper::of(Some(&told(7, 1)), Some(&told(7, 1)));
        assert_eq!(warm, Helper { pid: Some(7), started: false, dialled: false, early: false });
        assert!(warm.words().contains("warm"));
        assert!(Helper::of(Some(&told(7, 1)), Some(&told(7, 2))).dialled);
        assert!(Helper::of(None, Some(&told(8, 1))).started);
        let early = json!({ "pid": 7, "transports_made": 2, "transports_early": 1 });
        let early = Helper::of(Some(&told(7, 1)), Some(&early));
        assert!(early.early && early.words().contains("quic (0-RTT)"));
        assert!(Helper::of(Some(&told(7, 1)), Some(&told(8, 1))).started);
    }
}
