//! `sallyport lab flame`: where the processor time of a cluster's processes goes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use sallyport_lab::flame::{self, LOADS, SERVICES};

use super::measuring::{at_least_one, measure};
use super::output::Common;
use sallyport_cli::error::{CliError, CliResult, Exit};
use sallyport_cli::ui;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// What keeps the cluster busy. Default: cold, warm, legacy, download, upload; database and copy need PostgreSQL.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(LOADS.map(flame::Load::name)))]
    under: Vec<String>,
    /// Which processes are looked at. Default: proxy, node.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(SERVICES.map(flame::Service::name)))]
    of: Vec<String>,
    /// How long each. Default: 20, or 4 with --quick.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Samples for a second of processor time.
    #[arg(long, value_name = "COUNT", default_value_t = 499, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Connections or transfers at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = at_least_one)]
    at_a_time: usize,
    /// MiB of one transfer.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    size: u64,
    /// Write the folded stacks as text into this directory, for other programs.
    #[arg(long, value_name = "DIRECTORY")]
    folded: Option<PathBuf>,
}

impl Args {
    fn settings(&self) -> CliResult<flame::Settings> {
        let usual = flame::Settings::of(self.common.quick);
        let time = match self.seconds {
            None => usual.time,
            Some(seconds) if (0.5..=3600.0).contains(&seconds) => Duration::from_secs_f64(seconds),
            Some(seconds) => {
                return Err(
                    CliError::new(format!("--seconds {seconds}: expected 0.5 to 3600")).exit(Exit::Usage)
                );
            }
        };
        let loads =
            LOADS.into_iter().filter(|load| self.under.iter().any(|name| name == load.name())).collect();
        let services = SERVICES
            .into_iter()
            .filter(|service| self.of.iter().any(|name| name == service.name()))
            .collect();
        Ok(flame::Settings {
            loads: if self.under.is_empty() { usual.loads } else { loads },
            services: if self.of.is_empty() { usual.services } else { services },
            time,
            rate: self.rate,
            workers: self.at_a_time.min(256),
            size: self.size.clamp(1, 1 << 14),
            folded: self.folded.clone(),
        })
    }
}

pub(crate) async fn run(args: Args) -> CliResult<ExitCode> {
    let settings = args.settings()?;
    if args.common.csv.is_some() {
        return Err(
            CliError::new("samples of stacks are no table: --folded DIRECTORY has them").exit(Exit::Usage)
        );
    }
    if args.common.svg.is_none() && args.common.html.is_none() {
        ui::say("the graphs themselves are written with --svg DIRECTORY or --html FILE");
    }
    let folded = settings.folded.clone();
    let code = measure(&args.common, move |program, talk| flame::run(program, &settings, talk)).await?;
    if let Some(directory) = folded {
        ui::say(format!("the folded stacks are in {}", directory.display()));
    }
    Ok(code)
}
