//! `sallyport lab browser`: what a handshake costs a real browser.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sallyport_lab::browser::{self, Settings};

use super::measuring::{at_least_one, budget};
use super::output::Common;
use sallyport_cli::error::CliResult;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Rounds; each starts one browser for every row. Default: 15, or 6 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// The browser. Default: the first of chromium, chromium-browser and google-chrome on the PATH.
    #[arg(long, value_name = "PATH")]
    browser: Option<PathBuf>,
    /// How long a browser rests between its first page and the one that is measured. Default: 1000, or 500 with --quick.
    #[arg(long, value_name = "MILLISECONDS")]
    settle: Option<u64>,
    /// After so long no more samples are taken. Default: 600, or 36 with --quick; none when --rounds is given.
    #[arg(long, value_name = "SECONDS")]
    budget: Option<f64>,
}

pub(crate) async fn run(args: Args) -> CliResult<ExitCode> {
    let default = if args.common.quick { Settings::quick() } else { Settings::full() };
    let settings = Settings {
        rounds: args.rounds.unwrap_or(default.rounds).min(10_000),
        browser: args.browser,
        settle: args.settle.map_or(default.settle, |settle| Duration::from_millis(settle.min(5_000))),
        budget: budget(args.budget, args.rounds, default.budget)?,
        csv: args.common.csv.clone(),
    };
    super::measuring::measure(&args.common, move |_, talk| browser::run(&settings, talk)).await
}
