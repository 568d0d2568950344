//! Much data: down and up through a recorded session, and by `scp`, against the stock server with the same cipher.

mod data;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sallyport_bench::cost::{children_time, forget_peak, memory, processor_time, resident, unlinked_bytes};
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Aim, Csv, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_bench::{AtFile, Talk};
use sallyport_testing::{Extras, NODE, SshRoute, Testbed};

pub use data::Data;
pub(crate) use data::fill;

use crate::LabError;
use crate::wan::{self, sites};

/// How often memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Between transfers: events and recordings find their way.
const SETTLE: Duration = Duration::from_millis(1500);
/// A command that reads nothing, for longer than it is looked at.
const READS_NOTHING: &str = "sleep 600";

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of one transfer.
    pub size: u64,
    /// Rounds; each transfers once every way.
    pub rounds: usize,
    /// What is transferred.
    pub data: Data,
    /// How long a stalled end is watched.
    pub stalled: Duration,
    /// What lies between client, proxy and host, which then stand in the regions a, b and c of a WAN; none: everything is
    /// on loopback. On a WAN it is `scp` that is measured, and neither memory nor recordings are looked at.
    pub far: Option<Far>,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

/// A WAN.
#[derive(Debug, Clone)]
pub struct Far {
    /// What is between its regions; what is not given is as [`wan::table`] has it.
    pub figures: wan::Settings,
    /// What losses and jitter are drawn from.
    pub seed: u64,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let (mebibytes, rounds, seconds) = if quick { (128, 1, 5) } else { (1024, 3, 30) };
        let stalled = Duration::from_secs(seconds);
        Self { size: mebibytes << 20, rounds, data: Data::Mixed, stalled, far: None, csv: None }
    }

    /// The same far away, where a transfer takes as long as the way lets it.
    #[must_use]
    pub fn far(quick: bool, far: Far) -> Self {
        let (mebibytes, rounds) = if quick { (2, 1) } else { (16, 5) };
        Self {
            size: mebibytes << 20,
            rounds,
            data: Data::Mixed,
            stalled: Duration::ZERO,
            far: Some(far),
            csv: None,
        }
    }
}

/// What moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// `ssh HOST cat FILE > /dev/null`.
    Down,
    /// `ssh HOST 'cat > /dev/null' < FILE`.
    Up,
    /// `scp HOST:FILE .`.
    CopyDown,
    /// `scp FILE HOST:`.
    CopyUp,
}

impl Move {
    const ALL: [Self; 4] = [Self::Down, Self::Up, Self::CopyDown, Self::CopyUp];
    const COPIES: [Self; 2] = [Self::CopyDown, Self::CopyUp];

    fn name(self) -> &'static str {
        match self {
            Self::Down => "download",
            Self::Up => "upload",
            Self::CopyDown => "scp down",
            Self::CopyUp => "scp up",
        }
    }
}

/// Who moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Direct,
    Own,
    Stock,
}

impl Client {
    const ALL: [Self; 3] = [Self::Direct, Self::Own, Self::Stock];

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Own => "sallyport",
            Self::Stock => "ssh, helper",
        }
    }
}

/// All samples of one way.
struct Lane {
    what: Move,
    client: Client,
    rates: Samples,
    proxy: Samples,
    node: Samples,
    authority: Samples,
    sshd: Samples,
    proxy_peak: u64,
    node_peak: u64,
}

/// Measures.
///
/// # Errors
/// When something cannot be started, or a transfer fails.
pub fn run(program: &Path, settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let up = settings.far.as_ref().map(|far| sites::up(&far.figures, far.seed)).transpose()?;
    let sites = up.as_ref().map(|(_, sites)| sites.clone()).unwrap_or_default();
    let testbed = Testbed::start_at(program, &sites, Extras::default(), &|line| talk.say(line))?;
    let mut csv = Csv::create(
        settings.csv.as_deref(),
        "kind,way,round,seconds,mib_per_second,proxy_cpu_s,node_cpu_s,authority_cpu_s,sshd_cpu_s,proxy_rss,node_rss,unlinked",
    )?;
    let file = testbed.directory().join("data");
    talk.say(format!("writing {} MiB of data", settings.size >> 20));
    fill(&file, settings.size, settings.data)?;
    let moves = if settings.far.is_some() { &Move::COPIES[..] } else { &Move::ALL[..] };
    let mut lanes: Vec<Lane> = moves
        .iter()
        .copied()
        .flat_map(|what| Client::ALL.into_iter().map(move |client| (what, client)))
        .map(|(what, client)| Lane {
            what,
            client,
            rates: Samples::default(),
            proxy: Samples::default(),
            node: Samples::default(),
            authority: Samples::default(),
            sshd: Samples::default(),
            proxy_peak: 0,
            node_peak: 0,
        })
        .collect();
    let idle = [testbed.cluster.proxy.id(), testbed.cluster.node.id()].map(resident);
    let watch = Watch::begin();
    let mut recorded = Samples::default();
    'all: for round in 0..settings.rounds {
        for lane in &mut lanes {
            if talk.stopping() {
                break 'all;
            }
            talk.say(format!(
                "round {} of {}: {}, {}",
                round + 1,
                settings.rounds,
                lane.what.name(),
                lane.client.name()
            ));
            let before = recording_bytes(&testbed);
            transfer(&testbed, lane, &file, settings.size, round, &mut csv)?;
            if lane.what == Move::Down && lane.client != Client::Direct {
                #[allow(clippy::cast_precision_loss)]
                let share = settled_recordings(&testbed, before) as f64 / settings.size as f64;
                csv.line(&format!("recorded,{},{round},{share:.4},,,,,,,,", lane.client.name()))?;
                recorded.push(share);
            }
        }
    }
    let mut stalls = Vec::new();
    if !talk.stopping() && !settings.stalled.is_zero() {
        stalls.push(stalled(&testbed, "download, not read", false, settings.stalled, &mut csv, talk)?);
        stalls.push(stalled(
            &testbed,
            "upload, command does not read",
            true,
            settings.stalled,
            &mut csv,
            talk,
        )?);
    }
    let mut report = report(&testbed, settings, &lanes, &recorded, &stalls, idle, watch, talk);
    if let (Some((wan, _)), Some(far)) = (&up, &settings.far) {
        report.conditions.push(sites::conditions(wan, far.seed));
    }
    Ok(report)
}

fn command(testbed: &Testbed, lane: &Lane, file: &Path, copy: &Path) -> Command {
    let route = if lane.client == Client::Direct { SshRoute::Direct } else { SshRoute::Helper };
    let session = |remote: &str| {
        let mut command = if lane.client == Client::Own { testbed.own_ssh(true) } else { testbed.ssh(route) };
        command.arg(remote);
        command
    };
    let shown = file.display();
    match lane.what {
        Move::Down => session(&format!("cat {shown}")),
        Move::Up => session("cat > /dev/null"),
        Move::CopyDown | Move::CopyUp => {
            let mut command = if lane.client == Client::Own {
                testbed.cluster.client(&["scp", "-q"])
            } else {
                let mut command = testbed.openssh("scp", route);
                command.arg("-q");
                command
            };
            let host = if lane.client == Client::Own {
                format!("{}@{NODE}", testbed.login)
            } else {
                testbed.destination(route)
            };
            if lane.what == Move::CopyDown {
                command.arg(format!("{host}:{shown}")).arg(copy);
            } else {
                command.arg(file).arg(format!("{host}:{}", copy.display()));
            }
            command
        }
    }
}

fn transfer(
    testbed: &Testbed,
    lane: &mut Lane,
    file: &Path,
    size: u64,
    round: usize,
    csv: &mut Csv,
) -> Result<(), LabError> {
    let copy = testbed.directory().join("copy");
    let mut command = command(testbed, lane, file, &copy);
    let input = match lane.what {
        Move::Up => Stdio::from(File::open(file).at("read", file)?),
        _ => Stdio::null(),
    };
    command.stdin(input).stderr(Stdio::piped());
    let down = lane.what == Move::Down;
    command.stdout(if down { Stdio::piped() } else { Stdio::null() });
    let (proxy, node) = (testbed.cluster.proxy.id(), testbed.cluster.node.id());
    forget_peak(proxy);
    forget_peak(node);
    let before = spent(testbed);
    let began = Instant::now();
    let spawned = testbed.cluster.sites().client.inside(|| command.spawn())?;
    let mut child = spawned.map_err(|source| sallyport_testing::missing(&command, source))?;
    let sampling = Sampling::start(vec![proxy, node]);
    let received = match child.stdout.take() {
        Some(stdout) if down => swallow(stdout),
        _ => size,
    };
    let output = child.wait_with_output();
    let took = began.elapsed().as_secs_f64();
    let series = sampling.end();
    let what = || format!("{}, {}", lane.what.name(), lane.client.name());
    let failed = |said: String| LabError::Failed { what: what(), said };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() || received != size {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(format!("{}, {received} of {size} bytes: {said}", output.status)));
    }
    let copied = std::fs::metadata(&copy).map(|metadata| metadata.len());
    if matches!(lane.what, Move::CopyDown | Move::CopyUp) {
        let _ = std::fs::remove_file(&copy);
        if copied.as_ref().ok() != Some(&size) {
            return Err(failed(format!("the copy has {copied:?} bytes of {size}")));
        }
    }
    std::thread::sleep(SETTLE);
    let after = spent(testbed);
    #[allow(clippy::cast_precision_loss)]
    let gibibytes = size as f64 / f64::from(1 << 30);
    let rate = gibibytes * 1024.0 / took;
    let mut costs = after
        .iter()
        .zip(before)
        .map(|(after, before)| (after.as_secs_f64() - before.as_secs_f64()) / gibibytes);
    let mut cost = || costs.next().unwrap_or_default();
    let (proxy_cpu, node_cpu, authority_cpu, sshd_cpu) = (cost(), cost(), cost(), cost());
    lane.rates.push(rate);
    lane.proxy.push(proxy_cpu);
    lane.node.push(node_cpu);
    lane.authority.push(authority_cpu);
    lane.sshd.push(sshd_cpu);
    let peaks = [memory(proxy).peak, memory(node).peak];
    lane.proxy_peak = lane.proxy_peak.max(peaks[0]);
    lane.node_peak = lane.node_peak.max(peaks[1]);
    let name = what().replace(',', "");
    csv.line(&format!(
        "transfer,{name},{round},{took:.4},{rate:.2},{proxy_cpu:.4},{node_cpu:.4},{authority_cpu:.4},{sshd_cpu:.4},{},{},",
        peaks[0], peaks[1]
    ))?;
    if lane.client != Client::Direct {
        for (at, values) in series {
            csv.line(&format!(
                "memory,{name},{round},{:.2},,,,,,{},{},",
                at.as_secs_f64(),
                values.first().copied().unwrap_or_default(),
                values.get(1).copied().unwrap_or_default()
            ))?;
        }
    }
    Ok(())
}

fn swallow(mut from: ChildStdout) -> u64 {
    let mut buffer = vec![0; 256 * 1024];
    let mut all = 0;
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        all += read as u64;
    }
    all
}

/// Processor time so far: proxy, node with its sessions, authority, sshd with its connections.
fn spent(testbed: &Testbed) -> [Duration; 4] {
    let whole = |pid| processor_time(pid) + children_time(pid);
    [
        processor_time(testbed.cluster.proxy.id()),
        whole(testbed.cluster.node.id()),
        processor_time(testbed.cluster.authority.id()),
        whole(testbed.sshd.process.id()),
    ]
}

fn recording_bytes(testbed: &Testbed) -> u64 {
    let Ok(entries) = std::fs::read_dir(testbed.cluster.recordings()) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Bytes of recordings that have come in since, once no more come.
fn settled_recordings(testbed: &Testbed, before: u64) -> u64 {
    let began = Instant::now();
    let mut last = 0;
    let mut same = 0;
    while same < 4 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(500));
        let now = recording_bytes(testbed).saturating_sub(before);
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Looks at processes' memory beside something else.
struct Sampling {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<(Duration, Vec<u64>)>>,
}

impl Sampling {
    fn start(pids: Vec<u32>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            let mut series = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                series.push((began.elapsed(), pids.iter().map(|pid| resident(*pid)).collect()));
                std::thread::sleep(SAMPLE_EVERY);
            }
            series
        });
        Self { stop, thread }
    }

    fn end(self) -> Vec<(Duration, Vec<u64>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// One end that stands still.
struct Stall {
    name: &'static str,
    /// Bytes more than before: proxy, node; and on the node's disk.
    proxy: u64,
    node: u64,
    spilled: u64,
}

/// Kills a client that would never end, whatever happens.
struct Client9(Child);

impl Drop for Client9 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stalled(
    testbed: &Testbed,
    name: &'static str,
    up: bool,
    long: Duration,
    csv: &mut Csv,
    talk: &Talk,
) -> Result<Stall, LabError> {
    talk.say(format!("{name}: watching memory for {} s", long.as_secs()));
    let (proxy, node) = (testbed.cluster.proxy.id(), testbed.cluster.node.id());
    let before = [resident(proxy), resident(node)];
    let mut command = testbed.ssh(SshRoute::ProxyCommand);
    if up {
        command.arg(READS_NOTHING);
        let zeros = Path::new("/dev/zero");
        command.stdin(Stdio::from(File::open(zeros).at("read", zeros)?)).stdout(Stdio::null());
    } else {
        // The pipe is kept and never read.
        command.arg("cat /dev/zero").stdin(Stdio::null()).stdout(Stdio::piped());
    }
    command.stderr(Stdio::null());
    let child = command.spawn().map_err(|source| sallyport_testing::missing(&command, source))?;
    let _client = Client9(child);
    let began = Instant::now();
    let mut stall = Stall { name, proxy: 0, node: 0, spilled: 0 };
    while began.elapsed() < long && !talk.stopping() {
        std::thread::sleep(SAMPLE_EVERY * 2);
        let now = [resident(proxy), resident(node)];
        let spilled = unlinked_bytes(node);
        stall.proxy = stall.proxy.max(now[0].saturating_sub(before[0]));
        stall.node = stall.node.max(now[1].saturating_sub(before[1]));
        stall.spilled = stall.spilled.max(spilled);
        let at = began.elapsed().as_secs_f64();
        csv.line(&format!(
            "stalled,{},0,{at:.2},,,,,,{},{},{spilled}",
            name.replace(',', ""),
            now[0],
            now[1]
        ))?;
    }
    Ok(stall)
}

#[allow(clippy::cast_precision_loss)]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[allow(clippy::too_many_arguments, reason = "everything that was measured")]
fn report(
    testbed: &Testbed,
    settings: &Settings,
    lanes: &[Lane],
    recorded: &Samples,
    stalls: &[Stall],
    idle: [u64; 2],
    watch: Watch,
    talk: &Talk,
) -> Report {
    let mut rows = Vec::new();
    let mut aims = Vec::new();
    for lane in lanes.iter().filter(|lane| !lane.rates.is_empty()) {
        let ours = lane.client != Client::Direct;
        let direct = lanes.iter().find(|one| one.what == lane.what && one.client == Client::Direct);
        let ratio = direct.and_then(|direct| lane.rates.ratio_to(&direct.rates));
        let name = format!("{}, {}", lane.what.name(), lane.client.name());
        rows.push(
            Row::new(name.clone())
                .with("MiB/s", if settings.far.is_some() { 2 } else { 0 }, lane.rates.median())
                .with("spread %", 1, lane.rates.spread() * 100.0)
                .with("x direct", 2, ratio)
                .with("proxy s/GiB", 2, ours.then(|| lane.proxy.median()))
                .with("node s/GiB", 2, ours.then(|| lane.node.median()))
                .with("authority s/GiB", 2, ours.then(|| lane.authority.median()))
                .with("sshd s/GiB", 2, (!ours).then(|| lane.sshd.median()))
                .with("proxy peak MiB", 0, ours.then(|| mebibytes(lane.proxy_peak)))
                .with("node peak MiB", 0, ours.then(|| mebibytes(lane.node_peak))),
        );
        if let (true, Some(ratio)) = (ours, ratio) {
            aims.push(Aim::at_least(&format!("rate, {name}"), ratio, 1.0, "x direct"));
            if settings.far.is_some() {
                continue;
            }
            aims.push(Aim::at_most(
                &format!("processor time of the proxy, {name}"),
                lane.proxy.median(),
                2.0,
                "s/GiB",
            ));
            let grown = mebibytes((lane.proxy_peak + lane.node_peak).saturating_sub(idle[0] + idle[1]));
            aims.push(Aim::at_most(&format!("memory over idle, proxy and node, {name}"), grown, 64.0, "MiB"));
        }
    }
    if !recorded.is_empty() {
        let limit = if settings.data == Data::Noise { 1.01 } else { 1.0 };
        aims.push(Aim::at_most("recording of a download", recorded.median(), limit, "of the data"));
    }
    for stall in stalls {
        rows.push(
            Row::new(stall.name)
                .with("proxy more MiB", 1, mebibytes(stall.proxy))
                .with("node more MiB", 1, mebibytes(stall.node))
                .with("node disk MiB", 1, mebibytes(stall.spilled)),
        );
        let grown = mebibytes(stall.proxy + stall.node);
        aims.push(Aim::at_most(
            &format!("memory of proxy and node, {}", stall.name),
            grown,
            64.0,
            "MiB more",
        ));
    }
    let mut conditions = testbed.conditions();
    conditions.push(format!(
        "{} MiB each way, {:?} data, {} rounds",
        settings.size >> 20,
        settings.data,
        settings.rounds
    ));
    Report { conditions, rows, aims, ..Report::of("bulk", &watch, talk) }
}

#[cfg(test)]
mod tests;
