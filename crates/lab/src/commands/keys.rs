//! `sallyport lab keys`.

use std::process::ExitCode;

use sallyport_lab::keys;
use sallyport_sal::KeyAlgorithm;

use super::measuring::{at_least_one, budget, measure};
use super::output::Common;
use sallyport_cli::error::CliResult;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Types of keys. Default: all, RSA from 1024 to 8192 bits.
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    key: Vec<KeyAlgorithm>,
    /// Also make keys. For RSA that takes from tenths of seconds to a minute each.
    #[arg(long)]
    generate: bool,
    /// Every source, and not the one alone that is selected.
    #[arg(long)]
    all_sources: bool,
    /// Ask `openssl speed` too, a second for each operation.
    #[arg(long)]
    openssl: bool,
    /// Samples of each operation. Default: 101, or 51 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    passes: Option<usize>,
    /// After so long no more samples are taken. Default: 900, or 10 with --quick; none when --passes is given.
    #[arg(long, value_name = "SECONDS")]
    budget: Option<f64>,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let defaults = if args.common.quick { keys::Settings::quick() } else { keys::Settings::full() };
    let passes = args.passes.unwrap_or(defaults.effort.passes).min(100_000);
    let settings = keys::Settings {
        keys: if args.key.is_empty() { defaults.keys } else { args.key },
        generate: args.generate,
        all_sources: args.all_sources,
        openssl: args.openssl,
        effort: keys::Effort { passes, ..defaults.effort },
        budget: budget(args.budget, args.passes, defaults.budget)?,
        csv: args.common.csv.clone(),
    };
    measure(&args.common, move |_, talk| keys::run(&settings, talk)).await
}
