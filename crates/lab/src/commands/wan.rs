//! `sallyport lab wan`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_lab::wan::{self, Change, Host, Placed, Plan, Setting, Settings, Wan, congestion, table};
use sallyport_lab::{LabError, bulk};

use super::bulk::DataArg;
use super::measuring::{at_least_one, measure, until_told};
use super::output::Common;
use sallyport_cli::error::{CliError, CliResult};
use sallyport_cli::ui::{self, Format};

/// What is said when the user presses Ctrl-C.
const STOPPING: &str =
    "taking the WAN down (once more: at once; then `sallyport lab wan clean` removes what is left)";
/// How often to look whether to go down.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run a command on one of its hosts, and take it down again.
    ///
    /// In the command `{b}` stands for the address of host b; programs that look at /etc/hosts know it as `b`.
    #[command(after_help = "Examples:\n  \
        sallyport lab wan run --rtt a-b=100 -- ping -c3 b\n  \
        sallyport lab wan run --rtt a-b=80 --rtt b-c=5 --loss a-b=1 --rate 100 --round-trips -- curl http://{c}:8000/")]
    Run(Run),
    /// Open a shell on one of its hosts; it goes down when the shell ends.
    Shell(Shell),
    /// Bring it up, say what its namespaces and addresses are, and take it down on Ctrl-C.
    Up(Up),
    /// Remove namespaces that WANs left behind which were killed. Bringing one up does so, too.
    Clean,
    /// Round trips from connect to the exit status of `true`, every way there is, where client, proxy and host stand in
    /// one, two or three regions.
    Table(Table),
    /// How fast scp is between client and host in regions a and c, straight and through a proxy in b, on a long way that
    /// loses packets.
    Bulk(Bulk),
    /// How much QUIC carries by our congestion controller and by quinn's, alone and beside a transfer by TCP, on lines from near
    /// and clean to far and lossy.
    Congestion(Congestion),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Congestion {
    #[command(flatten)]
    common: Common,
    /// MiB of one transfer. Default: 32, or 4 with --quick.
    #[arg(long, value_name = "MIB")]
    size: Option<u64>,
    /// Rounds; each transfers once by every controller on every line. Default: 5, or 1 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// Round trip between a and b in milliseconds, of one line in place of the usual ones.
    #[arg(long, value_name = "A-B=MS")]
    rtt: Vec<Setting>,
    #[command(flatten)]
    line: LineArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bulk {
    #[command(flatten)]
    common: Common,
    /// MiB of one transfer. Default: 16, or 2 with --quick.
    #[arg(long, value_name = "MIB")]
    size: Option<u64>,
    /// Rounds; each transfers once every way. Default: 5, or 1 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// What is transferred.
    #[arg(long, value_enum, default_value = "mixed")]
    data: DataArg,
    /// Round trip between two of the regions a, b and c in milliseconds. Default: a-b=50, b-c=50, a-c=100.
    #[arg(long, value_name = "A-B=MS")]
    rtt: Vec<Setting>,
    #[command(flatten)]
    line: LineArgs,
}

/// Losses and rates of a long way where none are given: the whole way from a to c loses 1 %, whichever way it goes.
const LOSSES: [&str; 3] = ["a-b=0.5", "b-c=0.5", "a-c=1"];
const RATE: &str = "1000";

impl Bulk {
    fn far(self) -> CliResult<bulk::Far> {
        let (seed, mut figures) = (self.line.seed, self.line.with(self.rtt));
        let given =
            |texts: &[&str]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<_>, LabError>>();
        let failed = |error: LabError| CliError::new(error.to_string());
        if figures.loss.is_empty() {
            figures.loss = given(&LOSSES).map_err(failed)?;
        }
        if figures.rates.is_empty() {
            figures.rates = given(&[RATE]).map_err(failed)?;
        }
        Ok(bulk::Far { figures, seed })
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Table {
    #[command(flatten)]
    common: Common,
    /// Rounds; each connects once every way in each placement. Default: 9, or 3 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// Where client, proxy and host stand. Default: a/a/a, a/b/b, a/b/c and a/a/c.
    #[arg(long, value_name = "A/B/C,...", value_delimiter = ',')]
    placement: Vec<String>,
    /// Round trip between two of the regions a, b and c in milliseconds. Default: a-b=50, b-c=50, a-c=100, and 0.5 within
    /// a region.
    #[arg(long, value_name = "A-B=MS")]
    rtt: Vec<Setting>,
    #[command(flatten)]
    line: LineArgs,
    /// Show who waited for whom, packet by packet, each way with the proxy on the way.
    #[arg(long)]
    waterfalls: bool,
}

/// What becomes of packets between regions.
#[derive(Debug, Clone, clap::Args)]
struct LineArgs {
    /// By how much a packet's way may be shorter or longer, in milliseconds; of one pair, or of all.
    #[arg(long, value_name = "[A-B=]MS")]
    jitter: Vec<Setting>,
    /// Packets that are lost, in percent; of one pair, or of all.
    #[arg(long, value_name = "[A-B=]PERCENT")]
    loss: Vec<Setting>,
    /// Mbit/s each way; of one pair, or of all.
    #[arg(long, value_name = "[A-B=]MBIT")]
    rate: Vec<Setting>,
    /// What losses and jitter are drawn from: the same number, the same fates.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

impl LineArgs {
    fn with(self, round_trips: Vec<Setting>) -> Settings {
        Settings { round_trips, jitter: self.jitter, loss: self.loss, rates: self.rate }
    }
}

/// What lies between regions.
#[derive(Debug, Clone, clap::Args)]
struct Topology {
    /// Round trip between two regions in milliseconds; a region with itself too (a-a=1). May be given more than once. A
    /// pair that is not named is as far apart as the shortest way by others.
    #[arg(long, value_name = "A-B=MS")]
    rtt: Vec<Setting>,
    #[command(flatten)]
    line: LineArgs,
    /// Another figure from some second on: rtt, jitter, loss or rate. May be given more than once. `5:loss:a-b=100` cuts
    /// two regions off from each other.
    #[arg(long, value_name = "SECONDS:FIGURE:[A-B=]VALUE")]
    then: Vec<Change>,
    /// A host, and the region that it stands in. May be given more than once. Default: one in each region, called like
    /// it.
    #[arg(long, value_name = "NAME=REGION")]
    host: Vec<Placed>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    topology: Topology,
    /// The host that it runs on. Default: the first one.
    #[arg(long, value_name = "HOST")]
    on: Option<String>,
    /// Count the round trips of every connection, and show them when it has ended.
    #[arg(long, alias = "flights")]
    round_trips: bool,
    /// How they are shown; the command's own output goes where it goes.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Shell {
    #[command(flatten)]
    topology: Topology,
    /// The host that it runs on. Default: the first one.
    #[arg(long, value_name = "HOST")]
    on: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    #[command(flatten)]
    topology: Topology,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Topology {
    fn plan(self) -> CliResult<Plan> {
        let seed = self.line.seed;
        Plan::of(self.host, &self.line.with(self.rtt), seed)
            .and_then(|plan| plan.then(&self.then))
            .map_err(|error| CliError::new(error.to_string()))
    }
}

pub(super) async fn run(command: Command) -> CliResult<ExitCode> {
    match command {
        Command::Run(run) => {
            let plan = run.topology.clone().plan()?;
            in_wan(plan, run).await
        }
        Command::Shell(shell) => {
            let program = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
            let run = Run {
                topology: shell.topology.clone(),
                on: shell.on,
                round_trips: false,
                format: Format::Text,
                command: vec![program],
            };
            in_wan(shell.topology.plan()?, run).await
        }
        Command::Up(up) => {
            let plan = up.topology.plan()?;
            let format = up.format;
            until_told(STOPPING, move |_, talk| {
                let wan = Wan::up(&plan)?;
                let shown = show(&wan, format);
                while shown.is_ok() && !talk.stopping() {
                    std::thread::sleep(LOOK_EVERY);
                }
                say_who_stays(&wan, talk);
                shown.map_err(|error| LabError::Input(error.to_string()))
            })
            .await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Table(table) => {
            let usual = table::Settings::of(table.common.quick);
            let settings = table::Settings {
                rounds: table.rounds.unwrap_or(usual.rounds),
                placements: table.placement,
                seed: table.line.seed,
                figures: table.line.with(table.rtt),
                waterfalls: table.waterfalls,
                csv: table.common.csv.clone(),
            };
            measure(&table.common, move |program, talk| table::run(program, &settings, talk)).await
        }
        Command::Bulk(args) => {
            let (common, size, rounds, data) = (args.common.clone(), args.size, args.rounds, args.data);
            let usual = bulk::Settings::far(common.quick, args.far()?);
            let settings = bulk::Settings {
                size: size.map_or(usual.size, |mebibytes| mebibytes.clamp(1, 1 << 20) << 20),
                rounds: rounds.unwrap_or(usual.rounds),
                data: data.into(),
                csv: common.csv.clone(),
                ..usual
            };
            measure(&common, move |program, talk| bulk::run(program, &settings, talk)).await
        }
        Command::Congestion(args) => {
            let usual = congestion::Settings::of(args.common.quick);
            let settings = congestion::Settings {
                size: args.size.map_or(usual.size, |mebibytes| mebibytes.clamp(1, 1 << 20) << 20),
                rounds: args.rounds.unwrap_or(usual.rounds),
                seed: args.line.seed,
                head_start: usual.head_start,
                trickle: usual.trickle,
                figures: (!args.rtt.is_empty()).then(|| args.line.with(args.rtt)),
                csv: args.common.csv.clone(),
            };
            measure(&args.common, move |_, talk| congestion::run(&settings, talk)).await
        }
        Command::Clean => {
            let removed = wan::clean().map_err(|error| CliError::new(error.to_string()))?;
            for name in &removed {
                ui::data(name)?;
            }
            ui::say(format!("{} namespaces removed", removed.len()));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs a command, and gives its exit status as ours.
async fn in_wan(plan: Plan, run: Run) -> CliResult<ExitCode> {
    let (round_trips, format) = (run.round_trips, run.format);
    let (status, rows) = until_told(STOPPING, move |_, talk| {
        let wan = Wan::up(&plan)?;
        let host = on(&wan, run.on.as_deref())?;
        let ended = wan::run(&wan, host, &run.command, talk)?;
        say_who_stays(&wan, talk);
        if ended.capture.missed > 0 {
            talk.say(format!(
                "{} packets past the first {} are not counted",
                ended.capture.missed,
                wan::PACKETS_MOST
            ));
        }
        Ok((ended.status, wan::flows(&wan, &ended.capture)))
    })
    .await?;
    if round_trips {
        show_round_trips(&rows, format)?;
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn on<'a>(wan: &'a Wan, name: Option<&str>) -> Result<&'a Host, LabError> {
    let found = match name {
        Some(name) => wan.host(name),
        None => wan.hosts().first(),
    };
    found.ok_or_else(|| {
        let known: Vec<&str> = wan.hosts().iter().map(|host| host.name.as_str()).collect();
        LabError::Input(format!("there is no host {}; there are {}", name.unwrap_or("-"), known.join(", ")))
    })
}

/// Processes outlive the WAN that they are in, without a network: a user's shell, or a server in the background.
fn say_who_stays(wan: &Wan, talk: &Talk) {
    for (process, namespace) in wan.processes() {
        talk.say(format!("process {process} still runs in {namespace}, and is cut off now"));
    }
}

fn show(wan: &Wan, format: Format) -> CliResult {
    if format == Format::Json {
        let host = |host: &Host| {
            serde_json::json!({
                "name": host.name.as_str(), "region": host.region.as_str(), "namespace": host.namespace.name(),
                "v4": host.v4, "v6": host.v6,
            })
        };
        return ui::json(&wan.hosts().iter().map(host).collect::<Vec<_>>());
    }
    let mut headings = vec!["host", "region", "namespace", "address", "address (IPv6)"];
    headings.extend(wan.hosts().iter().map(|host| host.name.as_str()));
    let rows = wan.hosts().iter().enumerate().map(|(index, host)| {
        let mut row = vec![
            host.name.to_string(),
            host.region.to_string(),
            host.namespace.name().to_owned(),
            host.v4.to_string(),
            host.v6.to_string(),
        ];
        row.extend((0..wan.hosts().len()).map(|other| {
            let milliseconds = wan.between(index, other).round_trip.as_secs_f64() * 1e3;
            if other == index { "-".to_owned() } else { format!("{milliseconds} ms") }
        }));
        row
    });
    ui::table(&headings, rows.collect(), "there is no host")?;
    if let [one, other, ..] = wan.hosts() {
        ui::say(format!("try: ip netns exec {} ping {}", one.namespace.name(), other.name));
    }
    ui::say("Ctrl-C takes it down");
    Ok(())
}

fn show_round_trips(rows: &[sallyport_bench::report::Row], format: Format) -> CliResult {
    if format == Format::Json {
        return ui::json(&rows);
    }
    let headings: Vec<&str> = std::iter::once("flow")
        .chain(rows.first().into_iter().flat_map(|row| row.figures.iter().map(|figure| figure.name)))
        .collect();
    let lines = rows.iter().map(|row| {
        std::iter::once(row.what.clone()).chain(row.figures.iter().map(|figure| figure.text())).collect()
    });
    ui::table(&headings, lines.collect(), "no connection was seen")
}
