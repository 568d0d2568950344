//! `sallyport lab`: what a cluster costs on this machine, against stock OpenSSH.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sallyport_lab::report::Report;
use sallyport_lab::{LabError, Talk, bulk, connect};

use crate::error::{CliError, CliResult, Context};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Lab {
    /// From nothing to the exit status of `true`: own client and stock ssh through the cluster, against stock ssh to a
    /// stock sshd, in turns.
    Connect(ConnectArgs),
    /// Much data down and up, through a recorded session and by scp, against stock OpenSSH; and ends that stand still.
    Bulk(BulkArgs),
}

/// What every measurement takes.
#[derive(Debug, clap::Args)]
struct Common {
    /// Write every sample to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
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
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    common: Common,
    /// MiB of one transfer. Default: 1024, or 128 with --quick.
    #[arg(long, value_name = "MIB")]
    size: Option<u64>,
    /// Rounds; each transfers once every way. Default: 3, or 1 with --quick.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// What is transferred.
    #[arg(long, value_enum, default_value = "mixed")]
    data: DataArg,
    /// Seconds to watch an end that stands still; 0 leaves that out. Default: 30, or 5 with --quick.
    #[arg(long, value_name = "SECONDS")]
    stalled: Option<u64>,
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
            let settings = connect::Settings {
                rounds: args.rounds.unwrap_or(if args.common.quick { 20 } else { 200 }),
                in_a_row: if args.common.quick { 20 } else { 100 },
                csv: args.common.csv.clone(),
            };
            measure(&args.common, move |program, talk| connect::run(program, &settings, talk)).await
        }
        Lab::Bulk(args) => {
            let quick = args.common.quick;
            let settings = bulk::Settings {
                size: args.size.unwrap_or(if quick { 128 } else { 1024 }).clamp(1, 1 << 20) << 20,
                rounds: args.rounds.unwrap_or(if quick { 1 } else { 3 }),
                data: args.data.into(),
                stalled: std::time::Duration::from_secs(args.stalled.unwrap_or(if quick { 5 } else { 30 })),
                csv: args.common.csv.clone(),
            };
            measure(&args.common, move |program, talk| bulk::run(program, &settings, talk)).await
        }
    }
}

/// Runs a measurement beside a watch for Ctrl-C, and shows what it gives.
async fn measure(
    common: &Common,
    measurement: impl FnOnce(&std::path::Path, &Talk) -> Result<Report, LabError> + Send + 'static,
) -> CliResult<ExitCode> {
    let program = std::env::current_exe().doing("find the path of this program")?;
    let stop = Arc::new(AtomicBool::new(false));
    let talk = Talk::new(|line| ui::say(line), Arc::clone(&stop));
    let mut measuring = tokio::task::spawn_blocking(move || measurement(&program, &talk));
    let report = loop {
        tokio::select! {
            done = &mut measuring => break done.doing("measure")?,
            _ = tokio::signal::ctrl_c() => {
                if stop.swap(true, Ordering::Relaxed) {
                    return Err(CliError::new("interrupted twice; what the lab started may still be running"));
                }
                ui::say("stopping after this sample; what there is will be shown (once more: at once)");
            }
        }
    };
    let report = report.map_err(|error| CliError::new(error.to_string()))?;
    show(&report, common)?;
    let missed = report.aims.iter().any(|aim| !aim.reached);
    Ok(if common.strict && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(report: &Report, common: &Common) -> CliResult {
    if let Some(warning) = report.noise.warning() {
        ui::say(warning);
    }
    if let Some(path) = &common.csv {
        ui::say(format!("every sample is in {}", path.display()));
    }
    if common.format == Format::Json {
        return ui::json(report);
    }
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
    ui::data("")?;
    for aim in &report.aims {
        ui::data(format!(
            "{}  {}; got {}",
            if aim.reached { "ok     " } else { "MISSED " },
            aim.what,
            aim.got
        ))?;
    }
    if report.interrupted {
        ui::say("interrupted: fewer samples than asked for");
    }
    Ok(())
}
