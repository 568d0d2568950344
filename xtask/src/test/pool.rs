//! Runs tests side by side: the longest first, those that need the machine for themselves at the end, one by one.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::durations::{Durations, Took};
use super::executables::Test;
use super::process::{self, Ended, Outcome};
use super::report::Counts;
use super::room::Room;
use super::table::Tier;
use super::turns::Turns;

/// So much is under way for each processor, by what it took the last time: a little more than it can do, since nothing
/// computes all the time. With 1.25 two processors had nothing to do for a thirtieth of a run.
const LOAD_A_PROCESSOR: f64 = 1.375;
/// What a test counts that only waits: it is a process or several, and wants to be heard when it wakes.
const LEAST_LOAD: f64 = 0.12;
/// So many processes at once, however little they do.
const JOBS_A_PROCESSOR: usize = 8;

/// Unit tests shorter than this share processes: starting one takes as long as several of them.
const SHORT_SECONDS: f64 = 0.2;
/// As many of them as take about so long.
const BATCH_SECONDS: f64 = 2.0;
/// What is expected of a short one at the least.
const LEAST_SECONDS: f64 = 0.01;

/// A test that takes so long has a line of its own.
const WORTH_A_LINE_SECONDS: f64 = 5.0;

/// So many tests that fail in a run of all of them are run once more, by themselves: a machine with other work is late for some that wait
/// for the real programs that they start. More of them say that something is broken.
const AGAIN_MOST: usize = 5;

/// How many of the longest are named at the end.
const SLOWEST: usize = 10;

pub(crate) struct Pool {
    /// How many processors' work may be under way.
    load: f64,
    jobs: usize,
    /// Measurements by turns: after the first, nothing is begun that would not end within it.
    budget: Option<Duration>,
    /// Whether what fails is run once more.
    again: bool,
}

/// Tests that run in one process.
#[derive(Debug)]
struct Job {
    tests: Vec<Test>,
    expected: Took,
}

/// A job under way has ended.
struct Report {
    job: Job,
    ended: Ended,
}

impl Pool {
    pub(crate) fn new(jobs: Option<usize>, budget: Option<Duration>, again: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let load = if jobs.is_some() { f64::INFINITY } else { processors as f64 * LOAD_A_PROCESSOR };
        Self { load, jobs: jobs.unwrap_or(processors * JOBS_A_PROCESSOR), budget, again }
    }

    /// Runs them all and says what fails, with its output.
    pub(crate) fn run(
        &self,
        tests: Vec<Test>,
        durations: &mut Durations,
        turns: &mut Turns,
    ) -> Result<Counts, String> {
        let begin = Instant::now();
        let room = Room::new()?;
        let mut counts = Counts::default();
        let all = tests.len();
        let mut waiting = queue(tests, durations);
        if self.budget.is_some() {
            waiting.make_contiguous().sort_by_cached_key(|job| turns.last(&job.id()));
        }
        let (sender, reports) = mpsc::channel::<Report>();
        let (mut under_way, mut begun, mut load) = (0, 0, 0.0);
        let (mut failed, mut second): (Vec<Test>, bool) = (Vec::new(), false);
        let mut finished: Vec<(String, Duration, f64)> = Vec::new();
        println!("running {all} tests, up to {} processes at once", self.jobs);
        loop {
            while under_way < self.jobs {
                let Some(next) = waiting.front() else { break };
                if under_way > 0 && (next.alone() || load + next.load() > self.load) {
                    break;
                }
                let Some(job) = waiting.pop_front() else { break };
                if let Some(why) = self.left_out(&job, begin).filter(|_| begun > 0) {
                    println!("left out: {} ({why})", job.id());
                    counts.skipped += job.tests.len();
                    continue;
                }
                let (alone, job_load) = (job.alone(), job.load());
                let (sender, number, place) = (sender.clone(), begun, room.path().to_owned());
                std::thread::spawn(move || {
                    let ended = process::run(&job.tests, number, &place);
                    // The receiver is gone if the run was given up.
                    let _ = sender.send(Report { job, ended });
                });
                begun += 1;
                under_way += 1;
                load += job_load;
                if alone {
                    break;
                }
            }
            if under_way == 0 {
                if second || !self.again || failed.is_empty() || failed.len() > AGAIN_MOST {
                    break;
                }
                println!("\nonce more, one by one: {} that failed beside the others", failed.len());
                second = true;
                waiting = failed.drain(..).map(|test| Job::alone_with(test, durations)).collect();
                continue;
            }
            let report = reports.recv().map_err(|error| format!("waiting for tests: {error}"))?;
            under_way -= 1;
            load -= report.job.load();
            if self.budget.is_some() {
                turns.had(report.job.id());
            }
            finished.push((report.job.id(), report.ended.took, report.ended.processor_seconds));
            let count = report.job.tests.len() as f64;
            let each = Took {
                seconds: report.ended.took.as_secs_f64() / count,
                processor_seconds: report.ended.processor_seconds / count,
            };
            for (test, outcome) in report.job.tests.iter().zip(&report.ended.outcomes) {
                match outcome {
                    Outcome::Passed => {
                        counts.passed += 1;
                        durations.took(test.id(), each);
                        if second {
                            counts.unsteady += 1;
                            println!("UNSTEADY {}: it passed by itself", test.id());
                        }
                    }
                    Outcome::Failed(why) => {
                        failed.push(test.clone());
                        println!("FAILED {:.1} s  {}: {why}", report.ended.took.as_secs_f64(), test.id());
                    }
                }
            }
            tell(&report, counts.passed + failed.len() + counts.skipped, all);
        }
        counts.failed += failed.len();
        summary(&mut finished, begin);
        Ok(counts)
    }

    /// Why a job is not run now.
    fn left_out(&self, job: &Job, begin: Instant) -> Option<String> {
        let budget = self.budget?;
        let expected = Duration::from_secs_f64(job.expected.seconds);
        let left = budget.saturating_sub(begin.elapsed());
        (expected > left).then(|| {
            format!(
                "takes {} s, and {} of {} s are left",
                expected.as_secs(),
                left.as_secs(),
                budget.as_secs()
            )
        })
    }
}

impl Job {
    fn empty() -> Self {
        Self { tests: Vec::new(), expected: Took { seconds: 0.0, processor_seconds: 0.0 } }
    }

    fn alone_with(mut test: Test, durations: &Durations) -> Self {
        test.rule.alone = true;
        let mut job = Self::empty();
        let expected = durations.expected(&test.id());
        job.add(test, expected);
        job
    }

    fn add(&mut self, test: Test, expected: Took) {
        self.tests.push(test);
        self.expected.seconds += expected.seconds.max(LEAST_SECONDS);
        self.expected.processor_seconds += expected.processor_seconds;
    }

    fn alone(&self) -> bool {
        self.tests.iter().any(|test| test.rule.alone)
    }

    /// How many processors it keeps busy.
    fn load(&self) -> f64 {
        (self.expected.processor_seconds / self.expected.seconds.max(LEAST_SECONDS)).clamp(LEAST_LOAD, 1.0)
    }

    /// The test, or the first of several.
    fn id(&self) -> String {
        let first = self.tests.first().map(Test::id).unwrap_or_default();
        match self.tests.len() {
            0 | 1 => first,
            count => format!("{first} and {} more", count - 1),
        }
    }
}

/// The longest first; then, one by one, those that run alone.
fn queue(tests: Vec<Test>, durations: &Durations) -> VecDeque<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut shared: BTreeMap<&'static str, Job> = BTreeMap::new();
    let mut batches: BTreeMap<PathBuf, Job> = BTreeMap::new();
    for test in tests {
        let expected = durations.expected(&test.id());
        let unit = test.executable.unit;
        if let Some(group) = test.rule.together {
            let job = shared.entry(group).or_insert_with(Job::empty);
            job.add(test, expected);
        } else if unit && expected.seconds < SHORT_SECONDS && !test.rule.alone && !test.ignored {
            let job = batches.entry(test.executable.path.clone()).or_insert_with(Job::empty);
            job.add(test, expected);
            if job.expected.seconds >= BATCH_SECONDS {
                jobs.push(std::mem::replace(job, Job::empty()));
            }
        } else {
            jobs.push(Job { tests: vec![test], expected });
        }
    }
    jobs.extend(shared.into_values().chain(batches.into_values()).filter(|job| !job.tests.is_empty()));
    jobs.sort_by(|one, other| {
        one.alone().cmp(&other.alone()).then(other.expected.seconds.total_cmp(&one.expected.seconds))
    });
    jobs.into()
}

fn tell(report: &Report, done: usize, all: usize) {
    let (id, seconds) = (report.job.id(), report.ended.took.as_secs_f64());
    if report.ended.outcomes.iter().any(|outcome| *outcome != Outcome::Passed) {
        println!("---- {id} ----\n{}----", report.ended.output);
    } else if report.job.tests.iter().any(|test| test.rule.tier != Tier::Behaviour) {
        // What was measured is what it is run for.
        println!("---- {id}: {seconds:.1} s ----\n{}----", report.ended.output);
    } else if seconds >= WORTH_A_LINE_SECONDS {
        // What a person waits for; the others are counted.
        println!("[{done}/{all}] ok {seconds:.1} s  {id}");
    }
}

fn summary(finished: &mut [(String, Duration, f64)], begin: Instant) {
    let wall = begin.elapsed().as_secs_f64();
    let processor: f64 = finished.iter().map(|(_, _, used)| used).sum();
    let apart: f64 = finished.iter().map(|(_, took, _)| took.as_secs_f64()).sum();
    println!("\n{wall:.0} s; one after another {apart:.0} s; {processor:.0} s of processor time");
    finished.sort_by_key(|(_, took, _)| std::cmp::Reverse(*took));
    println!("the longest:");
    for (id, took, used) in finished.iter().take(SLOWEST) {
        println!("  {:>6.1} s {used:>6.1} s of processor  {id}", took.as_secs_f64());
    }
}
