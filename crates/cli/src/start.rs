//! `sallyport start`: runs the services of a configuration file until told to stop.

use std::path::PathBuf;

use sallyport_server::Config;
/// A filter for logs, read as services read it.
pub(crate) use sallyport_server::log_filter;

use crate::error::{CliError, CliResult, chain};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration file; `sallyport configure` prints one.
    #[arg(long, short, default_value = "sallyport.yaml")]
    config: PathBuf,
    /// Check the configuration and exit.
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(args: Args) -> CliResult {
    let config = Config::load(&args.config).map_err(|errors| {
        CliError::of_lines(errors.to_string()).hint("sallyport configure  (prints a commented example)")
    })?;
    if args.check {
        crate::ui::data(format!("{} is right.", args.config.display()))?;
        return Ok(());
    }
    sallyport_server::run(config, &args.config)
        .await
        .map_err(|error| CliError::new(chain(&error, &error.to_string())))
}
