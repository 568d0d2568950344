//! Runs the fuzz targets for a time each, from the inputs that are kept with them, and says what was executed, covered and
//! found.
//!
//! No other toolchain is needed: the compiler's coverage passes are stable options, and what they are for is code without
//! `unsafe`, so that there is nothing for a sanitizer of addresses to find.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::metadata::{cargo, host_target};

pub(crate) const USAGE: &str = "\
cargo xtask fuzz [TARGET..] run the fuzz targets, all or those named, from the inputs in fuzz/corpus
    --time TIME             of each target: 5s (the default), 20m, 1h
    --keep                  put inputs that reach something new into fuzz/corpus, as few as do
";

const DIRECTORY: &str = "fuzz";
/// What makes code tell the fuzzer which of its branches run and what it compares.
const INSTRUMENT: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks";
/// Longest input, in bytes: what strangers may send before they are known is bounded far below.
const LONGEST_INPUT_BYTES: usize = 16 * 1024;
/// What one input may take: memory in MiB, and seconds.
const MEMORY_MIB: usize = 1024;
const INPUT_SECONDS: usize = 10;
const DEFAULT_SECONDS: u64 = 5;

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    targets: Vec<String>,
    seconds: u64,
    keep: bool,
}

/// What became of one target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    target: String,
    executions: u64,
    covered: u64,
    inputs: u64,
    /// What is wrong, in the fuzzer's words.
    found: Option<String>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let all = targets()?;
    let asked = Asked::parse(arguments, &all)?;
    let built = build()?;
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(asked.targets.len()) {
            scope.spawn(|| {
                while let Some(target) = asked.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = fuzz(&built, target, &asked);
                    let mut outcomes = outcomes.lock();
                    println!("{}", line(&outcome));
                    outcomes.push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner();
    println!(
        "{} targets, {} s each, {} executions in {} s",
        outcomes.len(),
        asked.seconds,
        outcomes.iter().map(|outcome| outcome.executions).sum::<u64>(),
        began.elapsed().as_secs()
    );
    let found: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.found.is_some()).collect();
    if found.is_empty() {
        return Ok(());
    }
    let words =
        found.iter().map(|one| format!("{}: {}", one.target, one.found.as_deref().unwrap_or_default()));
    Err(words.collect::<Vec<_>>().join("\n"))
}

fn line(outcome: &Outcome) -> String {
    let Outcome { target, executions, covered, inputs, found } = outcome;
    let found = if found.is_some() { "FAILED" } else { "ok" };
    format!("{found:6}  {target:20}  {executions:>10} executions  {covered:>6} edges  {inputs:>5} inputs")
}

impl Asked {
    fn parse(arguments: &[String], all: &BTreeSet<String>) -> Result<Self, String> {
        let mut asked = Self { targets: Vec::new(), seconds: DEFAULT_SECONDS, keep: false };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--keep" => asked.keep = true,
                "--time" => {
                    let text = words.next().ok_or_else(|| format!("--time wants a time\n{USAGE}"))?;
                    asked.seconds = seconds(text).ok_or_else(|| {
                        format!("--time {text}: not a time like 5s, 20m or 1h, of a second at least\n{USAGE}")
                    })?;
                }
                name if all.contains(name) => asked.targets.push(name.to_owned()),
                other => {
                    let known = all.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
                    return Err(format!(
                        "{other:?} is neither an option nor a fuzz target; there are: {known}"
                    ));
                }
            }
        }
        if asked.targets.is_empty() {
            asked.targets = all.iter().cloned().collect();
        }
        Ok(asked)
    }
}

fn seconds(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit {
        's' => number,
        'm' => number.checked_mul(60)?,
        'h' => number.checked_mul(3600)?,
        _ => return None,
    };
    (seconds > 0).then_some(seconds)
}

/// Names of the targets: their files'.
fn targets() -> Result<BTreeSet<String>, String> {
    let directory = Path::new(DIRECTORY).join("fuzz_targets");
    let entries =
        fs::read_dir(&directory).map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
    let names = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_target =
            path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("mod.rs");
        is_target.then(|| path.file_stem()?.to_str().map(str::to_owned))?
    });
    Ok(names.collect())
}

/// Builds the program of all targets; where it is.
fn build() -> Result<PathBuf, String> {
    // The versions that everything else is built with.
    let lock = Path::new(DIRECTORY).join("Cargo.lock");
    if !lock.exists() {
        fs::copy("Cargo.lock", &lock).map_err(|error| format!("cannot write {}: {error}", lock.display()))?;
    }
    let host = host_target()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let target = std::path::absolute(target).map_err(|error| error.to_string())?.join("fuzz");
    let status = cargo()
        .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &host])
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", INSTRUMENT)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build".to_owned());
    }
    Ok(target.join(host).join("release"))
}

fn program(built: &Path, target: &str) -> Command {
    let mut command = Command::new(built.join("fuzz"));
    command.env("SALLYPORT_FUZZ_TARGET", target);
    command
}

/// Runs one target.
fn fuzz(built: &Path, target: &str, asked: &Asked) -> Outcome {
    let outcome = try_fuzz(built, target, asked);
    outcome.unwrap_or_else(|found| Outcome {
        target: target.to_owned(),
        found: Some(found),
        ..Outcome::default()
    })
}

fn try_fuzz(built: &Path, target: &str, asked: &Asked) -> Result<Outcome, String> {
    let absolute = |path: PathBuf| std::path::absolute(path).map_err(|error| error.to_string());
    let kept = absolute(Path::new(DIRECTORY).join("corpus").join(target))?;
    let artifacts = absolute(Path::new(DIRECTORY).join("artifacts").join(target))?;
    let fresh = built.join("corpus").join(target);
    for directory in [&kept, &artifacts, &fresh] {
        fs::create_dir_all(directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    }
    let output = program(built, target)
        .arg(&fresh)
        .arg(&kept)
        .arg(format!("-max_total_time={}", asked.seconds))
        .arg(format!("-max_len={LONGEST_INPUT_BYTES}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-verbosity=1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cannot run {target}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let mut outcome = outcome(target, &said);
    if !output.status.success() {
        outcome.found = Some(format!("{}\n{}", output.status, tail(&said)));
    } else if asked.keep {
        merge(built, target, &kept, &fresh)?;
    }
    outcome.inputs = fs::read_dir(&kept).map_or(0, |entries| entries.count() as u64);
    Ok(outcome)
}

/// Takes the inputs that reach something that the kept ones do not.
fn merge(built: &Path, target: &str, kept: &Path, fresh: &Path) -> Result<(), String> {
    let merged = program(built, target)
        .args(["-merge=1", &format!("-max_len={LONGEST_INPUT_BYTES}")])
        .args([kept, fresh])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cannot run {target}: {error}"))?;
    if merged.status.success() {
        return Ok(());
    }
    Err(format!("inputs cannot be kept: {}", tail(&String::from_utf8_lossy(&merged.stderr))))
}

/// What libFuzzer says at its end, and in its last line about coverage.
fn outcome(target: &str, said: &str) -> Outcome {
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
    let last = |before: &str| said.lines().rev().find_map(|line| number(line.split_once(before)?.1));
    Outcome {
        target: target.to_owned(),
        executions: last("stat::number_of_executed_units:").unwrap_or_default(),
        covered: last("cov:").unwrap_or_default(),
        ..Outcome::default()
    }
}

fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with('#')).collect();
    lines.iter().skip(lines.len().saturating_sub(30)).copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_targets_are_read_and_others_refused() {
        let all = BTreeSet::from(["detect".to_owned(), "jwt".to_owned()]);
        let parse =
            |line: &str| Asked::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), &all);
        let asked = parse("--time 20m jwt --keep").unwrap();
        assert_eq!(asked, Asked { targets: vec!["jwt".to_owned()], seconds: 1200, keep: true });
        assert_eq!(parse("").unwrap().targets, ["detect", "jwt"]);
        for wrong in ["--time", "--time 0s", "--time 5", "--time s", "--time 99999999999999999999h", "other"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_the_fuzzer_says_is_read() {
        let said = "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
             #99\tDONE   cov: 345 ft: 400 corp: 9/80b lim: 4 exec/s: 33 rss: 50Mb\n\
             stat::number_of_executed_units: 9876\n";
        let read = outcome("jwt", said);
        assert_eq!((read.executions, read.covered), (9876, 345));
        assert_eq!(outcome("jwt", "").executions, 0);
    }
}
