//! `sallyport sal issuance`.

use std::time::{Duration, Instant};

use sallyport_ca::CaError;
use sallyport_ca::measure::{Measured, Workbench};
use sallyport_sal::Suite;
use sallyport_sal::economy::thread_cpu;
use serde_json::json;

use super::shown::bar;
use crate::error::{CliResult, Context};
use crate::ui::{self, Format};

/// How often every row takes a turn, so that a disturbance hits all of them alike.
const TURNS: u32 = 8;
/// One batch of certificates, of which the quickest counts: some meet a quiet moment.
const BATCH: Duration = Duration::from_millis(4);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Suites. Default: every one.
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    suite: Vec<Suite>,
    /// How long it may take altogether, in seconds.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// What was measured of one certificate in one suite.
struct Row {
    suite: Suite,
    measured: Measured,
    bench: Workbench,
    /// Nanoseconds of a certificate over a key that is there, and of the signature in it: of the quickest batch.
    ready: (f64, f64),
    /// Processor time of certificates over keys that had to be made, and how many.
    anew: (Duration, u32),
}

pub(super) fn run(args: &Args) -> CliResult {
    let suites = if args.suite.is_empty() { Suite::ALL } else { &args.suite };
    let mut rows = Vec::new();
    for suite in suites {
        for measured in Measured::ALL {
            let doing = || format!("make keys for {} in {suite}", measured.name());
            let bench = Workbench::new(*suite, *measured).doing(doing())?;
            let (ready, anew) = ((f64::INFINITY, 0.0), (Duration::ZERO, 0));
            rows.push(Row { suite: *suite, measured: *measured, bench, ready, anew });
        }
    }
    let all = u32::try_from(rows.len()).unwrap_or(u32::MAX).saturating_mul(TURNS);
    let turn = Duration::from_secs(args.seconds.into()) / all.max(1) / 2;
    let bar = bar();
    bar.set_length(all.into());
    for number in 1..=TURNS {
        for row in &mut rows {
            bar.set_message(format!("{} {}", row.suite, row.measured.name()));
            row.take_turn(turn, turn * number).doing("issue a certificate")?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    print(args, &rows)
}

impl Row {
    /// `share` is what certificates over new keys may have taken by the end of this turn.
    fn take_turn(&mut self, turn: Duration, share: Duration) -> Result<(), CaError> {
        let began = Instant::now();
        while began.elapsed() < turn {
            let (started, mut signing, mut count) = (Instant::now(), Duration::ZERO, 0_u32);
            while started.elapsed() < BATCH {
                signing += self.bench.issue()?;
                count += 1;
            }
            let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(count.max(1));
            let (whole, signature) = (each(started.elapsed()), each(signing));
            if whole < self.ready.0 {
                self.ready = (whole, signature);
            }
        }
        // How long an RSA key takes is a matter of luck, so that the mean counts and not the least. One may take more
        // than a turn; then the next turns have none.
        while self.anew.0 < share {
            let before = thread_cpu();
            self.bench.issue_for_a_new_key()?;
            self.anew.0 += thread_cpu().saturating_sub(before);
            self.anew.1 += 1;
        }
        Ok(())
    }

    fn per_second(&self) -> f64 {
        1e9 / self.ready.0
    }

    fn per_second_with_a_new_key(&self) -> f64 {
        f64::from(self.anew.1) / self.anew.0.as_secs_f64().max(1e-9)
    }

    /// Of the time, between 0 and 1.
    fn in_the_signature(&self) -> f64 {
        self.ready.1 / self.ready.0
    }
}

fn print(args: &Args, rows: &[Row]) -> CliResult {
    if args.format == Format::Json {
        let all = rows.iter().map(|row| {
            json!({
                "suite": row.suite,
                "certificate": row.measured.name(),
                "authority_key": row.bench.signer(),
                "subject_key": row.bench.subject(),
                "certificates_per_second": row.per_second().round(),
                "certificates_per_second_with_a_new_key": rounded(row.per_second_with_a_new_key()),
                "share_in_signature": (row.in_the_signature() * 1000.0).round() / 1000.0,
            })
        });
        return ui::json(&all.collect::<Vec<_>>());
    }
    let cells = rows.iter().map(|row| {
        vec![
            row.suite.to_string(),
            row.measured.name().to_owned(),
            row.bench.signer().to_string(),
            row.bench.subject().to_string(),
            format!("{:.0}", row.per_second()),
            rounded(row.per_second_with_a_new_key()).to_string(),
            format!("{:.0} %", row.in_the_signature() * 100.0),
        ]
    });
    ui::table(
        &["suite", "certificate", "authority key", "subject key", "a second", "key made too", "signature"],
        cells.collect(),
        "nothing was measured",
    )?;
    ui::say(
        "certificates a second on one core: the key there, by the least time of all batches; and the key made",
    );
    ui::say(
        "for it, by the mean of the processor time. The last column is the part of the first in the signature.",
    );
    Ok(())
}

/// Whole numbers, but for those below ten.
fn rounded(rate: f64) -> f64 {
    if rate < 10.0 { (rate * 10.0).round() / 10.0 } else { rate.round() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn small_rates_keep_a_digit() {
        assert_eq!(
            (super::rounded(3.149), super::rounded(9.96), super::rounded(1234.4)),
            (3.1, 10.0, 1234.0)
        );
    }
}
