//! Connections to PostgreSQL: through a cluster with and without its caches, straight, and through what others have.
//!
//! The published experiment is a constant number of connections at a time, each a new one with TLS that runs a simple
//! query and goes. Ways take turns, round by round.

mod bulk;
mod client;
mod idle;
mod load;
mod outcome;
mod pictures;
mod ways;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Csv, Report};
use sallyport_bench::{AtFile, Talk};
use sallyport_sal::Suite;

use crate::LabError;
use crate::rig::floors::{self, Floor};
use crate::rig::postgres::Postgres;
use load::{Pressure, press};
use outcome::{Outcome, Run};
use ways::{Kind, Served, Way};

/// How long services have to finish what connections left them to do: events and recordings on their way, backends to
/// be reaped.
const SETTLE: Duration = Duration::from_millis(1500);
/// Connections before a way is measured: what is made once is made.
const FIRST: usize = 10;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rounds; each presses once every way.
    pub rounds: usize,
    /// How long one way is pressed in one round.
    pub seconds: f64,
    /// Connections at a time.
    pub workers: usize,
    /// Connections a second for latencies without a queue, all workers together; 0 leaves that out.
    pub rate: f64,
    /// Suites of the clusters.
    pub suites: Vec<Suite>,
    /// Suites in which the published architecture is measured.
    pub published: Vec<Suite>,
    /// Sessions that stand idle, for memory; 0 leaves that out.
    pub idle: usize,
    /// MiB of a COPY; 0 leaves that out.
    pub copy: u64,
    /// Seconds of a run of pgbench; 0 leaves that out.
    pub pgbench: u64,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let all = Self {
            rounds: 3,
            seconds: 10.0,
            workers: 10,
            rate: 40.0,
            suites: vec![Suite::Legacy, Suite::BalancedV1, Suite::FipsV1, Suite::PqV1],
            published: vec![Suite::Legacy, Suite::BalancedV1],
            idle: 500,
            copy: 512,
            pgbench: 10,
            csv: None,
        };
        let one = vec![Suite::BalancedV1];
        if quick {
            Self {
                rounds: 1,
                seconds: 1.0,
                suites: one.clone(),
                published: one,
                idle: 20,
                copy: 16,
                pgbench: 1,
                ..all
            }
        } else {
            all
        }
    }
}

/// Measures.
///
/// # Errors
/// When something cannot be started, or a way does not work.
pub fn run(program: &Path, settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let mut csv = Csv::create(settings.csv.as_deref(), "kind,way,round,number,value")?;
    let directory = tempfile::Builder::new()
        .prefix("sallyport-lab-")
        .tempdir()
        .at("make a directory in", &std::env::temp_dir())?;
    talk.say("starting PostgreSQL");
    let postgres = Postgres::start()?;
    let floors = Floor::start_all(&postgres)?;
    let (login, _) = crate::rig::account()?;
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
    let mut ways = vec![ways::direct(&postgres)?];
    for floor in &floors {
        ways.push(ways::floor(&postgres, floor)?);
    }
    for served in &served {
        ways.extend(served.ways(&postgres)?);
    }
    for way in &ways {
        talk.say(format!("first connections: {}", way.name));
        (0..FIRST).try_for_each(|_| load::once(&way.route).map(drop)).map_err(|error| on(way, &error))?;
    }
    let watch = Watch::begin();
    let mut outcomes: Vec<Outcome> = ways.iter().map(Outcome::new).collect();
    for round in 0..settings.rounds {
        for turn in 0..ways.len() {
            // Nobody always goes behind the same neighbour.
            let index = (turn + round) % ways.len();
            let (Some(way), Some(outcome)) = (ways.get(index), outcomes.get_mut(index)) else { continue };
            if talk.stopping() {
                break;
            }
            talk.say(format!("round {} of {}: {}", round + 1, settings.rounds, way.name));
            let full = Pressure { workers: settings.workers, seconds: settings.seconds, rate: None };
            let run = one(way, full, talk)?;
            run.write(&mut csv, "full", way, round)?;
            let capacity = run.rate;
            outcome.full.push(run);
            // Where it would not keep up, there would be a queue after all.
            if settings.rate > 0.0 && capacity > settings.rate * 1.3 && !talk.stopping() {
                let paced = Pressure { rate: Some(settings.rate), ..full };
                let run = one(way, paced, talk)?;
                run.write(&mut csv, "paced", way, round)?;
                outcome.paced.push(run);
            }
        }
    }
    if settings.copy > 0 && !talk.stopping() {
        bulk::copy(&postgres, &ways, &mut outcomes, settings, &mut csv, talk)?;
    }
    if settings.pgbench > 0 && !talk.stopping() {
        bulk::pgbench(&postgres, &ways, &mut outcomes, settings, &mut csv, talk)?;
    }
    if settings.idle > 0 && !talk.stopping() {
        idle::measure(&ways, &mut outcomes, settings.idle, &mut csv, talk)?;
    }
    Ok(Report {
        conditions: conditions(&postgres, settings),
        rows: outcomes.iter().map(|outcome| outcome.row(outcomes.first())).collect(),
        aims: outcome::aims(&outcomes),
        pictures: pictures::of(&outcomes),
        ..Report::of("db-suite", &watch, talk)
    })
}

/// Presses one way, and gives what it cost everybody.
fn one(way: &Way, pressure: Pressure, talk: &Talk) -> Result<Run, LabError> {
    std::thread::sleep(SETTLE);
    let before = way.spent();
    let pressed = press(&way.route, pressure, talk).map_err(|error| on(way, &error))?;
    std::thread::sleep(SETTLE);
    Ok(Run::new(pressed, &before, &way.spent()))
}

fn on(way: &Way, error: &dyn std::fmt::Display) -> LabError {
    LabError::Failed { what: way.name.clone(), said: error.to_string() }
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

/// Whether a way is one of ours as it is.
fn is_own(kind: Kind) -> bool {
    matches!(kind, Kind::Native | Kind::Warm)
}
