//! What came of one certificate at one server, one way of connecting: its ramp, its saturation point, and what it does there.

use std::collections::BTreeMap;

use sallyport_bench::report::{Csv, Row};
use sallyport_bench::statistics::Samples;

use super::client::Problem;
use super::press::Pressed;
use super::saturation::{self, Step};
use crate::LabError;

/// Share of its processors past which a side is busy.
const BUSY: f64 = 0.9;

/// How requests connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// A connection for each request, with a full handshake.
    New,
    /// A connection for each request, whose handshake resumes an earlier session.
    Resumed,
    /// One connection for each worker.
    Kept,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::New => "keep-alive off",
            Self::Resumed => "keep-alive off, resumed",
            Self::Kept => "keep-alive on",
        }
    }
}

/// The figures of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pub rate: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    /// Share of its processors that the generator used.
    pub client_busy: f64,
    /// Milliseconds of processor time of the generator for one request.
    pub client_ms: f64,
    /// The same of the server, where its processes are known.
    pub server_busy: Option<f64>,
    pub server_ms: Option<f64>,
    /// Share of the requests that failed.
    pub failed: f64,
    /// Share of the connections that were resumed.
    pub resumed: f64,
}

impl Run {
    /// Of so many processors each.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn new(pressed: &Pressed, generator: usize, server: usize) -> Self {
        let share =
            |seconds: f64, processors: usize| seconds / pressed.seconds.max(1e-9) / processors.max(1) as f64;
        let each = |seconds: f64| {
            // Per second on both sides: what was counted and what was paid did not last equally long to the millisecond.
            let rate = pressed.rate;
            if rate > 0.0 { seconds / pressed.seconds.max(1e-9) / rate * 1e3 } else { 0.0 }
        };
        let latency = |at| pressed.latencies.quantile(at);
        Self {
            rate: pressed.rate,
            p50: latency(0.5),
            p95: latency(0.95),
            p99: latency(0.99),
            client_busy: share(pressed.client, generator),
            client_ms: each(pressed.client),
            server_busy: pressed.server.map(|seconds| share(seconds, server)),
            server_ms: pressed.server.map(each),
            failed: pressed.failed(),
            resumed: pressed.resumed as f64 / pressed.connections.max(1) as f64,
        }
    }

    fn write(&self, csv: &mut Csv, phase: &str, case: &str, at: usize, round: usize) -> Result<(), LabError> {
        let mut figures = vec![
            ("rate", self.rate),
            ("p50_ms", self.p50),
            ("p95_ms", self.p95),
            ("p99_ms", self.p99),
            ("generator_busy", self.client_busy),
            ("generator_cpu_ms", self.client_ms),
            ("failed", self.failed),
            ("resumed", self.resumed),
        ];
        figures.extend(self.server_busy.map(|value| ("server_busy", value)));
        figures.extend(self.server_ms.map(|value| ("server_cpu_ms", value)));
        let case = case.replace(',', ";");
        let lines: Vec<String> = figures
            .into_iter()
            .map(|(name, value)| format!("{phase},{case},{at},{round},{name},{value:.5}"))
            .collect();
        Ok(csv.line(&lines.join("\n"))?)
    }
}

/// Columns of the file with every run.
pub(super) const COLUMNS: &str = "phase,what,concurrency,round,figure,value";

/// What a run belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The search for the saturation point.
    Ramp,
    /// A round at the saturation point.
    Saturation,
    /// A round by the clock.
    Paced,
}

/// All of one case.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Whether the generator has no processors of its own.
    pub shared: bool,
    /// Runs of the ramp, by requests at a time.
    ramp: BTreeMap<usize, Vec<Run>>,
    /// Whether the ramp is over.
    pub ramped: bool,
    /// Runs at the saturation point.
    pub runs: Vec<Run>,
    /// Runs by the clock, at this rate.
    pub paced: Vec<Run>,
    pub paced_rate: f64,
    /// What went wrong, over everything.
    pub problems: BTreeMap<Problem, u64>,
    /// The first of them, in words.
    pub said: Option<String>,
    /// Why it ended before its time.
    pub ended: Option<String>,
}

impl Outcome {
    /// Keeps the problems of a run.
    fn note(&mut self, pressed: &Pressed) {
        for (problem, count) in &pressed.problems {
            *self.problems.entry(*problem).or_default() += count;
        }
        if self.said.is_none() {
            self.said.clone_from(&pressed.said);
        }
    }

    /// Takes what a run gave, and writes it down.
    pub(super) fn add(
        &mut self,
        phase: Phase,
        (pressed, run): (&Pressed, Run),
        csv: &mut Csv,
        case: &str,
        at: usize,
    ) -> Result<(), LabError> {
        self.note(pressed);
        let (name, runs) = match phase {
            Phase::Ramp => ("ramp", self.ramp.entry(at).or_default()),
            // What the phase has been called in files.
            Phase::Saturation => ("knee", &mut self.runs),
            Phase::Paced => ("paced", &mut self.paced),
        };
        run.write(csv, name, case, at, runs.len())?;
        runs.push(run);
        Ok(())
    }

    /// The ramp, medians over its rounds.
    pub(super) fn steps(&self) -> Vec<Step> {
        let steps = self.ramp.iter().filter(|(_, runs)| !runs.is_empty());
        steps
            .map(|(concurrency, runs)| Step {
                concurrency: *concurrency,
                rate: over(runs, |run| run.rate).median(),
                p99: over(runs, |run| run.p99).median(),
                errors: over(runs, |run| run.failed).median(),
            })
            .collect()
    }

    /// Where the server is full.
    pub(super) fn saturation_point(&self) -> Option<Step> {
        saturation::saturation_point(&self.steps())
    }

    /// Requests a second at the saturation point, round by round.
    pub(super) fn rates(&self) -> Samples {
        over(&self.runs, |run| run.rate)
    }

    /// Whether it was the generator that could do no more.
    pub(super) fn generator_bound(&self) -> bool {
        if self.shared {
            return false;
        }
        let client = over(&self.runs, |run| run.client_busy).median();
        let server = some(&self.runs, |run| run.server_busy).median();
        !self.runs.is_empty() && client > BUSY && server < BUSY
    }

    /// Whether neither side's processors were full: others had them, or the server waited for something else.
    pub(super) fn idle(&self) -> bool {
        let client = over(&self.runs, |run| run.client_busy).median();
        let server = some(&self.runs, |run| run.server_busy);
        // Where both have the same processors, it is together that they fill them.
        let full = |server: f64| {
            if self.shared { client + server >= BUSY } else { client >= BUSY || server >= BUSY }
        };
        !server.is_empty() && !full(server.median())
    }

    /// The figures; ratios are to what took turns with it.
    pub(super) fn row(&self, name: &str, plain: Option<&Self>, rsa: Option<&Self>) -> Row {
        // A round in which nothing was answered has a rate, and nothing else; nor has one a latency in which nothing began.
        let answered: Vec<Run> =
            self.runs.iter().filter(|run| run.rate > 0.0 && run.p50 > 0.0).cloned().collect();
        let runs = answered.as_slice();
        let paced: Vec<Run> = self.paced.iter().filter(|run| run.p50 > 0.0).cloned().collect();
        let bound = if self.generator_bound() { " (generator-bound: at least)" } else { "" };
        let ratio = |base: Option<&Self>| base.and_then(|base| self.rates().ratio_to(&base.rates()));
        #[allow(clippy::cast_precision_loss, reason = "a number of connections")]
        let at = self.saturation_point().map(|point| point.concurrency as f64);
        let per_cent = |samples: Samples| samples.iter().map(|share| share * 100.0).collect::<Samples>();
        let mut row = Row::new(format!("{name}{bound}"))
            .measured("req/s", 0, &self.rates())
            .with("at a time", 0, at)
            .measured("p50 ms", 2, &over(runs, |run| run.p50))
            .measured("p95 ms", 2, &over(runs, |run| run.p95))
            .measured("p99 ms", 2, &over(runs, |run| run.p99))
            .measured("server %", 0, &per_cent(some(runs, |run| run.server_busy)))
            .measured("server ms", 3, &some(runs, |run| run.server_ms))
            .measured("generator %", 0, &per_cent(over(runs, |run| run.client_busy)))
            .measured("generator ms", 3, &over(runs, |run| run.client_ms))
            .with("paced req/s", 0, (!self.paced.is_empty()).then_some(self.paced_rate))
            .measured("paced p50 ms", 2, &over(&paced, |run| run.p50))
            .measured("paced p99 ms", 2, &over(&paced, |run| run.p99))
            .with("x plain", 2, ratio(plain))
            .with("x rsa-2048", 2, ratio(rsa));
        for problem in Problem::ALL {
            if let Some(count) = self.problems.get(&problem) {
                #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
                let count = *count as f64;
                row = row.with(problem.name(), 0, count);
            }
        }
        row
    }
}

fn over(runs: &[Run], of: impl Fn(&Run) -> f64) -> Samples {
    runs.iter().map(of).collect()
}

fn some(runs: &[Run], of: impl Fn(&Run) -> Option<f64>) -> Samples {
    runs.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pressed(rate: f64, client: f64, server: f64) -> Pressed {
        Pressed {
            latencies: (1..=100).map(f64::from).collect(),
            rate,
            client,
            server: Some(server),
            seconds: 2.0,
            connections: 4,
            resumed: 3,
            ..Pressed::default()
        }
    }

    #[test]
    fn costs_are_for_one_request_and_shares_of_ones_own_processors() {
        let run = Run::new(&pressed(1000.0, 1.0, 2.0), 1, 2);
        assert_eq!((run.client_busy, run.server_busy), (0.5, Some(0.5)));
        assert_eq!((run.client_ms, run.server_ms), (0.5, Some(1.0)));
        assert_eq!((run.p50, run.p95, run.p99, run.resumed), (51.0, 95.0, 99.0, 0.75));
    }

    #[test]
    fn a_generator_that_could_do_no_more_is_named() {
        let mut csv = Csv::create(None, COLUMNS).unwrap();
        let mut row = |client, server| {
            let mut outcome = Outcome::default();
            let pressed = pressed(100.0, client, server);
            let run = Run::new(&pressed, 1, 1);
            outcome.add(Phase::Ramp, (&pressed, run.clone()), &mut csv, "x", 1).unwrap();
            outcome.add(Phase::Saturation, (&pressed, run), &mut csv, "x", 1).unwrap();
            outcome.row("x", Some(&outcome), None)
        };
        assert_eq!(row(1.95, 0.5).what, "x (generator-bound: at least)");
        assert_eq!(row(1.95, 1.95).what, "x");
        let row = row(0.5, 1.95);
        assert_eq!(
            (row.what.as_str(), row.figure("x plain"), row.figure("at a time")),
            ("x", Some(1.0), Some(1.0))
        );
    }
}
