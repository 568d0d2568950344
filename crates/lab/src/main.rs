//! The `sallyport-lab` command: what keys, handshakes, servers and whole clusters cost on this machine.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments of arguments are help text, where brackets mean optional"
)]

mod commands;

use std::process::ExitCode;

use clap::Parser;
use sallyport_cli::error::{CliResult, Context};
use sallyport_cli::{Global, ui};

/// Measure what keys, handshakes, servers and whole clusters cost on this machine, and review what servers offer.
///
/// Exit codes: 0 done, 1 failed or found something, 2 wrong usage, 130 interrupted.
///
/// SALLYPORT_CRYPTO chooses the sources of cryptography: measured, preset, only:NAME or fips. SALLYPORT_PROGRAM is the
/// `sallyport` that is measured; without it that beside this program, then that of PATH.
#[derive(Debug, Parser)]
#[command(name = "sallyport-lab", bin_name = "sallyport lab", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: commands::Lab,
}

fn main() -> ExitCode {
    // What is measured here in one process runs sessions in children of the same program.
    if std::env::args_os().nth(1).is_some_and(|first| first == sallyport_ssh::helper::ARGUMENT) {
        return sallyport_ssh::helper::main(std::env::args_os().skip(2));
    }
    let cli = Cli::parse();
    sallyport_cli::log_to_stderr(&cli.global);
    match sallyport_cli::configure_measured(&cli.global).and_then(|()| run(cli.command)) {
        Ok(code) => code,
        Err(error) => {
            ui::say(error.to_string());
            error.exit_code()
        }
    }
}

fn run(command: commands::Lab) -> CliResult<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("start the asynchronous runtime")?;
    let outcome = runtime.block_on(commands::run(command));
    // A stuck look-up on a blocking thread must not keep the process.
    runtime.shutdown_background();
    outcome
}
