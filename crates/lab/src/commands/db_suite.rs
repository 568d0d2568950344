//! `sallyport lab db-suite`.

use std::process::ExitCode;

use sallyport_cli::error::{CliResult, Context};
use sallyport_lab::databases;
use sallyport_sal::Suite;

use super::measuring::{at_least_one, measure};
use super::output::Common;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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

impl Args {
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

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let settings = args.settings()?;
    measure(&args.common, move |program, talk| databases::run(program, &settings, talk)).await
}
