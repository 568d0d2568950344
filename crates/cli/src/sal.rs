//! `sallyport sal`: what the cryptography here is made of, and what it costs.

mod handshakes;
mod issuance;
mod plot;
mod report;
mod shown;
mod speed;
mod tune;

use crate::error::CliResult;
use crate::global::Global;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Sal {
    /// Which sources stand behind every algorithm, and why.
    Report(report::Args),
    /// Measure every source on this machine and save what is fastest.
    Tune(tune::Args),
    /// The full table: every source for every primitive, as `openssl speed` would show it.
    Speed(speed::Args),
    /// TLS 1.3 handshakes a second: composed of the best sources, by each source alone, by rustls' default, and by Go.
    Handshakes(handshakes::Args),
    /// Certificates a second on one core, for each suite, and how much of that is the signature.
    Issuance(issuance::Args),
}

/// Runs one of them. They take no connection and no login.
pub(crate) fn run(global: &Global, command: Sal) -> CliResult {
    match command {
        Sal::Report(args) => report::run(&args),
        Sal::Tune(args) => tune::run(global, &args),
        Sal::Speed(args) => speed::run(&args),
        Sal::Handshakes(args) => handshakes::run(&args),
        Sal::Issuance(args) => issuance::run(&args),
    }
}
