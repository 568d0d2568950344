//! What came of a candidate, put into figures, and those held against the aims.

use std::time::Duration;

use sallyport_bench::report::{Aim, Csv, Row};
use sallyport_bench::statistics::Samples;
use sallyport_sal::Suite;

use super::candidates::{Candidate, Kind, Service, Spent};
use super::load::Pressed;
use crate::LabError;

/// One candidate, pressed once.
#[derive(Debug)]
pub(super) struct Run {
    /// Milliseconds.
    pub latencies: Samples,
    /// Connections a second.
    pub rate: f64,
    seconds: f64,
    /// Milliseconds of processor time for one connection, by service.
    costs: Vec<(Service, f64)>,
    /// Keys for one connection, and the milliseconds that went into them.
    keys: (f64, f64),
}

impl Run {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn new(pressed: Pressed, before: &Spent, after: &Spent) -> Self {
        let count = pressed.latencies.len().max(1) as f64;
        let each = |time: Duration| time.as_secs_f64() * 1e3 / count;
        let (keys, key_time) = after.keys_since(before);
        Self {
            rate: pressed.rate(),
            seconds: pressed.seconds,
            costs: Service::ALL
                .into_iter()
                .filter_map(|service| Some((service, each(after.since(before, service)?))))
                .collect(),
            keys: (keys as f64 / count, each(key_time)),
            latencies: pressed.latencies,
        }
    }

    fn cost(&self, service: Service) -> Option<f64> {
        self.costs.iter().find(|(one, _)| *one == service).map(|(_, cost)| *cost)
    }

    /// Every sample, and the sums.
    pub(super) fn write(
        &self,
        csv: &mut Csv,
        pressure: &str,
        candidate: &Candidate,
        round: usize,
    ) -> Result<(), LabError> {
        // Names have commas.
        let name = candidate.name.replace(',', "");
        let mut lines: Vec<String> = self
            .latencies
            .iter()
            .enumerate()
            .map(|(number, time)| format!("{pressure}_ms,{name},{round},{number},{time:.3}"))
            .collect();
        lines.push(format!("{pressure}_rate,{name},{round},0,{:.2}", self.rate));
        lines.push(format!("{pressure}_seconds,{name},{round},0,{:.3}", self.seconds));
        for (service, cost) in &self.costs {
            lines.push(format!("{pressure}_cpu_{},{name},{round},0,{cost:.4}", service.name()));
        }
        lines.push(format!("{pressure}_keys,{name},{round},0,{:.4}", self.keys.0));
        lines.push(format!("{pressure}_key_cpu,{name},{round},0,{:.4}", self.keys.1));
        Ok(csv.line(&lines.join("\n"))?)
    }
}

/// All of one candidate.
#[derive(Debug)]
pub(super) struct Outcome {
    pub name: String,
    pub kind: Kind,
    pub suite: Option<Suite>,
    /// As fast as connections end.
    pub full: Vec<Run>,
    /// At a rate that leaves room.
    pub paced: Vec<Run>,
    /// MiB a second of COPY out and in, round by round.
    pub copies: [Samples; 2],
    /// Seconds of processor time of proxy and agent for a GiB of COPY.
    pub copy_cost: Option<f64>,
    /// Transactions a second.
    pub transactions: Samples,
    /// KiB of proxy and agent for an idle session.
    pub memory: Option<[f64; 2]>,
}

impl Outcome {
    pub(super) fn new(candidate: &Candidate) -> Self {
        Self {
            name: candidate.name.clone(),
            kind: candidate.kind,
            suite: candidate.suite,
            full: Vec::new(),
            paced: Vec::new(),
            copies: Default::default(),
            copy_cost: None,
            transactions: Samples::default(),
            memory: None,
        }
    }

    /// The median of something over the rounds; none when there is none.
    fn over(runs: &[Run], of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let samples: Samples = runs.iter().filter_map(of).collect();
        (!samples.is_empty()).then(|| samples.median())
    }

    /// Connections a second.
    pub(super) fn rate(&self) -> Option<f64> {
        Self::over(&self.full, |run| Some(run.rate))
    }

    /// A latency at full load, in milliseconds.
    pub(super) fn latency(&self, share: f64) -> Option<f64> {
        Self::over(&self.full, |run| Some(run.latencies.quantile(share)))
    }

    /// The same without a queue.
    pub(super) fn paced_latency(&self, share: f64) -> Option<f64> {
        Self::over(&self.paced, |run| Some(run.latencies.quantile(share)))
    }

    /// Milliseconds of processor time for a connection.
    pub(super) fn cost(&self, service: Service) -> Option<f64> {
        Self::over(&self.full, |run| run.cost(service))
    }

    /// Per cent of one processor at full load.
    fn share(&self, service: Service) -> Option<f64> {
        Self::over(&self.full, |run| Some(run.cost(service)? * run.rate / 10.0))
    }

    /// The figures.
    pub(super) fn row(&self, direct: Option<&Self>) -> Row {
        let clustered = self.suite.is_some();
        let keys = |of: fn(&Run) -> f64| Self::over(&self.full, |run| Some(of(run))).filter(|_| clustered);
        let ratio = |mine: Option<f64>, theirs: Option<f64>| {
            mine.zip(theirs).filter(|(_, theirs)| *theirs > 0.0).map(|(mine, theirs)| mine / theirs)
        };
        let some = |samples: &Samples| (!samples.is_empty()).then(|| samples.median());
        let [out, into] = &self.copies;
        Row::new(&self.name)
            .with("conn/s", 0, self.rate())
            .with("p50 ms", 2, self.latency(0.5))
            .with("p95 ms", 2, self.latency(0.95))
            .with("p99 ms", 2, self.latency(0.99))
            .with("paced p50 ms", 2, self.paced_latency(0.5))
            .with("paced p99 ms", 2, self.paced_latency(0.99))
            .with(
                "paced x direct",
                2,
                ratio(self.paced_latency(0.5), direct.and_then(|direct| direct.paced_latency(0.5))),
            )
            .with("proxy ms", 2, self.cost(Service::Proxy))
            .with("agent ms", 2, self.cost(Service::Agent))
            .with("authority ms", 2, self.cost(Service::Authority))
            .with("terminator ms", 2, self.cost(Service::Terminator))
            .with("tunnel ms", 2, self.cost(Service::Tunnel))
            .with("postgres ms", 2, self.cost(Service::Postgres))
            .with("client ms", 2, self.cost(Service::Client))
            .with("proxy %", 0, self.share(Service::Proxy))
            .with("agent %", 0, self.share(Service::Agent))
            .with("keys/conn", 2, keys(|run| run.keys.0))
            .with("key ms/conn", 2, keys(|run| run.keys.1))
            .with("copy out MiB/s", 0, some(out))
            .with("copy in MiB/s", 0, some(into))
            .with("copy s/GiB", 2, self.copy_cost)
            .with("pgbench tps", 0, some(&self.transactions))
            .with("proxy KiB", 1, self.memory.map(|[proxy, _]| proxy))
            .with("agent KiB", 1, self.memory.map(|[_, agent]| agent))
    }
}

/// What was aimed at.
pub(super) fn aims(outcomes: &[Outcome]) -> Vec<Aim> {
    let find =
        |kind, suite| outcomes.iter().find(|outcome| outcome.kind == kind && outcome.suite == Some(suite));
    let proxy = |kind, suite| find(kind, suite).and_then(|outcome| outcome.cost(Service::Proxy));
    let direct = outcomes.iter().find(|outcome| outcome.kind == Kind::Direct);
    let mut aims = Vec::new();
    let published = proxy(Kind::Published, Suite::BalancedV1);
    if let Some((old, new)) = proxy(Kind::Published, Suite::Legacy).zip(published) {
        aims.push(Aim::at_least(
            "published architecture: processor time of the proxy saved by balanced-v1 over legacy",
            (1.0 - new / old.max(1e-9)) * 100.0,
            77.0,
            "%",
        ));
    }
    for (kind, name) in [(Kind::Native, "sallyport"), (Kind::Warm, "sallyport, warm transport")] {
        if let Some((theirs, ours)) = published.zip(proxy(kind, Suite::BalancedV1)) {
            aims.push(Aim::at_least(
                &format!("{name}, balanced-v1: cheaper at the proxy than the published architecture"),
                theirs / ours.max(1e-9),
                10.0,
                "x",
            ));
        }
        let costs: Vec<f64> = outcomes
            .iter()
            .filter(|outcome| outcome.kind == kind)
            .filter_map(|outcome| outcome.cost(Service::Proxy))
            .collect();
        let most = costs.iter().copied().fold(0.0, f64::max);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        if costs.len() > 1 {
            aims.push(Aim::at_most(
                &format!("{name}: the dearest suite at the proxy over the cheapest"),
                most / least.max(1e-9),
                1.5,
                "x",
            ));
        }
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.kind.is_own()) {
        let name = &outcome.name;
        if let Some(rate) = outcome.rate() {
            aims.push(Aim::at_least(&format!("{name}: recorded connections"), rate, 400.0, "a second"));
        }
        let base = direct.and_then(|direct| direct.paced_latency(0.5));
        if let Some((ours, theirs)) = outcome.paced_latency(0.5).zip(base) {
            aims.push(Aim::at_most(
                &format!("{name}: latency without a queue, p50"),
                ours / theirs.max(1e-9),
                1.2,
                "x direct",
            ));
        }
        let bulk: [fn(&Outcome) -> &Samples; 3] =
            [|outcome| &outcome.copies[0], |outcome| &outcome.copies[1], |outcome| &outcome.transactions];
        for (what, of) in ["COPY out", "COPY in", "pgbench"].into_iter().zip(bulk) {
            if let Some(ratio) = direct.and_then(|direct| of(outcome).ratio_to(of(direct))) {
                aims.push(Aim::at_least(&format!("{name}: {what}"), ratio, 0.9, "x direct"));
            }
        }
        if let Some([proxy, agent]) = outcome.memory {
            aims.push(Aim::at_most(
                &format!("{name}: memory of proxy and agent for an idle session"),
                proxy + agent,
                100.0,
                "KiB",
            ));
        }
    }
    aims
}
