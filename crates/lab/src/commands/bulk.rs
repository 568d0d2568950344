//! `sallyport lab bulk`.

use std::process::ExitCode;
use std::time::Duration;

use sallyport_cli::error::CliResult;
use sallyport_lab::bulk;

use super::measuring::{at_least_one, measure};
use super::output::Common;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum DataArg {
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

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
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
