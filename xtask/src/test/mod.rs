//! The second command of the README: everything that the tests need, then all of them, side by side.
//!
//! Cargo builds the test executables; from then on each test is a process of its own here, so that a test that hangs,
//! aborts or leaks takes nothing else with it, and its time, its processor time and its output are known by themselves.

mod changed;
mod durations;
mod executables;
mod pool;
mod process;
mod report;
mod room;
mod startup_files;
mod table;
mod turns;

use std::time::{Duration, Instant};

use crate::loop_times::LoopTimes;
use crate::setup;
use durations::Durations;
use executables::{Executables, Test};
use pool::Pool;
use report::Counts;
use table::{Rules, Tier};
use turns::Turns;

pub(crate) const USAGE: &str = "\
cargo xtask test            install what the tests need, then run them all, side by side
    --filter TEXT           only tests with TEXT in PACKAGE::TARGET::NAME (may be given more than once)
    --changed [REV]         only crates with files changed since REV (default HEAD), and then the crates that use them
    --measure               whole measurements instead, one after another, within 6 minutes, those first that ran longest ago
    --within SECONDS        with --measure: another time than 6 minutes; the first one is run however long it takes, and
                            none that may take longer than 6 minutes is
    --list                  name the tests, and run none
    --jobs N                how many run at once (default: as many as keep the processors busy)
    --record                write the durations into xtask/durations.txt, and what the run took into xtask/loop.txt
    --locked                refuse to change Cargo.lock
";

/// How long `--measure` may take in all, if it is not said. What does not fit is named, never left out in silence.
const MEASURE_SECONDS: u64 = 360;

/// What the caller asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    filters: Vec<String>,
    changed: Option<String>,
    measure: bool,
    list: bool,
    record: bool,
    locked: bool,
    jobs: Option<usize>,
    within: Option<u64>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let asked = Asked::parse(arguments)?;
    let begin = Instant::now();
    // A run that has a bound fetches nothing of hundreds of megabytes: the tests that need it are left out there.
    if asked.measure && asked.within.is_none() {
        setup::run_whole()?
    } else {
        setup::run()?
    }
    if let Some(outcome) = startup_files::run_without_them(arguments)? {
        return outcome;
    }
    let mut counts = Counts::default();
    let mut times = LoopTimes::load(asked.record)?;
    let mut waited = Vec::new();
    match &asked.changed {
        None => {
            let began = Instant::now();
            let executables = Executables::build_all(asked.locked)?;
            // What another build has left says nothing of how long it takes.
            if executables.were_built() {
                waited.push(times.said("tests built", began.elapsed().as_secs())?);
            }
            let began = Instant::now();
            counts.add(&part(&asked, &executables)?);
            if asked.is_all_behaviour() && counts.failed == 0 {
                waited.push(times.said("tests run", began.elapsed().as_secs())?);
            }
        }
        Some(revision) => {
            let changed = changed::since(revision)?;
            if changed.is_empty() {
                println!("nothing that a test could notice has changed since {revision}");
                return Ok(());
            }
            println!("changed since {revision}: {}", changed.touched.join(" "));
            let began = Instant::now();
            counts.add(&part(&asked, &Executables::build(&changed.touched, asked.locked)?)?);
            if asked.is_all_behaviour() && counts.failed == 0 {
                waited.push(times.said("tests of what changed", began.elapsed().as_secs())?);
            }
            if counts.failed == 0 && !changed.dependents.is_empty() {
                println!("\nand those that use them: {}", changed.dependents.join(" "));
                counts.add(&part(&asked, &Executables::build(&changed.dependents, asked.locked)?)?);
            }
        }
    }
    if asked.list {
        return Ok(());
    }
    println!("\nall took {} s", begin.elapsed().as_secs());
    for line in waited {
        println!("{line}");
    }
    if counts.unsteady > 0 {
        println!("{} of them failed beside the others and passed alone: see UNSTEADY above", counts.unsteady);
    }
    println!("{counts}");
    if counts.failed > 0 {
        return Err("tests failed".to_owned());
    }
    if counts.passed == 0 && asked.changed.is_none() {
        return Err("no test was run".to_owned());
    }
    Ok(())
}

/// Lists, chooses and runs the tests of these executables.
fn part(asked: &Asked, executables: &Executables) -> Result<Counts, String> {
    let rules = Rules::read()?;
    let all = executables.tests()?;
    if asked.changed.is_none() {
        rules.all_match(&all)?;
    }
    let tier = if asked.measure { Tier::Measure } else { Tier::Behaviour };
    let wanted = |test: &Test| {
        asked.filters.is_empty() || asked.filters.iter().any(|filter| test.id().contains(filter.as_str()))
    };
    let mut tests: Vec<Test> = all.into_iter().filter(wanted).collect();
    for test in &mut tests {
        test.rule = rules.of(test);
    }
    if asked.list {
        for test in &tests {
            println!("{}{}", test.id(), test.rule.remark());
        }
        return Ok(Counts::default());
    }
    let mut counts = Counts::default();
    let mut elsewhere = 0;
    // A test that is asked for by its name runs whatever its tier is.
    if asked.filters.is_empty() {
        tests.retain(|test| {
            if asked.measure && test.rule.tier == Tier::ByHand {
                println!("left out: {} (it takes too long; run it by its name: --filter)", test.id());
                counts.skipped += 1;
            }
            // A build of its own would be begun, as the first, however long it takes: not where the run has a bound.
            let too_long = asked.within.is_some() && test.rule.limit > Duration::from_secs(MEASURE_SECONDS);
            if asked.measure && test.rule.tier == tier && too_long {
                let minutes = test.rule.limit.as_secs() / 60;
                println!("left out: {} (it may take {minutes} min; run it without --within)", test.id());
                counts.skipped += 1;
                return false;
            }
            let wanted = test.rule.tier == tier;
            elsewhere += usize::from(!wanted && !asked.measure);
            wanted
        });
    }
    let mut durations = Durations::load(executables.directory());
    let within = Duration::from_secs(asked.within.unwrap_or(MEASURE_SECONDS));
    let mut turns = Turns::load(executables.directory());
    let pool = Pool::new(asked.jobs, asked.measure.then_some(within), asked.is_all_behaviour());
    counts.add(&pool.run(tests, &mut durations, &mut turns)?);
    durations.store(asked.record)?;
    turns.store()?;
    if elsewhere > 0 {
        println!("{elsewhere} measurements are for `cargo xtask test --measure`");
    }
    Ok(counts)
}

impl Asked {
    /// Whether the run is of all tests of behaviour in what it builds, so that its time can be compared.
    fn is_all_behaviour(&self) -> bool {
        self.filters.is_empty() && !self.measure && !self.list && self.jobs.is_none()
    }

    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut words = arguments.iter().peekable();
        while let Some(word) = words.next() {
            let mut value =
                |what: &str| words.next().cloned().ok_or_else(|| format!("{word} wants {what}\n{USAGE}"));
            match word.as_str() {
                "--filter" => asked.filters.push(value("a text")?),
                "--jobs" => {
                    let text = value("a number")?;
                    let jobs = text.parse().ok().filter(|jobs| (1..=256).contains(jobs));
                    asked.jobs =
                        Some(jobs.ok_or_else(|| format!("--jobs {text}: not a number from 1 to 256"))?);
                }
                "--within" => {
                    let text = value("seconds")?;
                    let seconds =
                        text.parse().map_err(|_| format!("--within {text}: not a number of seconds"));
                    asked.within = Some(seconds?);
                }
                "--changed" => {
                    let revision = words.next_if(|next| !next.starts_with('-'));
                    asked.changed = Some(revision.cloned().unwrap_or_else(|| "HEAD".to_owned()));
                }
                "--measure" => asked.measure = true,
                "--list" => asked.list = true,
                "--record" => asked.record = true,
                "--locked" => asked.locked = true,
                other => return Err(format!("{other:?} is no option of the tests\n{USAGE}")),
            }
        }
        if asked.within.is_some() && !asked.measure {
            return Err(format!("--within is for --measure\n{USAGE}"));
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Asked, String> {
        Asked::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_what_is_none_is_refused() {
        assert_eq!(parse("").unwrap(), Asked::default());
        assert!(parse("--locked --record").unwrap().is_all_behaviour());
        assert!(parse("--changed").unwrap().is_all_behaviour());
        for other in ["--filter a", "--measure", "--list", "--jobs 4"] {
            assert!(!parse(other).unwrap().is_all_behaviour(), "{other}");
        }
        let asked = parse("--filter a --filter b --changed --jobs 4").unwrap();
        assert_eq!(asked.filters, ["a", "b"]);
        assert_eq!((asked.changed.as_deref(), asked.jobs), (Some("HEAD"), Some(4)));
        assert_eq!(parse("--changed main --measure").unwrap().changed.as_deref(), Some("main"));
        assert_eq!(parse("--measure --within 90").unwrap().within, Some(90));
        for wrong in [
            "--jobs",
            "--jobs 0",
            "--jobs x",
            "--filter",
            "name",
            "--quick",
            "--within 9",
            "--measure --within x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
