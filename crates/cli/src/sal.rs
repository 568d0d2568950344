//! `sallyport sal`: what the cryptography here is made of, and what it costs.

mod handshakes;
mod issuance;
mod plot;
mod report;
mod speed;
mod tune;

use indicatif::{ProgressBar, ProgressStyle};
use sallyport_sal::measure::table::Progress;

use crate::Global;
use crate::error::CliResult;

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

/// A bar on the terminal's stderr; nothing where there is no terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("  {bar:30} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.all as u64);
    bar.set_position(progress.done as u64);
    bar.set_message(
        progress.primitive.map_or_else(|| "every source in turn".to_owned(), |one| one.to_string()),
    );
}

/// Microseconds with three significant digits: `0.64`, `44.1`, `638`, `4,424`.
fn microseconds(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_as_many_digits_as_they_deserve() {
        assert_eq!(super::microseconds(0.638), "0.64");
        assert_eq!(super::microseconds(44.08), "44.1");
        assert_eq!(super::microseconds(4424.4), "4424");
    }
}
