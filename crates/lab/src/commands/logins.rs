//! `sallyport lab logins`.

use std::process::ExitCode;
use std::time::Duration;

use sallyport_cli::error::CliResult;
use sallyport_lab::logins;

use super::measuring::{at_least_one, measure};
use super::output::Common;
use super::sessions::dialler;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// How long each way of logging in is pressed. Default: 20, or 3 with --quick.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Logins at a time.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 16)]
    at_once: usize,
    /// Passkey logins a second while sessions connect.
    #[arg(long, value_name = "A_SECOND", value_parser = clap::value_parser!(u32).range(1..=5000), default_value_t = 500)]
    rate: u32,
    /// Rounds of sessions: some without logins, and as many beside them. Default: 8, or 3 with --quick.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Sessions of each kind in a round. Default: 25, or 10 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    sessions: Option<usize>,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let usual = logins::Settings::of(args.common.quick);
    let settings = logins::Settings {
        length: args.seconds.map_or(usual.length, Duration::from_secs),
        at_once: args.at_once,
        rate: f64::from(args.rate),
        rounds: args.rounds.unwrap_or(usual.rounds),
        sessions: args.sessions.unwrap_or(usual.sessions),
        csv: args.common.csv.clone(),
    };
    measure(&args.common, move |program, talk| logins::run(program, &settings, talk, &dialler)).await
}
