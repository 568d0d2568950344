//! Instructions of workloads of the access path, counted under `valgrind`: figures that do not depend on what else the machine
//! does, nor on how fast it is.
//!
//! Each workload runs in a process of its own, some number of times and twice as many; the difference is what so many cost, and
//! the start of the program is in neither.

pub mod saved;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Aim, Csv, Report, Row};

pub use saved::Counted;
pub use workloads::{WORKLOADS, Workload};

use self::saved::Saved;
use crate::LabError;

/// A workload that costs more than this share above what was saved has become worse.
const TOLERANCE: f64 = 0.02;
/// How long a run may take; a build without optimisations takes most.
const PATIENCE: Duration = Duration::from_secs(300);
/// The kernel's and the program's own choices that vary are not left to the machine: sources of cryptography as preset.
const FIXED: [(&str, &str); 1] = [("SALLYPORT_CRYPTO", "preset")];
const INSTALL: &str = "install valgrind";

/// What to count.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Figures to compare with.
    pub baseline: Option<Saved>,
    /// How much less work than usual: so many are done instead of as many as make a difference plain.
    pub divisor: u64,
    /// Where every count goes.
    pub csv: Option<PathBuf>,
}

/// Counts. `arguments` are those with which `program` does a workload, up to its name and number.
///
/// # Errors
/// When there is no `valgrind`, or a workload does not work.
pub fn run(
    program: &Path,
    arguments: &[&str],
    settings: &Settings,
    talk: &Talk,
) -> Result<(Report, Vec<Counted>), LabError> {
    let version = valgrind()?;
    let mut csv = Csv::create(settings.csv.as_deref(), "piece,count,instructions")?;
    let watch = Watch::begin();
    let mut counted = Vec::new();
    for (at, workload) in settings.workloads.iter().enumerate() {
        talk.progress(at, settings.workloads.len(), workload.name());
        if talk.stopping() {
            break;
        }
        let count = (workload.count() / settings.divisor.max(1)).max(1);
        let mut both = [0; 2];
        for (total, count) in both.iter_mut().zip([count, count * 2]) {
            *total = instructions(program, arguments, *workload, count, talk)?;
            csv.line(&format!("{},{count},{total}", workload.name()))?;
        }
        let [once, twice] = both;
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = twice.saturating_sub(once) as f64 / (count * workload.units()) as f64;
        talk.say(format!("{}: {each:.0} instructions for a {}", workload.name(), workload.unit()));
        counted.push(Counted { workload: *workload, each });
    }
    let mut report = Report::of("instructions", &watch, talk);
    for one in &counted {
        let before = settings.baseline.as_ref().and_then(|saved| saved.of(one.workload.name()));
        let change = before.map(|before| (one.each / before - 1.0) * 100.0);
        report.rows.push(
            Row::new(format!("{}, {}", one.workload.name(), one.workload.unit()))
                .with("instructions", 0, one.each)
                .with("saved", 0, before)
                .with("change %", 1, change),
        );
        if let Some(before) = before {
            let what = format!("{}, times what was saved", one.workload.name());
            report.aims.push(Aim::at_most(&what, one.each / before, 1.0 + TOLERANCE, "x"));
        }
    }
    report.conditions = vec![
        format!("{version}, callgrind: instructions of user space, of all threads"),
        "valgrind shows programs a processor without AVX-512, VAES and SHA extensions: cryptography takes its paths for AVX2 \
         and AES-NI"
            .to_owned(),
        "each workload so many times and twice as many, in processes of their own; figures are of the difference".to_owned(),
    ];
    if cfg!(debug_assertions) {
        report.notes.push("built without optimisations: these figures mean nothing".to_owned());
    }
    Ok((report, counted))
}

/// What it calls itself.
fn valgrind() -> Result<String, LabError> {
    let output = Command::new("valgrind").arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|source| LabError::Missing {
        program: "valgrind".to_owned(),
        source,
        hint: INSTALL,
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// All instructions of a process that does a workload so many times.
fn instructions(
    program: &Path,
    arguments: &[&str],
    workload: Workload,
    count: u64,
    talk: &Talk,
) -> Result<u64, LabError> {
    let failed = |said: String| LabError::Failed {
        what: format!("counting the instructions of {}", workload.name()),
        said,
    };
    let child = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .arg(workload.name())
        .arg(count.to_string())
        .envs(FIXED)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.map_err(|source| LabError::Missing {
        program: "valgrind".to_owned(),
        source,
        hint: INSTALL,
    })?;
    let output = wait(child, talk).map_err(|why| failed(why.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, last_lines(&said))));
    }
    collected(&said).ok_or_else(|| failed(format!("valgrind gave no count: {}", last_lines(&said))))
}

/// Why a run gave no count.
#[derive(Debug, thiserror::Error)]
enum Unfinished {
    #[error("interrupted")]
    Interrupted,
    #[error("it took too long")]
    Late,
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Waits for a child for as long as it may take, and no longer than until it is told to stop.
fn wait(mut child: Child, talk: &Talk) -> Result<std::process::Output, Unfinished> {
    let began = std::time::Instant::now();
    // Its standard error is short: a count and, where it fails, a line.
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(child.wait_with_output()?),
            Ok(None) if talk.stopping() || began.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(if talk.stopping() { Unfinished::Interrupted } else { Unfinished::Late });
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The count in what callgrind says at its end: `==123== Collected : 3413009`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().rev().find_map(|line| line.split_once("Collected : "))?.1;
    line.split_whitespace().next()?.parse().ok()
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().rev().take(6).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        let said =
            "==7== Events    : Ir\n==7== Collected : 3413009\n==7== \n==7== I   refs:      3,413,009\n";
        assert_eq!(collected(said), Some(3_413_009));
        assert_eq!(collected("nothing"), None);
    }
}
