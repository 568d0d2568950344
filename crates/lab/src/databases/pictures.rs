//! The figures as pictures: a group of bars for each of them.

use sallyport_bench::plot::{Bar, Bars};
use sallyport_bench::report::Picture;

use super::candidates::{Kind, Service};
use super::outcome::Outcome;

/// What the colours mean.
const KINDS: &[(Kind, &str)] = &[
    (Kind::Native, "Sallyport"),
    (Kind::Published, "published architecture"),
    (Kind::Warm, "Sallyport, warm transport"),
    (Kind::Floor, "TLS ended and begun again"),
    (Kind::Direct, "direct"),
];

/// One picture.
struct Chart {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    of: fn(&Outcome) -> Option<f64>,
}

const CHARTS: &[Chart] = &[
    Chart {
        name: "db-proxy",
        title: "Processor time of the proxy (or of what stands in its place) for one connection",
        unit: "ms",
        of: |outcome| outcome.cost(Service::Proxy).or_else(|| outcome.cost(Service::Terminator)),
    },
    Chart {
        name: "db-agent",
        title: "Processor time of the agent for one connection",
        unit: "ms",
        of: |outcome| outcome.cost(Service::Agent),
    },
    Chart {
        name: "db-rate",
        title: "Connections to PostgreSQL at full load",
        unit: "connections a second",
        of: Outcome::rate,
    },
    Chart {
        name: "db-p50",
        title: "Latency at full load, p50",
        unit: "ms",
        of: |outcome| outcome.latency(0.5),
    },
    Chart {
        name: "db-p99",
        title: "Latency at full load, p99",
        unit: "ms",
        of: |outcome| outcome.latency(0.99),
    },
    Chart {
        name: "db-paced",
        title: "Latency without a queue, p50",
        unit: "ms",
        of: |outcome| outcome.paced_latency(0.5),
    },
];

/// Those for which there are figures.
pub(super) fn of(outcomes: &[Outcome]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for chart in CHARTS {
        let bar = |outcome: &Outcome| {
            let series = KINDS.iter().position(|(kind, _)| *kind == outcome.kind).unwrap_or_default();
            Some(Bar::new(outcome.name.clone(), (chart.of)(outcome)?).series(series))
        };
        let bars: Vec<Bar> = outcomes.iter().filter_map(bar).collect();
        if bars.is_empty() {
            continue;
        }
        let drawn = Bars::new(chart.title, chart.unit).logarithmic();
        let svg = drawn.legend(KINDS.iter().map(|(_, name)| *name)).group("", bars).svg();
        pictures.push(Picture { name: chart.name.to_owned(), title: chart.title.to_owned(), svg });
    }
    pictures
}
