//! The commands of the lab: what keys, handshakes, servers and whole clusters cost on this machine.

mod advise;
mod browser;
mod compare;
mod flame;
mod handshake;
mod instructions;
mod keys;
mod load;
mod progress;
mod report;
mod scan;
mod strength;
mod wan;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sallyport_bench::report::Report;
use sallyport_bench::{Talk, page};
use sallyport_lab::{LabError, bulk, connect, databases, offers, sessions};
use sallyport_sal::Suite;
use tokio::signal::unix::{SignalKind, signal};

use sallyport_cli::dial::Dialler;
use sallyport_cli::error::{CliError, CliResult, Context, Exit};
use sallyport_cli::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Lab {
    /// Several measurements in one directory: a page, pictures, every sample, and what the machine was.
    Report(report::Args),
    /// What changed between two reports, and what cannot be told from noise.
    Compare(compare::Args),
    /// Which key and which key exchange a server should have, for whom, and what that costs here.
    Advise(advise::Args),
    /// How strong keys are: of a certificate, a key file, authorized_keys or known_hosts, a server of TLS or SSH, or
    /// named; by the best published attack, as NIST counts them, and against quantum computers.
    Strength(strength::Args),
    /// What signing, verifying and making a key cost, by type and size.
    Keys(keys::Args),
    /// What handshakes of TLS and SSH cost each side, in memory and over loopback: processor time by phases, bytes and
    /// round trips, by key, key exchange, chain, resumption and client certificate.
    Handshake(handshake::Args),
    /// Requests a second and latencies of an HTTPS server for each certificate, with keep-alive off and on, and without
    /// TLS: nginx, a cluster's proxy, or a URL on loopback.
    Load(load::Args),
    /// What a TLS handshake costs a real Chromium, by its own timing: RSA-2048, RSA-4096, P-256, and X25519MLKEM768
    /// against X25519, from a server on loopback, with a fresh profile for each sample.
    Browser(browser::Args),
    /// What TLS and SSH servers offer and prefer, what each choice costs them by this machine's figures, and what to
    /// change. Exit code 1 when there is a finding above informational.
    Scan(scan::ScanArgs),
    /// Review what SSH servers offer: both faces of a cluster started for it, or the servers that are named. Exit code 1
    /// when there is a finding above informational.
    Offers(OffersArgs),
    /// From nothing to the exit status of `true`: own client and stock ssh through the cluster, against stock ssh to a
    /// stock sshd, in turns.
    Connect(ConnectArgs),
    /// Much data down and up, through a recorded session and by scp, against stock OpenSSH; and ends that stand still.
    Bulk(BulkArgs),
    /// Memory of proxy and node for idle sessions, and how soon a keystroke comes back while hundreds type.
    Sessions(SessionsArgs),
    /// New connections to PostgreSQL, ten at a time: processor time of proxy and agent, latency and rate; straight, by
    /// what else ends TLS here, and through clusters of several suites, with and without their caches.
    DbSuite(DbSuiteArgs),
    /// Flame graphs of proxy and node while they work: where their processor time goes, by connection and by byte. Needs
    /// perf.
    Flame(flame::Args),
    /// What pieces of the access path cost in instructions, whatever else the machine does, and what changed since figures
    /// were saved. Needs valgrind.
    Instructions(instructions::Args),
    /// A wide area network in a box: hosts in regions that are far apart, by network namespaces and an emulator of our own.
    /// Needs root.
    #[command(subcommand)]
    Wan(wan::Command),
}

/// What every measurement takes.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// Write every sample to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the report as a page, with its pictures.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the pictures, where there are any, as SVG files into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    svg: Option<PathBuf>,
    /// A glance: fewer samples.
    #[arg(long)]
    quick: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Exit with 1 when an aim is missed.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    common: Common,
    /// Rounds; each connects once every way. Default: 200, or 20 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// Connections in a row, for the processor time of one. Default: 100, or 20 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    in_a_row: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    common: Common,
    /// MiB of one transfer. Default: 1024, or 128 with --quick.
    #[arg(long, value_name = "MIB")]
    size: Option<u64>,
    /// Rounds; each transfers once every way. Default: 3, or 1 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// What is transferred.
    #[arg(long, value_enum, default_value = "mixed")]
    data: DataArg,
    /// Seconds to watch an end that stands still; 0 leaves that out. Default: 30, or 5 with --quick.
    #[arg(long, value_name = "SECONDS")]
    stalled: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of idle sessions. Default: 100,1000,10000, or 50,200 with --quick.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',')]
    counts: Vec<usize>,
    /// Past so many, a session is a connection that is logged in and has a channel open, without a program: so many
    /// programs take more memory than the services.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    programs_up_to: usize,
    /// Sessions in which somebody types while echoes are measured; 0 leaves that out. Default: 500, or 50 with --quick.
    #[arg(long, value_name = "COUNT")]
    active: Option<usize>,
    /// Keys to measure, each way. Default: 1000, or 200 with --quick.
    #[arg(long, value_name = "COUNT")]
    keys: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DbSuiteArgs {
    #[command(flatten)]
    common: Common,
    /// Rounds; each presses once every way. Default: 3, or 1 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// How long one way is pressed in one round. Default: 10, or 1 with --quick.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Connections at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    connections: usize,
    /// Connections a second for latencies without a queue, where a way can carry them; 0 leaves that out.
    #[arg(long, value_name = "COUNT", default_value_t = 40.0)]
    rate: f64,
    /// Suites of the clusters, or `none`. Default: legacy, balanced-v1, fips-v1, pq-v1; balanced-v1 with --quick.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    suite: Vec<String>,
    /// Suites in which the published architecture is measured, a key for each connection, or `none`. Default: legacy,
    /// balanced-v1; balanced-v1 with --quick.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    published: Vec<String>,
    /// Sessions that stand idle, for memory; 0 leaves that out. Default: 500, or 20 with --quick.
    #[arg(long, value_name = "COUNT")]
    idle: Option<usize>,
    /// MiB of a COPY; 0 leaves that out. Default: 512, or 16 with --quick.
    #[arg(long, value_name = "MIB")]
    copy: Option<u64>,
    /// Seconds of one run of pgbench; 0 leaves that out. Default: 10, or 1 with --quick.
    #[arg(long, value_name = "SECONDS")]
    pgbench: Option<u64>,
}

impl DbSuiteArgs {
    fn settings(&self) -> CliResult<databases::Settings> {
        let usual = databases::Settings::of(self.common.quick);
        let suites = |named: &[String], usual: Vec<Suite>| -> CliResult<Vec<Suite>> {
            if named.is_empty() {
                return Ok(usual);
            }
            let named = named.iter().filter(|name| *name != "none");
            named.map(|name| name.parse()).collect::<Result<_, _>>().doing("understand the name of a suite")
        };
        Ok(databases::Settings {
            rounds: self.rounds.unwrap_or(usual.rounds).max(1),
            seconds: self.seconds.unwrap_or(usual.seconds).clamp(0.1, 3600.0),
            workers: self.connections.clamp(1, 500),
            rate: self.rate.max(0.0),
            suites: suites(&self.suite, usual.suites)?,
            published: suites(&self.published, usual.published)?,
            idle: self.idle.unwrap_or(usual.idle).min(1000),
            copy: self.copy.unwrap_or(usual.copy).min(1 << 16),
            pgbench: self.pgbench.unwrap_or(usual.pgbench),
            csv: self.common.csv.clone(),
        })
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct OffersArgs {
    /// Servers to ask. Default: a cluster started for it, its proxy and its node.
    #[arg(value_name = "HOST:PORT")]
    servers: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DataArg {
    /// Half lines of a log, half noise.
    Mixed,
    /// Noise, which no compression makes smaller.
    Noise,
    /// Lines of a log.
    Text,
}

impl From<DataArg> for bulk::Data {
    fn from(data: DataArg) -> Self {
        match data {
            DataArg::Mixed => Self::Mixed,
            DataArg::Noise => Self::Noise,
            DataArg::Text => Self::Text,
        }
    }
}

pub(crate) async fn run(command: Lab) -> CliResult<ExitCode> {
    match command {
        Lab::Connect(args) => {
            let usual = connect::Settings::of(args.common.quick);
            let settings = connect::Settings {
                rounds: args.rounds.unwrap_or(usual.rounds),
                in_a_row: args.in_a_row.unwrap_or(usual.in_a_row),
                csv: args.common.csv.clone(),
            };
            measure(&args.common, move |program, talk| connect::run(program, &settings, talk)).await
        }
        Lab::Bulk(args) => {
            let usual = bulk::Settings::of(args.common.quick);
            let settings = bulk::Settings {
                size: args.size.map_or(usual.size, |mebibytes| mebibytes.clamp(1, 1 << 20) << 20),
                rounds: args.rounds.unwrap_or(usual.rounds),
                data: args.data.into(),
                stalled: args.stalled.map_or(usual.stalled, Duration::from_secs),
                csv: args.common.csv.clone(),
                ..usual
            };
            measure(&args.common, move |program, talk| bulk::run(program, &settings, talk)).await
        }
        Lab::Sessions(args) => {
            let usual = sessions::Settings::of(args.common.quick);
            let settings = sessions::Settings {
                counts: if args.counts.is_empty() { usual.counts } else { args.counts },
                programs_up_to: args.programs_up_to,
                active: args.active.unwrap_or(usual.active),
                keys: args.keys.unwrap_or(usual.keys),
                csv: args.common.csv.clone(),
            };
            measure(&args.common, move |program, talk| sessions::run(program, &settings, talk, &dialler))
                .await
        }
        Lab::DbSuite(args) => {
            let settings = args.settings()?;
            measure(&args.common, move |program, talk| databases::run(program, &settings, talk)).await
        }
        Lab::Keys(args) => keys::run(args).await,
        Lab::Handshake(args) => handshake::run(args).await,
        Lab::Load(args) => load::run(args).await,
        Lab::Offers(args) => review(args).await,
        Lab::Strength(args) => strength::run(args).await,
        Lab::Scan(args) => scan::run(args).await,
        Lab::Report(args) => report::run(args).await,
        Lab::Advise(args) => advise::run(args).await,
        Lab::Compare(args) => compare::run(&args),
        Lab::Browser(args) => browser::run(args).await,
        Lab::Flame(args) => flame::run(args).await,
        Lab::Instructions(args) => instructions::run(args).await,
        Lab::Wan(command) => wan::run(command).await,
    }
}

/// Exit code of what somebody broke off, as of a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// A number of rounds.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number from 1 up".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// How long a measurement may take: as long as it was said, as long as the rounds take that were asked for, or as usual.
fn budget(given: Option<f64>, rounds: Option<usize>, usual: Duration) -> CliResult<Duration> {
    const LONGEST: f64 = 7.0 * 86_400.0;
    match given {
        Some(seconds) if (0.001..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Some(seconds) => Err(CliError::new(format!(
            "--budget {seconds}: expected seconds, more than 0 and at most {LONGEST}"
        ))
        .exit(Exit::Usage)),
        None if rounds.is_some() => Ok(Duration::from_secs_f64(LONGEST)),
        None => Ok(usual),
    }
}

impl Common {
    /// That what is asked for can be written, before the work rather than after it.
    fn prepare(&self) -> CliResult {
        if let Some(path) = &self.html {
            let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
            opened.doing(format!("write {}", path.display()))?;
        }
        if let Some(directory) = &self.svg {
            std::fs::create_dir_all(directory)
                .doing(format!("make the directory {}", directory.display()))?;
        }
        Ok(())
    }
}

/// Runs a measurement beside a watch for Ctrl-C, and shows what it gives.
async fn measure(
    common: &Common,
    measurement: impl FnOnce(&Path, &Talk) -> Result<Report, LabError> + Send + 'static,
) -> CliResult<ExitCode> {
    common.prepare()?;
    let report = beside_a_watch(measurement).await?;
    show(&report, common)?;
    Ok(exit_code(&report, common))
}

/// What a measurement that was shown ends with.
fn exit_code(report: &Report, common: &Common) -> ExitCode {
    let missed = report.aims.iter().any(|aim| !aim.reached);
    match report.interrupted {
        true => ExitCode::from(INTERRUPTED),
        false if common.strict && missed => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// The `sallyport` that is measured: the one that started this program, or the one beside it, or that of `PATH`.
pub(crate) fn measured_program() -> CliResult<PathBuf> {
    sallyport_cli::lab::program(sallyport_cli::lab::PROGRAM_VARIABLE, "sallyport").ok_or_else(|| {
        CliError::new("cannot find sallyport, which is what the lab measures")
            .hint("put it beside sallyport-lab or on PATH")
    })
}

/// Does work of the lab, which gets the path of `sallyport`, and tells it when somebody presses Ctrl-C.
async fn beside_a_watch<T: Send + 'static>(
    work: impl FnOnce(&Path, &Talk) -> Result<T, LabError> + Send + 'static,
) -> CliResult<T> {
    until_told("stopping after this sample; what there is will be shown (once more: at once)", work).await
}

/// The same, with what is said then.
async fn until_told<T: Send + 'static>(
    stopping: &'static str,
    work: impl FnOnce(&Path, &Talk) -> Result<T, LabError> + Send + 'static,
) -> CliResult<T> {
    let program = measured_program()?;
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(progress::Progress::new());
    let (lines, shares) = (Arc::clone(&progress), Arc::clone(&progress));
    let talk = Talk::new(move |line| lines.say(line), Arc::clone(&stop))
        .with_progress(move |share, what| shares.show(share, what));
    let mut working = tokio::task::spawn_blocking(move || work(&program, &talk));
    // What runs under timeout(1), a service manager or a terminal that is closed ends in order, too.
    let mut asked = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .map(signal)
        .collect::<Result<Vec<_>, _>>()
        .doing("watch for signals")?;
    let done = loop {
        let heard = futures::future::select_all(asked.iter_mut().map(|one| Box::pin(one.recv())));
        tokio::select! {
            done = &mut working => break done.doing("measure")?,
            _ = heard => {
                if stop.swap(true, Ordering::Relaxed) {
                    return Err(CliError::new("interrupted twice; what the lab started may still be running"));
                }
                progress.say(stopping);
            }
        }
    };
    progress.finish();
    done.map_err(|error| CliError::new(error.to_string()))
}

fn show(report: &Report, common: &Common) -> CliResult {
    write_files(report, common)?;
    if common.format == Format::Json {
        return ui::json(report);
    }
    print(report)
}

/// Writes the files that were asked for, and says where they are.
fn write_files(report: &Report, common: &Common) -> CliResult {
    if let Some(warning) = report.noise.warning() {
        ui::say(warning);
    }
    if let Some(path) = &common.csv {
        ui::say(format!("every sample is in {}", path.display()));
    }
    if let Some(directory) = &common.svg {
        write_pictures(report, directory)?;
    }
    if let Some(path) = &common.html {
        let title = format!("sallyport lab {}", report.measurement);
        let machine = format!("<p>{}</p>\n", page::escape(&report.machine.line()));
        let page = page::page(&title, &machine, &[page::measurement("Figures", report)]);
        std::fs::write(path, page).doing(format!("write {}", path.display()))?;
        ui::say(format!("the report is in {}", path.display()));
    }
    Ok(())
}

/// Writes the pictures of a report, where it has any.
fn write_pictures(report: &Report, directory: &Path) -> CliResult {
    if report.pictures.is_empty() {
        return Ok(());
    }
    let doing = || format!("write pictures into {}", directory.display());
    std::fs::create_dir_all(directory).doing(doing())?;
    for picture in &report.pictures {
        std::fs::write(directory.join(format!("{}.svg", picture.name)), &picture.svg).doing(doing())?;
    }
    let pictures = match report.pictures.len() {
        1 => "a picture is".to_owned(),
        count => format!("{count} pictures are"),
    };
    ui::say(format!("{pictures} in {}", directory.display()));
    Ok(())
}

/// A report for people.
fn print(report: &Report) -> CliResult {
    ui::data(format!("machine  {}", report.machine.line()))?;
    let noise = &report.noise;
    ui::data(format!(
        "load     {:.2} before, {:.2} after; {:.1} % stolen",
        noise.load_before,
        noise.load_after,
        noise.stolen * 100.0
    ))?;
    for condition in &report.conditions {
        ui::data(format!("held     {condition}"))?;
    }
    ui::data("")?;
    ui::table(&report.headings(), report.lines(), "nothing was measured")?;
    if !report.aims.is_empty() {
        ui::data("")?;
    }
    for aim in &report.aims {
        ui::data(format!(
            "{}  {}; got {}",
            if aim.reached { "ok     " } else { "MISSED " },
            aim.what,
            aim.got
        ))?;
    }
    if !report.notes.is_empty() {
        ui::data("")?;
    }
    for note in &report.notes {
        ui::data(note)?;
    }
    if report.interrupted {
        ui::say("interrupted: fewer samples than asked for");
    }
    Ok(())
}

/// Makes connections as the lab's user.
struct Measured {
    dialler: Dialler,
    login: sessions::Login,
}

fn dialler(login: sessions::Login) -> Result<Arc<dyn sessions::Dial>, LabError> {
    let dialler = Dialler::of(&login.home, &login.proxy);
    let dialler = dialler.map_err(|error| LabError::Connection(error.to_string()))?;
    Ok(Arc::new(Measured { dialler, login }))
}

impl sessions::Dial for Measured {
    fn connect(&self) -> sessions::Connecting<'_> {
        Box::pin(async move {
            let connected = self.dialler.connect(self.login.node, &self.login.login).await;
            connected.map_err(|error| LabError::Connection(error.to_string()))
        })
    }
}

async fn review(args: OffersArgs) -> CliResult<ExitCode> {
    let program = measured_program()?;
    let asking = tokio::task::spawn_blocking(move || {
        if args.servers.is_empty() {
            let talk = Talk::new(|line| ui::say(line), Arc::default());
            return offers::ours(&program, &talk);
        }
        let mut findings = Vec::new();
        for server in &args.servers {
            findings.extend(offers::judge(server, &offers::ask_address(server)?));
        }
        Ok(findings)
    });
    let findings = asking.await.doing("ask")?.map_err(|error| CliError::new(error.to_string()))?;
    let bad = findings.iter().filter(|finding| finding.level > offers::Level::Info).count();
    if args.format == Format::Json {
        ui::json(&findings)?;
    } else {
        let row = |finding: &offers::Finding| {
            vec![
                finding.face.clone(),
                finding.list.to_owned(),
                finding.item.clone(),
                finding.level.name().to_owned(),
                finding.reason.to_owned(),
            ]
        };
        let headings = ["server", "list", "item", "verdict", "why"];
        ui::table(&headings, findings.iter().map(row).collect(), "nothing is offered")?;
        ui::say(format!("{} items, {bad} findings above informational", findings.len()));
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
