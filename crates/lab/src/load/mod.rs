//! Requests a second and their latencies, for each certificate that a server may show, with keep-alive and without, and
//! without TLS.
//!
//! The generator is ours and runs on processors of its own where there are several. For each case it finds the knee:
//! more and more requests at a time until the rate grows no more. There it measures, in turns with the other cases; and
//! at a part of that rate by a clock, where latencies begin when a request was due.

pub mod address;
mod bench;
mod client;
mod cores;
mod danger;
pub mod http;
pub mod knee;
mod nginx;
mod outcome;
mod own;
mod page;
mod press;
mod target;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Csv, Report};
use sallyport_sal::{KeyAlgorithm, Suite};

pub use address::Consent;
pub use client::Problem;

use crate::LabError;
use bench::Bench;
use client::Target;
use cores::Cores;
use nginx::Nginx;
use outcome::{Mode, Outcome};
use own::Own;
use press::Ceiling;

/// Workers of the paced load for each request at a time at the knee: enough that a request which is due finds one.
const PACED_WORKERS: usize = 4;
/// Files that are open besides connections.
const DESCRIPTORS_ELSE: u64 = 200;

/// A server under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// The machine's nginx, configured and started by the lab.
    Nginx,
    /// The proxy of a cluster of this suite, started by the lab.
    Own(Suite),
    /// Whatever is at this URL.
    Url(String),
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whom.
    pub servers: Vec<Server>,
    /// Keys of nginx's certificates.
    pub keys: Vec<KeyAlgorithm>,
    /// Those of them that are measured with keep-alive too: there the certificate plays no part after the first request.
    pub kept: Vec<KeyAlgorithm>,
    /// Whether a new connection for each request is measured.
    pub new_connections: bool,
    /// Whether connections that go on are measured.
    pub keep_alive: bool,
    /// Whether plain HTTP is measured with keep-alive too.
    pub kept_plain: bool,
    /// Whether new connections that resume TLS are measured besides.
    pub resume: bool,
    /// Bytes of nginx's page.
    pub page_bytes: usize,
    /// Rounds of each step of the ramp.
    pub ramp_rounds: usize,
    /// Rounds at the knee.
    pub rounds: usize,
    /// Rounds by the clock; 0 leaves that out.
    pub paced_rounds: usize,
    /// What is not counted before every run.
    pub warm_up: Duration,
    /// What is counted in a step of the ramp.
    pub ramp: Duration,
    /// What is counted in a round at the knee.
    pub length: Duration,
    /// What is counted in a round by the clock.
    pub paced: Duration,
    /// Requests a second by the clock; none: half of the rate at the knee.
    pub rate: Option<f64>,
    /// Most requests at a time.
    pub most: usize,
    /// Longest that a request may take.
    pub patience: Duration,
    /// After so long it ends by itself, with what there is.
    pub budget: Duration,
    /// Whether the generator has processors of its own.
    pub apart: bool,
    /// How many; none: half of them.
    pub generator: Option<usize>,
    /// Whether certificates of named URLs are taken whatever they are.
    pub insecure: bool,
    /// Authorities to trust for named URLs, PEM; none: the system's.
    pub authority: Option<PathBuf>,
    /// What was said about URLs that are not on loopback.
    pub consent: Consent,
    /// Where every run goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// Less than a minute: nginx with RSA-2048, RSA-4096, P-256 and without TLS.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            servers: vec![Server::Nginx],
            keys: vec![KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa4096, KeyAlgorithm::EcdsaP256],
            kept: vec![KeyAlgorithm::Rsa2048],
            new_connections: true,
            keep_alive: true,
            kept_plain: false,
            resume: false,
            page_bytes: 612,
            ramp_rounds: 1,
            rounds: 5,
            paced_rounds: 1,
            warm_up: Duration::from_millis(100),
            ramp: Duration::from_millis(400),
            length: Duration::from_millis(800),
            paced: Duration::from_millis(1000),
            rate: None,
            most: 256,
            patience: Duration::from_secs(5),
            budget: Duration::from_secs(45),
            apart: true,
            generator: None,
            insecure: false,
            authority: None,
            consent: Consent::default(),
            csv: None,
        }
    }

    /// About ten minutes: every certificate, with keep-alive and without; nginx and clusters.
    #[must_use]
    pub fn full() -> Self {
        let keys = vec![
            KeyAlgorithm::Rsa2048,
            KeyAlgorithm::Rsa3072,
            KeyAlgorithm::Rsa4096,
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::Ed25519,
        ];
        Self {
            servers: vec![Server::Nginx, Server::Own(Suite::Legacy), Server::Own(Suite::BalancedV1)],
            kept: keys.clone(),
            keys,
            kept_plain: true,
            ramp_rounds: 3,
            rounds: 7,
            paced_rounds: 2,
            warm_up: Duration::from_millis(300),
            ramp: Duration::from_millis(700),
            length: Duration::from_millis(1500),
            paced: Duration::from_millis(2500),
            budget: Duration::from_secs(900),
            ..Self::quick()
        }
    }
}

/// One server, one certificate, one way of connecting.
#[derive(Debug)]
struct Case {
    server: String,
    /// The type of key, `plain` without TLS; empty where only the server knows.
    certificate: String,
    mode: Mode,
    target: Target,
    /// Processes that answer, as far as they are known.
    processes: Vec<u32>,
    /// Whether the lab started it, and so knows where it runs.
    ours: bool,
    ceiling: bool,
    /// How long a request took, at first or since: the longest median.
    takes: Duration,
    outcome: Outcome,
}

impl Case {
    fn name(&self) -> String {
        let parts = [self.server.as_str(), self.certificate.as_str(), self.mode.name()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// What has the same server and mode, with another certificate.
    fn beside<'a>(&self, cases: &'a [Self], certificate: &str) -> Option<&'a Outcome> {
        let mode = if certificate == PLAIN && self.mode == Mode::Resumed { Mode::New } else { self.mode };
        cases
            .iter()
            .find(|case| case.server == self.server && case.mode == mode && case.certificate == certificate)
            .map(|case| &case.outcome)
    }
}

const PLAIN: &str = "plain";

/// What has been started; ends with this value.
#[derive(Default)]
struct Started {
    nginx: Option<Nginx>,
    own: Vec<Own>,
}

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
        // What somebody else runs may be on any processor.
        case.outcome.shared = !bench.cores.apart() || !case.ours;
        bench.first(case)?;
    }
    bench.expect(cases.len());
    let watch = Watch::begin();
    bench.ramp(&mut cases, &mut csv)?;
    bench.knees(&mut cases, &mut csv)?;
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
