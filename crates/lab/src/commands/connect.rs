//! `sallyport lab connect`.

use std::process::ExitCode;

use sallyport_cli::error::CliResult;
use sallyport_lab::connect;

use super::measuring::{at_least_one, measure};
use super::output::Common;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Rounds; each connects once every way. Default: 200, or 20 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// Connections in a row, for the processor time of one. Default: 100, or 20 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    in_a_row: Option<usize>,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let usual = connect::Settings::of(args.common.quick);
    let settings = connect::Settings {
        rounds: args.rounds.unwrap_or(usual.rounds),
        in_a_row: args.in_a_row.unwrap_or(usual.in_a_row),
        csv: args.common.csv.clone(),
    };
    measure(&args.common, move |program, talk| connect::run(program, &settings, talk)).await
}
