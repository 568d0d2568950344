//! `lab wan table`: what a connection costs where client, proxy and host are far apart, every way there is, to a shell and
//! to a database.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::plot::{Bar, Bars};
use sallyport_bench::report::{Aim, Csv, Picture, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_testing::postgres::{self, Postgres};
use sallyport_testing::{Extras, NODE, REGISTERED, SshRoute, Testbed};

use super::capture::Capture;
use super::guarded::Guarded;
use super::plan::Settings as Figures;
use super::round_trips::Journey;
use super::sites::{self, HOSTS};
use super::{Wan, ladder};
use crate::LabError;

/// Below it programs take longer than packets: chains of packets are then those of chance, and time tells nothing.
const FAR: Duration = Duration::from_millis(5);
/// How long services have to finish what a connection left them to do, beside two round trips.
const SETTLE: Duration = Duration::from_millis(400);
/// Where the waterfalls are taken: everything is apart, and the proxy is on the way.
const SHOWN: &str = "a/b/c";

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rounds; each connects once every way.
    pub rounds: usize,
    /// Which placements, by the regions of client, proxy and host: `a/b/c`. Empty: all of [`placements`].
    pub placements: Vec<String>,
    /// What lies between the regions a, b and c; what is not given is as by default.
    pub figures: Figures,
    /// What losses and jitter are drawn from.
    pub seed: u64,
    /// Whether the report has the waterfalls as text, too.
    pub waterfalls: bool,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let rounds = if quick { 3 } else { 9 };
        Self {
            rounds,
            placements: Vec::new(),
            figures: Figures::default(),
            seed: 1,
            waterfalls: false,
            csv: None,
        }
    }
}

/// In which regions client, proxy and host stand.
#[derive(Debug, Clone, Copy)]
struct Placement {
    label: &'static str,
    what: &'static str,
    regions: [&'static str; 3],
}

const PLACEMENTS: [Placement; 4] = [
    Placement { label: "a/a/a", what: "all in a", regions: ["a", "a", "a"] },
    Placement { label: "a/b/b", what: "client in a, proxy and host in b", regions: ["a", "b", "b"] },
    Placement { label: "a/b/c", what: "client in a, proxy in b, host in c", regions: ["a", "b", "c"] },
    Placement { label: "a/a/c", what: "client and proxy in a, host in c", regions: ["a", "a", "c"] },
];

/// The placements that there are.
pub fn placements() -> impl Iterator<Item = &'static str> {
    PLACEMENTS.iter().map(|placement| placement.label)
}

/// Those that are meant.
fn chosen(settings: &Settings) -> Result<Vec<Placement>, LabError> {
    if let Some(unknown) = settings.placements.iter().find(|named| !placements().any(|label| label == *named))
    {
        let known: Vec<&str> = placements().collect();
        return Err(LabError::Input(format!("no placement {unknown:?}: expected {}", known.join(", "))));
    }
    let named = |placement: &Placement| {
        settings.placements.is_empty() || settings.placements.iter().any(|named| named == placement.label)
    };
    Ok(PLACEMENTS.into_iter().filter(named).collect())
}

/// What is connected to.
struct Parts {
    // In the order in which they end.
    guarded: Guarded,
    testbed: Testbed,
    postgres: Postgres,
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.guarded.end(&self.testbed);
    }
}

/// A way to connect.
struct Scenario {
    name: &'static str,
    /// What the picture of its waterfall is called, and its lines in the file of samples.
    file: &'static str,
    command: fn(&Parts) -> Result<Command, LabError>,
    /// The numbers of the hosts that it leads over.
    hosts: &'static [usize],
    /// The file of the way without a proxy, which it is compared with.
    base: &'static str,
    aim: Option<AimAt>,
}

/// What a way is to reach, with the proxy on the way.
#[derive(Clone, Copy)]
enum AimAt {
    /// So many round trips between client and host, at most, by the time that it takes.
    RoundTrips(f64),
    /// So much of the direct way's time, at most.
    OfDirect(f64),
}

fn stock(parts: &Parts, route: SshRoute) -> Result<Command, LabError> {
    let mut command = parts.testbed.ssh(route);
    command.arg("true");
    Ok(command)
}

fn own(parts: &Parts, host: &str, by_helper: bool) -> Result<Command, LabError> {
    let mut command = parts.testbed.own_ssh_to(host, by_helper);
    command.arg("true");
    Ok(command)
}

/// With a second factor that was proven before.
fn proven(parts: &Parts, by_helper: bool) -> Result<Command, LabError> {
    let target = format!("{}@{NODE}", parts.testbed.login);
    let mut command = parts.guarded.proven(&parts.testbed, &["ssh", &target, "true"]);
    if !by_helper {
        command.env("SALLYPORT_CONNECT", "off");
    }
    Ok(command)
}

/// With a second factor that is proven meanwhile, for the first time of this login.
fn proves(parts: &Parts) -> Result<Command, LabError> {
    let target = format!("{}@{NODE}", parts.testbed.login);
    let arguments = ["ssh", &target, "true"];
    parts.guarded.proves(&parts.testbed, &arguments, &arguments)
}

/// Until the database is ready for a query; no query is made.
const READY: [&str; 3] = ["-X", "-c", "\\q"];

fn psql(parts: &Parts, by_helper: bool) -> Result<Command, LabError> {
    Ok(parts.testbed.psql(&parts.postgres, by_helper, &READY))
}

fn psql_proven(parts: &Parts) -> Result<Command, LabError> {
    let (program, user) = (parts.postgres.program("psql"), postgres::USER);
    let program = program.get_program().to_string_lossy().into_owned();
    let arguments = ["db", "connect", postgres::DATABASE, "-u", user, "-n", user, "--psql", &program, "--"];
    Ok(parts.guarded.proven(&parts.testbed, &[&arguments[..], &READY].concat()))
}

/// Alone, by one carrier or the other.
fn cold(parts: &Parts, carrier: &str) -> Result<Command, LabError> {
    let mut command = own(parts, NODE, false)?;
    command.env("SALLYPORT_CARRIER", carrier);
    Ok(command)
}

fn scenarios() -> Vec<Scenario> {
    let all = &[0, 1, 2][..];
    // What services do by themselves meanwhile is not of these ways.
    let straight = &[0, 2][..];
    let ssh = |name, file, command, aim| Scenario { name, file, command, hosts: all, base: "direct", aim };
    let database = |scenario| Scenario { base: "psql-direct", ..scenario };
    vec![
        Scenario {
            hosts: straight,
            ..ssh("ssh direct", "direct", |parts| stock(parts, SshRoute::Direct), None)
        },
        ssh("ssh -J, stock bastion", "bastion", |parts| stock(parts, SshRoute::Bastion), None),
        ssh(
            "ssh -J, through the proxy",
            "jump",
            |parts| stock(parts, SshRoute::Jump),
            Some(AimAt::OfDirect(0.9)),
        ),
        ssh("sallyport ssh, cold", "cold", |parts| cold(parts, "tcp"), Some(AimAt::RoundTrips(4.5))),
        ssh("sallyport ssh, cold, QUIC", "quic", |parts| cold(parts, "quic"), Some(AimAt::RoundTrips(3.5))),
        ssh("sallyport ssh, warm", "warm", |parts| own(parts, NODE, true), Some(AimAt::RoundTrips(1.5))),
        ssh("ssh, helper", "helper", |parts| stock(parts, SshRoute::Helper), Some(AimAt::RoundTrips(2.5))),
        ssh("ssh, no helper", "proxycommand", |parts| stock(parts, SshRoute::ProxyCommand), None),
        ssh("sallyport ssh, cold, factor proven before", "cold-proven", |parts| proven(parts, false), None),
        ssh("sallyport ssh, warm, factor proven before", "warm-proven", |parts| proven(parts, true), None),
        ssh("sallyport ssh, warm, factor proven now", "warm-proves", proves, None),
        ssh("sallyport ssh to stock sshd, cold", "stock-cold", |parts| own(parts, REGISTERED, false), None),
        ssh("sallyport ssh to stock sshd, warm", "stock-warm", |parts| own(parts, REGISTERED, true), None),
        Scenario {
            hosts: straight,
            ..database(ssh(
                "psql direct",
                "psql-direct",
                |parts| Ok(parts.postgres.psql(parts.testbed.directory(), &READY)?),
                None,
            ))
        },
        database(ssh("psql, cold", "psql-cold", |parts| psql(parts, false), Some(AimAt::RoundTrips(4.5)))),
        database(ssh("psql, warm", "psql-warm", |parts| psql(parts, true), Some(AimAt::RoundTrips(1.5)))),
        database(ssh("psql, warm, factor proven before", "psql-warm-proven", psql_proven, None)),
    ]
}

/// What was measured of one way in one placement.
#[derive(Default)]
struct Samplings {
    milliseconds: Samples,
    /// In round trips between client and host.
    round_trips: Samples,
    /// Round trips between client and proxy, proxy and host, client and host.
    links: [Samples; 3],
    /// Which of them are long enough to count on.
    far: [bool; 3],
    stalls: Samples,
    last: Option<(Capture, Journey)>,
}

/// One connection.
struct Sample {
    took: Duration,
    capture: Capture,
    journey: Journey,
}

/// Measures.
///
/// # Errors
/// When something is missing, cannot be started, or a connection fails.
pub fn run(program: &Path, settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let placements = chosen(settings)?;
    let (mut wan, sites) = sites::up(&settings.figures, settings.seed)?;
    talk.say("starting PostgreSQL");
    let postgres = Postgres::start_at(&sites.host)?;
    let extras = Extras { bastion: true, registered: true, postgres: Some(&postgres), ..Extras::default() };
    let testbed = Testbed::start_at(program, &sites, extras, &|line| talk.say(line))?;
    talk.say("logging in a user whose sessions want a second factor");
    let proofs = placements.len() * (settings.rounds + 1);
    let allow =
        format!("    db_labels: {{'*': '*'}}\n    db_names: [{0}]\n    db_users: [{0}]\n", postgres::USER);
    let guarded = Guarded::start(&testbed, &allow, proofs)?;
    let parts = Parts { guarded, testbed, postgres };
    let mut csv = Csv::create(
        settings.csv.as_deref(),
        "placement,way,round,milliseconds,round_trips,client_proxy,proxy_host,client_host,stalls",
    )?;
    let scenarios = scenarios();
    let watch = Watch::begin();
    let mut measured = Vec::new();
    let steps = placements.len() * (settings.rounds + 1) * scenarios.len();
    let mut step = 0;
    for placement in placements {
        for (host, region) in HOSTS.iter().zip(placement.regions) {
            wan.place(host, &region.parse()?);
        }
        parts.guarded.prove(&parts.testbed)?;
        let mut all: Vec<Samplings> = scenarios.iter().map(|_| Samplings::default()).collect();
        for round in 0..=settings.rounds {
            for turn in 0..scenarios.len() {
                // None always goes behind the same neighbour.
                let index = (turn + round) % scenarios.len();
                let (Some(scenario), Some(samples)) = (scenarios.get(index), all.get_mut(index)) else {
                    continue;
                };
                if talk.stopping() {
                    break;
                }
                talk.progress(step, steps, format!("{}: {}", placement.label, scenario.name));
                step += 1;
                let sample = once(&wan, &parts, scenario)?;
                // The first one makes what is kept: trust, a helper daemon.
                if round > 0 {
                    samples.take(&wan, sample, |figures| {
                        Ok(csv.line(&format!("{},{},{round},{figures}", placement.label, scenario.file))?)
                    })?;
                }
            }
        }
        let direct = round_trip(&wan, 0, 2);
        measured.push((placement, direct, all));
    }
    Ok(report(&parts, &scenarios, &measured, settings, &wan, Report::of("wan table", &watch, talk)))
}

fn round_trip(wan: &Wan, one: usize, other: usize) -> Duration {
    wan.between(one, other).round_trip
}

/// Connects once, and sees what was on the wire meanwhile.
fn once(wan: &Wan, parts: &Parts, scenario: &Scenario) -> Result<Sample, LabError> {
    let failed = |said: String| LabError::Failed { what: format!("connecting: {}", scenario.name), said };
    let mut command = (scenario.command)(parts)?;
    // What the one before left to do, or what this one wanted done before, must not be in it.
    std::thread::sleep(SETTLE + wan.longest_round_trip() * 2);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let recording = wan.record();
    let (began, ended, output) = parts.testbed.cluster.sites().client.inside(|| {
        let began = Instant::now();
        let output = command.output();
        (began, Instant::now(), output)
    })?;
    let capture = wan.recorded().among(scenario.hosts);
    let output = output.map_err(|source| sallyport_testing::missing(&command, source))?;
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
    }
    let journey = capture.journey(0, ended.saturating_duration_since(recording));
    let journey = journey.ok_or_else(|| failed("no packet was seen".to_owned()))?;
    Ok(Sample { took: ended.saturating_duration_since(began), capture, journey })
}

impl Samplings {
    /// Takes in a connection, and gives its figures as they stand in the file.
    #[allow(clippy::cast_precision_loss, reason = "numbers of packets")]
    fn take(
        &mut self,
        wan: &Wan,
        sample: Sample,
        write: impl FnOnce(&str) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let journey = &sample.journey;
        let links = [(0, 1), (1, 2), (0, 2)];
        let counted = links.map(|(one, other)| journey.between(one, other) as f64 / 2.0);
        // Whole nanoseconds, so that a whole number of round trips comes out whole.
        let unit = round_trip(wan, 0, 2).as_nanos() as f64;
        let far = links.map(|(one, other)| round_trip(wan, one, other).as_nanos() as f64);
        let sum: f64 = counted.iter().zip(far).map(|(count, far)| count * far).sum();
        let round_trips = if unit > 0.0 { sum / unit } else { counted.iter().sum() };
        self.far = links.map(|(one, other)| round_trip(wan, one, other) >= FAR);
        let milliseconds = sample.took.as_secs_f64() * 1e3;
        let stalls = journey.stalls() as f64;
        let [client_proxy, proxy_host, client_host] = counted;
        write(&format!(
            "{milliseconds:.3},{round_trips:.3},{client_proxy},{proxy_host},{client_host},{stalls}"
        ))?;
        self.milliseconds.push(milliseconds);
        self.round_trips.push(round_trips);
        for (samples, count) in self.links.iter_mut().zip(counted) {
            samples.push(count);
        }
        self.stalls.push(stalls);
        self.last = Some((sample.capture, sample.journey));
        Ok(())
    }
}

fn report(
    parts: &Parts,
    scenarios: &[Scenario],
    measured: &[(Placement, Duration, Vec<Samplings>)],
    settings: &Settings,
    wan: &Wan,
    mut report: Report,
) -> Report {
    report.conditions = parts.testbed.conditions();
    report.conditions.extend(conditions(parts, settings, wan));
    let mut bars = Bars::new(
        "From nothing to the exit status of true, or to a database that is ready",
        "round trips between client and host, counted; client/proxy/host by region",
    );
    for (placement, direct, all) in measured {
        let base = |scenario: &Scenario| {
            let (_, samples) = scenarios.iter().zip(all).find(|(one, _)| one.file == scenario.base)?;
            Some(&samples.milliseconds)
        };
        let mut group = Vec::new();
        for (scenario, samples) in
            scenarios.iter().zip(all).filter(|(_, samples)| !samples.round_trips.is_empty())
        {
            let far = *direct >= FAR;
            let in_time = samples.milliseconds.median() / 1e3 / direct.as_secs_f64();
            let ratio = base(scenario).and_then(|base| samples.milliseconds.ratio_to(base));
            let link = |index: usize| {
                let counted = samples.links.get(index).map(Samples::median);
                counted.filter(|count| *count > 0.0 && samples.far.get(index) == Some(&true))
            };
            let counted = if far { samples.round_trips.clone() } else { Samples::default() };
            report.rows.push(
                Row::new(format!("{} {}", placement.label, scenario.name))
                    .measured("round trips", 1, &counted)
                    .with("client-proxy", 1, link(0))
                    .with("proxy-host", 1, link(1))
                    .with("client-host", 1, link(2))
                    .with("stalls", 0, far.then(|| samples.stalls.median()))
                    .measured("ms", 0, &samples.milliseconds)
                    .with("ms / RTT", 1, far.then_some(in_time))
                    .with("x direct", 2, ratio),
            );
            if far {
                let bar = Bar::new(scenario.name, counted.median());
                group.push(match counted.interval() {
                    Some((low, high)) => bar.interval(low, high),
                    None => bar,
                });
            }
            if placement.label != SHOWN {
                continue;
            }
            let what = format!("{}, {}", scenario.name, placement.what);
            report.aims.extend(match (scenario.aim, ratio) {
                (Some(AimAt::RoundTrips(most)), _) => {
                    Some(Aim::at_most(&what, in_time, most, "round trips of time"))
                }
                (Some(AimAt::OfDirect(most)), Some(ratio)) => {
                    Some(Aim::at_most(&what, ratio, most, "x direct"))
                }
                _ => None,
            });
            if let Some((capture, journey)) = &samples.last {
                let svg = ladder::svg(&what, capture, journey);
                report.pictures.push(Picture {
                    name: format!("wan-{}", scenario.file),
                    title: what.clone(),
                    svg,
                });
                if settings.waterfalls {
                    report.notes.push(format!("{what}:\n{}", ladder::text(capture, journey)));
                }
            }
        }
        if !group.is_empty() {
            bars = bars.group(format!("{}: {}", placement.label, placement.what), group);
        }
    }
    let title = "Round trips by placement".to_owned();
    report.pictures.insert(0, Picture { name: "wan-round-trips".to_owned(), title, svg: bars.svg() });
    report
}

fn conditions(parts: &Parts, settings: &Settings, wan: &Wan) -> Vec<String> {
    vec![
        "a row is client/proxy/host by region, then the way; the authority is beside the proxy, the stock sshd beside the \
         node, and the stock bastion beside the proxy"
            .to_owned(),
        sites::conditions(wan, settings.seed),
        format!(
            "psql: PostgreSQL {} beside the node, until it is ready for a query, which would be one round trip more on every \
             way; directly by TLS with a client certificate",
            parts.postgres.version
        ),
        "counted: the longest chain of packets that each waited for the one before, in round trips between client and \
         host; on each link; and how many of its packets waited for a bare acknowledgement (stalls). Not where the round \
         trip is under 5 ms: there programs take longer than packets"
            .to_owned(),
        "ms: from the start of the command to its end, programs included; the first connection of each way in each \
         placement is not counted"
            .to_owned(),
        "a factor that is proven now: a recovery code that a program types at once, for a login that has proven none; the helper \
         daemon has a connection to the proxy by then. Proven before: by sallyport mfa pre-auth"
            .to_owned(),
    ]
}
