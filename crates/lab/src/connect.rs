//! From nothing to the exit status of `true`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::cost::{children_time, processor_time};
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Aim, Csv, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_testing::{SshRoute, Testbed};

use crate::LabError;

/// How long services have to finish what a connection left them to do: events on their way, recordings to send.
const SETTLE: Duration = Duration::from_millis(1500);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rounds; each connects once every way.
    pub rounds: usize,
    /// Connections in a row, for the processor time of one.
    pub in_a_row: usize,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        if quick {
            Self { rounds: 20, in_a_row: 20, csv: None }
        } else {
            Self { rounds: 200, in_a_row: 100, csv: None }
        }
    }
}

/// Where a way leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// To the stock server.
    Direct,
    /// Through the cluster.
    Cluster,
    /// Nowhere: what the login's shell costs by itself, on every way.
    Here,
}

/// One way to connect.
struct Scenario {
    name: &'static str,
    command: Box<dyn Fn(&Testbed) -> Command>,
    side: Side,
    times: Samples,
    /// Milliseconds of processor time for one connection: authority, proxy, node, sshd, and the client.
    cost: Option<[f64; 5]>,
}

/// Measures.
///
/// # Errors
/// When something cannot be started, or a connection fails.
pub fn run(program: &Path, settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let testbed = Testbed::start(program, &|line| talk.say(line))?;
    let mut csv = Csv::create(settings.csv.as_deref(), "kind,way,round,milliseconds")?;
    let mut scenarios = scenarios();
    for scenario in &scenarios {
        // The first connection makes what is kept: files in memory, trust, a helper daemon.
        once(&testbed, scenario)?;
        once(&testbed, scenario)?;
    }
    std::thread::sleep(SETTLE);
    let watch = Watch::begin();
    for round in 0..settings.rounds {
        if talk.stopping() {
            break;
        }
        if round % 10 == 0 {
            talk.say(format!("round {round} of {}", settings.rounds));
        }
        let count = scenarios.len();
        for turn in 0..count {
            // None always goes behind the same neighbour.
            if let Some(scenario) = scenarios.get_mut((turn + round) % count) {
                let took = once(&testbed, scenario)?.as_secs_f64() * 1e3;
                scenario.times.push(took);
                csv.line(&format!("time,{},{round},{took:.3}", scenario.name))?;
            }
        }
    }
    for scenario in &mut scenarios {
        if talk.stopping() {
            break;
        }
        talk.say(format!("processor time of {} connections in a row: {}", settings.in_a_row, scenario.name));
        let cost = cost_of(&testbed, scenario, settings.in_a_row)?;
        for (who, milliseconds) in ["authority", "proxy", "node", "sshd", "client"].iter().zip(cost) {
            csv.line(&format!("cpu_{who},{},0,{milliseconds:.4}", scenario.name))?;
        }
        scenario.cost = Some(cost);
    }
    Ok(report(&testbed, &scenarios, watch, talk))
}

fn scenarios() -> Vec<Scenario> {
    let stock = |name, route, side| Scenario {
        name,
        command: Box::new(move |testbed: &Testbed| {
            let mut command = testbed.ssh(route);
            command.arg("true");
            command
        }),
        side,
        times: Samples::default(),
        cost: None,
    };
    let own = |name, by_helper| Scenario {
        name,
        command: Box::new(move |testbed: &Testbed| {
            let mut command = testbed.own_ssh(by_helper);
            command.arg("true");
            command
        }),
        side: Side::Cluster,
        times: Samples::default(),
        cost: None,
    };
    vec![
        stock("direct", SshRoute::Direct, Side::Direct),
        own("sallyport ssh", true),
        own("sallyport ssh, no helper", false),
        stock("ssh, helper", SshRoute::Helper, Side::Cluster),
        stock("ssh, no helper", SshRoute::ProxyCommand, Side::Cluster),
        stock("ssh -J", SshRoute::Jump, Side::Cluster),
        Scenario {
            name: "shell alone",
            command: Box::new(|testbed: &Testbed| {
                // As both servers start it; some shells read more files when they see a connection.
                let mut command = Command::new(&testbed.shell);
                command.args(["-c", "true"]).env("SSH_CLIENT", "127.0.0.1 1 2").env("SHLVL", "0");
                command
            }),
            side: Side::Here,
            times: Samples::default(),
            cost: None,
        },
    ]
}

fn once(testbed: &Testbed, scenario: &Scenario) -> Result<Duration, LabError> {
    let mut command = (scenario.command)(testbed);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let began = Instant::now();
    let output =
        command.spawn().map_err(|source| sallyport_testing::missing(&command, source))?.wait_with_output();
    let took = began.elapsed();
    let failed = |said| LabError::Failed { what: format!("connecting: {}", scenario.name), said };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(took)
}

/// Processor time so far: authority, proxy, node with its sessions, sshd with its connections, and our own children,
/// which are the clients.
fn spent(testbed: &Testbed) -> [Duration; 5] {
    let whole = |pid| processor_time(pid) + children_time(pid);
    [
        processor_time(testbed.cluster.authority.id()),
        processor_time(testbed.cluster.proxy.id()),
        whole(testbed.cluster.node.id()),
        whole(testbed.sshd.process.id()),
        children_time(std::process::id()),
    ]
}

/// Milliseconds for one connection, less what the services do anyway.
fn cost_of(testbed: &Testbed, scenario: &Scenario, count: usize) -> Result<[f64; 5], LabError> {
    std::thread::sleep(SETTLE);
    let idle_from = spent(testbed);
    let idle_began = Instant::now();
    std::thread::sleep(SETTLE);
    let idle = spent(testbed).map(|spent| spent.as_secs_f64());
    let idle_seconds = idle_began.elapsed().as_secs_f64();
    let began = Instant::now();
    for _ in 0..count {
        once(testbed, scenario)?;
    }
    std::thread::sleep(SETTLE);
    let after = spent(testbed);
    let seconds = began.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let count = count.max(1) as f64;
    let mut cost = [0.0; 5];
    for (((cost, after), idle), from) in cost.iter_mut().zip(after).zip(idle).zip(idle_from) {
        let background = (idle - from.as_secs_f64()) / idle_seconds * seconds;
        *cost = ((after.as_secs_f64() - idle - background) * 1e3 / count).max(0.0);
    }
    Ok(cost)
}

fn report(testbed: &Testbed, scenarios: &[Scenario], watch: Watch, talk: &Talk) -> Report {
    let direct = scenarios.first().map(|scenario| scenario.times.clone()).unwrap_or_default();
    let mut aims = Vec::new();
    let mut rows = Vec::new();
    for scenario in scenarios {
        let times = &scenario.times;
        let ratio = times.ratio_to(&direct);
        let figure = |index: usize| scenario.cost.as_ref().and_then(|cost| cost.get(index).copied());
        rows.push(
            Row::new(scenario.name)
                .with("median ms", 1, times.median())
                .with("p95 ms", 1, times.quantile(0.95))
                .with("spread %", 1, times.spread() * 100.0)
                .with("x direct", 2, ratio)
                .with("proxy ms", 2, figure(1).filter(|_| scenario.side == Side::Cluster))
                .with("node ms", 2, figure(2).filter(|_| scenario.side == Side::Cluster))
                .with("authority ms", 2, figure(0).filter(|_| scenario.side == Side::Cluster))
                .with("sshd ms", 2, figure(3).filter(|_| scenario.side == Side::Direct))
                .with("client ms", 1, figure(4)),
        );
        if scenario.side != Side::Cluster {
            continue;
        }
        // What dials for itself starts one process more, and -J two: shown, not aimed at.
        if let (true, Some(ratio)) = (matches!(scenario.name, "sallyport ssh" | "ssh, helper"), ratio) {
            aims.push(Aim::at_most(&format!("connect, {}", scenario.name), ratio, 1.0, "x direct"));
        }
        if let Some(cost) = figure(1) {
            aims.push(Aim::at_most(
                &format!("processor time of the proxy, {}", scenario.name),
                cost,
                1.5,
                "ms",
            ));
        }
    }
    Report { conditions: testbed.conditions(), rows, aims, ..Report::of("connect", &watch, talk) }
}
