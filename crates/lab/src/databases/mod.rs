//! Connections to PostgreSQL: through a cluster with and without its caches, straight, and through what others have.
//!
//! The published experiment is a constant number of connections at a time, each a new one with TLS that runs a simple
//! query and goes. Ways take turns, round by round.

mod bulk;
mod candidates;
mod client;
mod idle;
mod load;
mod outcome;
mod pictures;
mod settings;

use std::path::Path;

use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Csv, Report};
use sallyport_bench::{AtFile, Talk};
use sallyport_testing::floors::{self, Floor};
use sallyport_testing::postgres::Postgres;
pub use settings::Settings;

use crate::LabError;
use candidates::{Candidate, Served};
use load::{Pressure, press};
use outcome::{Outcome, Run};
use settings::SETTLE;

/// Connections before a candidate is measured: what is made once is made.
const FIRST: usize = 10;

/// Measures.
///
/// # Errors
/// When something cannot be started, or a candidate does not work.
pub fn run(program: &Path, settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let mut csv = Csv::create(settings.csv.as_deref(), "kind,way,round,number,value")?;
    let directory = tempfile::Builder::new()
        .prefix("sallyport-lab-")
        .tempdir()
        .at("make a directory in", &std::env::temp_dir())?;
    talk.say("starting PostgreSQL");
    let postgres = Postgres::start()?;
    let floors = Floor::start_all(&postgres)?;
    let (login, _) = sallyport_testing::account()?;
    let mut served = Vec::new();
    for (suites, published) in [(&settings.published, true), (&settings.suites, false)] {
        for suite in suites {
            if talk.stopping() {
                break;
            }
            let kind = if published { "the published architecture" } else { "Sallyport" };
            talk.say(format!("starting a cluster: {kind}, {}", suite.name()));
            served.push(Served::start(program, directory.path(), &login, &postgres, *suite, published)?);
        }
    }
    let mut candidates = vec![candidates::direct(&postgres)?];
    for floor in &floors {
        candidates.push(candidates::floor(&postgres, floor)?);
    }
    for served in &served {
        candidates.extend(served.candidates(&postgres)?);
    }
    for candidate in &candidates {
        talk.say(format!("first connections: {}", candidate.name));
        (0..FIRST)
            .try_for_each(|_| load::once(&candidate.route).map(drop))
            .map_err(|error| candidate.failed(&error))?;
    }
    let watch = Watch::begin();
    let mut outcomes: Vec<Outcome> = candidates.iter().map(Outcome::new).collect();
    for round in 0..settings.rounds {
        for turn in 0..candidates.len() {
            // None always goes behind the same neighbour.
            let index = (turn + round) % candidates.len();
            let (Some(candidate), Some(outcome)) = (candidates.get(index), outcomes.get_mut(index)) else {
                continue;
            };
            if talk.stopping() {
                break;
            }
            talk.say(format!("round {} of {}: {}", round + 1, settings.rounds, candidate.name));
            let full = Pressure { workers: settings.workers, seconds: settings.seconds, rate: None };
            let run = one(candidate, full, talk)?;
            run.write(&mut csv, "full", candidate, round)?;
            let capacity = run.rate;
            outcome.full.push(run);
            // Where it would not keep up, there would be a queue after all.
            if settings.rate > 0.0 && capacity > settings.rate * 1.3 && !talk.stopping() {
                let paced = Pressure { rate: Some(settings.rate), ..full };
                let run = one(candidate, paced, talk)?;
                run.write(&mut csv, "paced", candidate, round)?;
                outcome.paced.push(run);
            }
        }
    }
    if settings.copy > 0 && !talk.stopping() {
        bulk::copy(&postgres, &candidates, &mut outcomes, settings, &mut csv, talk)?;
    }
    if settings.pgbench > 0 && !talk.stopping() {
        bulk::pgbench(&postgres, &candidates, &mut outcomes, settings, &mut csv, talk)?;
    }
    if settings.idle > 0 && !talk.stopping() {
        idle::measure(&candidates, &mut outcomes, settings.idle, &mut csv, talk)?;
    }
    Ok(Report {
        conditions: conditions(&postgres, settings),
        rows: outcomes.iter().map(|outcome| outcome.row(outcomes.first())).collect(),
        aims: outcome::aims(&outcomes),
        pictures: pictures::of(&outcomes),
        ..Report::of("db-suite", &watch, talk)
    })
}

/// Presses one candidate, and gives what it cost every process.
fn one(candidate: &Candidate, pressure: Pressure, talk: &Talk) -> Result<Run, LabError> {
    std::thread::sleep(SETTLE);
    let before = candidate.spent();
    let pressed = press(&candidate.route, pressure, talk).map_err(|error| candidate.failed(&error))?;
    std::thread::sleep(SETTLE);
    Ok(Run::new(pressed, &before, &candidate.spent()))
}

fn conditions(postgres: &Postgres, settings: &Settings) -> Vec<String> {
    let mut conditions = vec![
        format!(
            "PostgreSQL {} on loopback, hostssl with a client certificate; {}",
            postgres.version,
            floors::versions().join(", ")
        ),
        format!(
            "{} connections at a time, each a new one: TLS 1.3 without resumption, startup, {}, Terminate; the time is \
             from dialling to the answer",
            settings.workers,
            load::QUERY
        ),
        "one server certificate and RSA-2048 client keys towards the database on every way, as every suite has them \
         there; HAProxy's last leg is a socket, because it cannot ask PostgreSQL for TLS"
            .to_owned(),
        "milliseconds are processor time for one connection, up to when all was recorded".to_owned(),
    ];
    if !settings.suites.is_empty() {
        conditions.push(
            "every connection through a cluster is recorded and audited; nothing is on the other ways"
                .to_owned(),
        );
    }
    if !settings.published.is_empty() {
        conditions.push(
            "published architecture: a fresh key pair and certificate for each connection, from proxy to agent and from \
             agent to database; otherwise the same programs"
                .to_owned(),
        );
    }
    if settings.rate > 0.0 {
        conditions.push(format!(
            "latencies without a queue: {} connections a second, where a way can carry that",
            settings.rate
        ));
    }
    conditions
}
