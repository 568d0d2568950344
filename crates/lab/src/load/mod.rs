//! Requests a second and their latencies, for each certificate that a server may show, with keep-alive and without, and
//! without TLS.
//!
//! The generator is ours and runs on processors of its own where there are several. For each case it finds the saturation point:
//! more and more requests at a time until the rate grows no more. There it measures, in turns with the other cases; and
//! at a part of that rate by a clock, where latencies begin when a request was due.

pub mod address;
mod bench;
mod case;
mod client;
mod cores;
mod danger;
pub mod http;
mod nginx;
mod outcome;
mod own;
mod page;
mod press;
pub mod saturation;
mod settings;
mod target;

use std::path::Path;
use std::time::Instant;

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Csv, Report};
use sallyport_sal::KeyAlgorithm;

pub use address::Consent;
pub use client::Problem;
pub use settings::{Server, Settings};

use crate::LabError;
use bench::{Bench, PACED_WORKERS, Started};
use case::PLAIN;
use cores::Cores;
use press::Ceiling;

/// Files that are open besides connections.
const DESCRIPTORS_ELSE: u64 = 200;

/// Measures. `program` is the `sallyport` whose clusters are measured.
///
/// # Errors
/// When a server cannot be started or does not answer one request, or a URL is not to be pressed.
pub fn run(program: &Path, settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let cores = Cores::split(settings.apart, settings.generator)?;
    let mut bench = Bench {
        settings,
        cores: &cores,
        talk,
        ceiling: settings.consent.max_rate.map(Ceiling::new),
        began: Instant::now(),
        expected: settings.budget,
    };
    let descriptors = (settings.most * PACED_WORKERS) as u64 + DESCRIPTORS_ELSE;
    let possible = crate::sessions::raise_descriptors(descriptors);
    if possible < descriptors {
        talk.say(format!(
            "{descriptors} open files may be needed and the limit is {possible}: raise it with ulimit -n"
        ));
    }
    let mut csv = Csv::create(settings.csv.as_deref(), outcome::COLUMNS)?;
    let mut started = Started::default();
    let mut cases = bench.cases(program, &mut started)?;
    for case in &mut cases {
        // A server that the lab did not start may be on any processor.
        case.outcome.shared = !bench.cores.apart() || !case.ours;
        bench.first(case)?;
    }
    bench.expect(cases.len());
    let watch = Watch::begin();
    bench.ramp(&mut cases, &mut csv)?;
    bench.saturated(&mut cases, &mut csv)?;
    bench.paced(&mut cases, &mut csv)?;
    let mut report = Report::of("load", &watch, talk);
    report.conditions = bench.conditions(&started);
    report.rows = cases
        .iter()
        .filter(|case| !case.outcome.runs.is_empty())
        .map(|case| {
            let rsa = KeyAlgorithm::Rsa2048.to_string();
            case.outcome.row(&case.name(), case.beside(&cases, PLAIN), case.beside(&cases, &rsa))
        })
        .collect();
    report.notes = page::notes(&cases);
    if bench.over(1.0) && !talk.stopping() {
        report.notes.push(format!(
            "the budget of {} s was used up: some rounds are missing; --budget gives it more",
            settings.budget.as_secs()
        ));
    }
    report.pictures = page::pictures(&cases);
    if report.rows.is_empty() && !talk.stopping() {
        let said = cases.iter().find_map(|case| case.outcome.said.clone());
        return Err(LabError::Connection(said.unwrap_or_else(|| "nothing could be measured".to_owned())));
    }
    Ok(report)
}
