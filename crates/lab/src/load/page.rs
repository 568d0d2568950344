//! What is concluded, in words and in pictures.

use sallyport_bench::plot::{Bar, Bars, Lines};
use sallyport_bench::report::Picture;

use super::case::{Case, PLAIN};
use super::client::Problem;
use super::outcome::Mode;

/// The published case: requests a second of nginx on eight cores, all busy, by a remote service of load, in 2015.
const PUBLISHED: [(&str, f64); 3] = [(PLAIN, 1380.0), ("rsa-2048", 730.0), ("rsa-4096", 200.0)];
/// Where it was published.
const SOURCE: &str = "https://blog.nytsoi.net/2015/11/02/nginx-https-performance";

/// What there is to say about the figures.
pub(super) fn notes(cases: &[Case]) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(published(cases));
    let idle: Vec<String> =
        cases.iter().filter(|case| case.ours && case.outcome.idle()).map(Case::name).collect();
    if !idle.is_empty() {
        notes.push(format!(
            "neither the server's processors nor the generator's were full at the saturation point of {}: other programs had them, or \
             a side waited for the other; the rate is then no property of the server, its processor time still is",
            idle.join("; ")
        ));
    }
    for case in cases {
        let (name, outcome) = (case.name(), &case.outcome);
        if outcome.generator_bound() {
            notes.push(format!(
                "{name}: generator-bound: at least {:.0} requests/s; the generator's processors were full and the server's \
                 were not, so ratios to it are bounds too",
                outcome.rates().median()
            ));
        }
        if let Some(ended) = &outcome.ended {
            notes.push(format!("{name}: {ended}"));
        }
        if !outcome.problems.is_empty() {
            let counts: Vec<String> = Problem::ALL
                .iter()
                .filter_map(|problem| Some(format!("{} {}", outcome.problems.get(problem)?, problem.name())))
                .collect();
            let first = outcome.said.as_deref().unwrap_or_default();
            notes.push(format!("{name}: {}; the first: {first}", counts.join(", ")));
        }
        if case.target.leaves_open() {
            notes.push(format!(
                "{name}: the server left connections open that it was asked to close; they were reset after the answer, \
                 which costs the server a little less than closing them"
            ));
        }
        let resumed = outcome.runs.iter().map(|run| run.resumed).fold(1.0, f64::min);
        if case.mode == Mode::Resumed && !outcome.runs.is_empty() && resumed < 0.95 {
            notes.push(format!("{name}: only {:.0} % of the connections were resumed", resumed * 100.0));
        }
        let steps = outcome.steps();
        if let (Some(point), Some(last)) = (outcome.saturation_point(), steps.last())
            && point.concurrency == last.concurrency
            && !outcome.ramped
        {
            notes.push(format!(
                "{name}: the rate was still growing at {} at a time, where the ramp ended",
                last.concurrency
            ));
        }
    }
    notes
}

/// Ours beside the published case, where nginx was measured so.
fn published(cases: &[Case]) -> Option<String> {
    let rate = |certificate: &str| {
        let case = cases.iter().find(|case| {
            case.server == "nginx" && case.mode == Mode::New && case.certificate == certificate
        })?;
        let rate = case.outcome.rates().median();
        (rate > 0.0).then_some((rate, case.outcome.generator_bound()))
    };
    let ours: Vec<(f64, bool)> = PUBLISHED.iter().filter_map(|(name, _)| rate(name)).collect();
    let [plain, rsa_2048, rsa_4096] = ours.as_slice() else { return None };
    let bound = |(_, bound): &(f64, bool)| if *bound { "at least " } else { "" };
    Some(format!(
        "published ({SOURCE}, nginx, 8 cores all busy, a remote load service, no keep-alive): 1,380 plain, 730 with \
         RSA-2048, 200 with RSA-4096, as 6.9 : 3.7 : 1; here {}{:.0}, {}{:.0} and {}{:.0}, as {}{:.1} : {:.1} : 1. What \
         differs: the load came over a network from elsewhere and comes over loopback now, which makes a plain request \
         cheaper; another CPU and nine years of faster RSA; TLS 1.2 with its own page, TLS 1.3 with a small one now; and \
         the cores (see what is held the same)",
        bound(plain),
        plain.0,
        bound(rsa_2048),
        rsa_2048.0,
        bound(rsa_4096),
        rsa_4096.0,
        bound(plain),
        plain.0 / rsa_4096.0,
        rsa_2048.0 / rsa_4096.0,
    ))
}

/// Rates by certificate, and the ramp with its saturation points.
pub(super) fn pictures(cases: &[Case]) -> Vec<Picture> {
    let measured: Vec<&Case> = cases.iter().filter(|case| !case.outcome.runs.is_empty()).collect();
    if measured.is_empty() {
        return Vec::new();
    }
    let mut bars = Bars::new("Requests a second at the saturation point", "requests/s").logarithmic();
    let mut servers: Vec<&str> = measured.iter().map(|case| case.server.as_str()).collect();
    servers.dedup();
    for server in servers {
        for mode in [Mode::New, Mode::Resumed, Mode::Kept] {
            let group: Vec<Bar> = measured
                .iter()
                .filter(|case| case.server == server && case.mode == mode)
                .map(|case| {
                    let rates = case.outcome.rates();
                    let label =
                        if case.certificate.is_empty() { "its own" } else { case.certificate.as_str() };
                    let mut bar = Bar::new(label, rates.median());
                    if let Some((low, high)) = rates.interval() {
                        bar = bar.interval(low, high);
                    }
                    if case.outcome.generator_bound() { bar.note("at least") } else { bar }
                })
                .collect();
            if !group.is_empty() {
                bars = bars.group(format!("{server}, {}", mode.name()), group);
            }
        }
    }
    let mut rates =
        Lines::new("Rate by requests at a time", "at a time", "requests/s").logarithmic_x().logarithmic_y();
    let mut slow =
        Lines::new("Slow end by requests at a time", "at a time", "p99, ms").logarithmic_x().logarithmic_y();
    for case in measured {
        let steps = case.outcome.steps();
        #[allow(clippy::cast_precision_loss, reason = "a number of connections")]
        let at = |concurrency: usize| concurrency as f64;
        rates =
            rates.series(case.name(), steps.iter().map(|step| (at(step.concurrency), step.rate)).collect());
        slow = slow.series(case.name(), steps.iter().map(|step| (at(step.concurrency), step.p99)).collect());
        if let Some(point) = case.outcome.saturation_point() {
            rates = rates.mark(at(point.concurrency), point.rate, "saturation");
            slow = slow.mark(at(point.concurrency), point.p99, "saturation");
        }
    }
    let picture =
        |name: &str, title: &str, svg| Picture { name: name.to_owned(), title: title.to_owned(), svg };
    vec![
        picture("load-rates", "Requests a second at the saturation point, by certificate", bars.svg()),
        picture("load-ramp", "The ramp: requests a second, with the saturation point", rates.svg()),
        picture(
            "load-slow",
            "The ramp: 99th percentile of the latencies, with the saturation point",
            slow.svg(),
        ),
    ]
}
