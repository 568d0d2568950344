//! Measurements run on a thread of their own, beside a watch for signals.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_bench::report::Report;
use sallyport_cli::error::{CliError, CliResult, Context, Exit};
use sallyport_lab::LabError;
use tokio::signal::unix::{SignalKind, signal};

use super::output::{Common, exit_code, show};
use super::progress::Progress;

/// A number of rounds.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number from 1 up".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// How long a measurement may take: as long as it was said, as long as the rounds take that were asked for, or as usual.
pub(super) fn budget(given: Option<f64>, rounds: Option<usize>, usual: Duration) -> CliResult<Duration> {
    const LONGEST: f64 = 7.0 * 86_400.0;
    match given {
        Some(seconds) if (0.001..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Some(seconds) => Err(CliError::new(format!(
            "--budget {seconds}: expected seconds, more than 0 and at most {LONGEST}"
        ))
        .exit(Exit::Usage)),
        None if rounds.is_some() => Ok(Duration::from_secs_f64(LONGEST)),
        None => Ok(usual),
    }
}

/// Runs a measurement beside a watch for Ctrl-C, and shows what it gives.
pub(super) async fn measure(
    common: &Common,
    measurement: impl FnOnce(&Path, &Talk) -> Result<Report, LabError> + Send + 'static,
) -> CliResult<ExitCode> {
    common.prepare()?;
    let report = beside_a_watch(measurement).await?;
    show(&report, common)?;
    Ok(exit_code(&report, common))
}

/// The `sallyport` that is measured: the one that started this program, or the one beside it, or that of `PATH`.
pub(super) fn measured_program() -> CliResult<PathBuf> {
    sallyport_cli::lab::program(sallyport_cli::lab::PROGRAM_VARIABLE, "sallyport").ok_or_else(|| {
        CliError::new("cannot find sallyport, which is what the lab measures")
            .hint("put it beside sallyport-lab or on PATH")
    })
}

/// Does work of the lab, which gets the path of `sallyport`, and tells it when the user presses Ctrl-C.
pub(super) async fn beside_a_watch<T: Send + 'static>(
    work: impl FnOnce(&Path, &Talk) -> Result<T, LabError> + Send + 'static,
) -> CliResult<T> {
    until_told("stopping after this sample; what there is will be shown (once more: at once)", work).await
}

/// The same, with what is said then.
pub(super) async fn until_told<T: Send + 'static>(
    stopping: &'static str,
    work: impl FnOnce(&Path, &Talk) -> Result<T, LabError> + Send + 'static,
) -> CliResult<T> {
    let program = measured_program()?;
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(Progress::new());
    let (lines, shares) = (Arc::clone(&progress), Arc::clone(&progress));
    let talk = Talk::new(move |line| lines.say(line), Arc::clone(&stop))
        .with_progress(move |share, what| shares.show(share, what));
    let mut working = tokio::task::spawn_blocking(move || work(&program, &talk));
    // What runs under timeout(1), a service manager or a terminal that is closed ends in order, too.
    let mut asked = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .map(signal)
        .collect::<Result<Vec<_>, _>>()
        .doing("watch for signals")?;
    let done = loop {
        let heard = futures::future::select_all(asked.iter_mut().map(|one| Box::pin(one.recv())));
        tokio::select! {
            done = &mut working => break done.doing("measure")?,
            _ = heard => {
                if stop.swap(true, Ordering::Relaxed) {
                    return Err(CliError::new("interrupted twice; what the lab started may still be running"));
                }
                progress.say(stopping);
            }
        }
    };
    progress.finish();
    done.map_err(|error| CliError::new(error.to_string()))
}
