//! `sallyport lab instructions`: what workloads of the access path cost, in instructions.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use sallyport_lab::instructions::saved::Saved;
use sallyport_lab::instructions::{self, WORKLOADS, Workload};

use super::measuring::beside_a_watch;
use super::output::{Common, exit_code, show};
use sallyport_cli::error::{CliError, CliResult, Context};
use sallyport_cli::ui;

/// With which this program does one workload: what runs under valgrind.
const DO: [&str; 2] = ["instructions", "--do"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Which workloads. Default: all.
    #[arg(long, alias = "piece", value_name = "NAME,...", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(WORKLOADS.map(Workload::name)))]
    workload: Vec<String>,
    /// Compare with figures that were saved; with --strict the exit code is 1 when a workload has become 2 % worse.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Save the figures into this file, to compare with later.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Do a workload so many times, and count nothing.
    #[arg(long = "do", hide = true, num_args = 2, value_names = ["NAME", "COUNT"])]
    once: Vec<String>,
}

pub(crate) async fn run(args: Args) -> CliResult<ExitCode> {
    if let [name, count] = args.once.as_slice() {
        let workload = WORKLOADS.into_iter().find(|workload| workload.name() == name);
        let workload = workload.ok_or_else(|| CliError::new(format!("there is no workload {name:?}")))?;
        let count = count.parse().doing("understand how often")?;
        // A runtime of its own, on a thread of its own.
        let done = tokio::task::spawn_blocking(move || workload.run(count)).await.doing("do a workload")?;
        return done.map(|()| ExitCode::SUCCESS).map_err(|error| CliError::new(error.to_string()));
    }
    let common = args.common;
    common.prepare()?;
    let chosen = |workload: &Workload| {
        args.workload.is_empty() || args.workload.iter().any(|name| name == workload.name())
    };
    let settings = instructions::Settings {
        workloads: WORKLOADS.into_iter().filter(chosen).collect(),
        baseline: args
            .baseline
            .as_deref()
            .map(Saved::read)
            .transpose()
            .doing("compare with what was saved")?,
        divisor: if common.quick { 4 } else { 1 },
        csv: common.csv.clone(),
    };
    let lab = std::env::current_exe().doing("find the path of this program")?;
    let counted = beside_a_watch(move |_, talk| instructions::run(&lab, &DO, &settings, talk)).await;
    let (report, counted) = counted?;
    show(&report, &common)?;
    if let Some(path) = &args.save {
        std::fs::write(path, Saved::text(&counted)).doing(format!("write {}", path.display()))?;
        ui::say(format!("the figures are in {}", path.display()));
    }
    Ok(exit_code(&report, &common))
}
