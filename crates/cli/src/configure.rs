//! `sallyport configure`: a commented configuration file.

use crate::error::CliResult;
use crate::ui;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> CliResult {
    ui::raw(sallyport_server::Config::commented_example().as_bytes())
}
