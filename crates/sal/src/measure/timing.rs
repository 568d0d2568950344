//! How long things take, on a machine that does other things too.
//!
//! Candidates take turns, pass after pass, so that a disturbance hits all of them alike; each pass times a batch. The
//! least time of all passes is what the work takes when nothing disturbs it, and is what sources are compared by. Times
//! are processor time of the thread: what others have of the processor meanwhile does not count.

use std::time::Duration;

use super::instructions::Instructions;
use super::operation::Work;
use crate::economy::thread_cpu;
use crate::selection::Cost;

/// How much time measurements may take.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Passes over all candidates.
    pub passes: usize,
    /// Time of one candidate in one pass; a single operation that takes longer is one batch.
    pub batch: Duration,
}

impl Effort {
    /// A profile of a whole machine in about ten seconds: many short batches, of which some meet a quiet moment.
    pub const TUNE: Self = Self { passes: 40, batch: Duration::from_micros(800) };
    /// A full table with a spread to believe.
    pub const SPEED: Self = Self { passes: 60, batch: Duration::from_millis(2) };
    /// A glance.
    pub const REPORT: Self = Self { passes: 15, batch: Duration::from_micros(800) };
}

/// Operations that take longer are not counted, in nanoseconds.
const MOST_COUNTED_NANOSECONDS: f64 = 5e7;
/// How many times its share of the time a candidate may take before it sits out.
const OVERTIME: u32 = 3;
/// Passes that every candidate takes part in.
const FEWEST: usize = 4;

/// Times of one candidate, one entry for each pass, in nanoseconds for one operation.
#[derive(Debug, Clone, Default)]
pub struct Times {
    passes: Vec<f64>,
    instructions: Option<u64>,
}

impl Times {
    /// All of them, in the order in which they were taken.
    #[must_use]
    pub fn samples(&self) -> &[f64] {
        &self.passes
    }

    /// Instructions of one operation in user space; none where the kernel does not count them ([`Instructions`]).
    #[must_use]
    pub fn instructions(&self) -> Option<u64> {
        self.instructions
    }

    /// The least.
    #[must_use]
    pub fn minimum(&self) -> f64 {
        self.passes.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The median.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Half the distance between the quartiles, as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let median = self.median();
        if median > 0.0 { (self.quantile(0.75) - self.quantile(0.25)) / 2.0 / median } else { 0.0 }
    }

    /// Minimum and median.
    #[must_use]
    pub fn cost(&self) -> Cost {
        Cost { nanoseconds: self.minimum(), median: self.median() }
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.passes.clone();
        sorted.sort_by(f64::total_cmp);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = ((sorted.len().saturating_sub(1)) as f64 * share).round() as usize;
        sorted.get(at).copied().unwrap_or_default()
    }
}

/// Work with so many repetitions that they take about a given time.
pub struct Batch {
    work: Work,
    count: u32,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Batch {
    /// Finds out how many repetitions take the time that is wanted. That warms caches, and is not counted.
    #[must_use]
    pub fn new(mut work: Work, wanted: Duration) -> Self {
        let count = batch(&mut work, wanted);
        Self { work, count }
    }

    /// Runs them: nanoseconds of one.
    pub fn sample(&mut self) -> f64 {
        let started = thread_cpu();
        for _ in 0..self.count {
            (self.work)();
        }
        thread_cpu().saturating_sub(started).as_secs_f64() * 1e9 / f64::from(self.count)
    }
}

/// Times several candidates in turns. `tick` is called after every pass.
pub fn interleaved(candidates: &mut [Work], effort: Effort, mut tick: impl FnMut()) -> Vec<Times> {
    let hear = |event| {
        if matches!(event, Event::Pass) {
            tick();
        }
        true
    };
    interleaved_while(candidates, effort, hear)
}

/// What happened while candidates are timed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// A candidate, by its place in the list, took so many nanoseconds for one operation.
    Sample(usize, f64),
    /// A pass is done.
    Pass,
}

/// The same, with every sample as it comes, until `hear` says no at the end of a pass: then there are fewer.
pub fn interleaved_while(
    candidates: &mut [Work],
    effort: Effort,
    mut hear: impl FnMut(Event) -> bool,
) -> Vec<Times> {
    let batches: Vec<u32> = candidates.iter_mut().map(|work| batch(work, effort.batch)).collect();
    let mut times = vec![Times::default(); candidates.len()];
    let mut spent = vec![Duration::ZERO; candidates.len()];
    let enough = effort.batch * u32::try_from(effort.passes).unwrap_or(u32::MAX) * OVERTIME;
    for pass in 0..effort.passes {
        let all = candidates.iter_mut().zip(&batches).zip(&mut times).zip(&mut spent).enumerate();
        for (place, (((work, count), times), spent)) in all {
            // One operation of the slowest is longer than a batch: a few of those are as good as many.
            if pass >= FEWEST && *spent > enough {
                continue;
            }
            let started = thread_cpu();
            for _ in 0..*count {
                work();
            }
            let took = thread_cpu().saturating_sub(started);
            *spent += took;
            let one = took.as_secs_f64() * 1e9 / f64::from(*count);
            times.passes.push(one);
            hear(Event::Sample(place, one));
        }
        if !hear(Event::Pass) {
            break;
        }
    }
    // They hardly vary, so a few runs at the end are enough. Making an RSA key does vary, and takes long.
    if let Ok(mut counter) = Instructions::of_this_thread() {
        for (work, times) in candidates.iter_mut().zip(&mut times) {
            if times.minimum() < MOST_COUNTED_NANOSECONDS {
                times.instructions = counter.count(work);
            }
        }
    }
    times
}

/// How many operations fill a batch. The first runs warm caches and are not counted.
fn batch(work: &mut Work, wanted: Duration) -> u32 {
    work();
    let mut count = 1_u32;
    loop {
        let started = thread_cpu();
        for _ in 0..count {
            work();
        }
        let took = thread_cpu().saturating_sub(started);
        if took >= wanted / 4 || count >= 1 << 20 {
            let per_operation = took.as_secs_f64() / f64::from(count);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let fitting = (wanted.as_secs_f64() / per_operation.max(1e-9)) as u32;
            return fitting.clamp(1, 1 << 20);
        }
        count *= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_one_is_told_from_the_slower() {
        let spin = |rounds: u64| -> Work {
            Box::new(move || {
                let mut sum = 0_u64;
                for round in 0..rounds {
                    sum = std::hint::black_box(sum.wrapping_add(round));
                }
                std::hint::black_box(sum);
            })
        };
        let mut candidates = [spin(20_000), spin(1_000)];
        let effort = Effort { passes: 5, batch: Duration::from_micros(500) };
        let mut ticks = 0;
        let times = interleaved(&mut candidates, effort, || ticks += 1);
        assert_eq!(ticks, 5);
        let [slow, fast] = times.as_slice() else { unreachable!("two candidates") };
        assert!(slow.minimum() > 5.0 * fast.minimum(), "{slow:?} {fast:?}");
        assert!(slow.minimum() <= slow.median());
    }

    #[test]
    fn it_ends_when_it_is_told_to_and_keeps_what_it_has() {
        let mut candidates: [Work; 1] = [Box::new(|| ())];
        let effort = Effort { passes: 50, batch: Duration::from_micros(50) };
        let (mut passes, mut heard) = (0, Vec::new());
        let times = interleaved_while(&mut candidates, effort, |event| {
            match event {
                Event::Pass => passes += 1,
                Event::Sample(place, time) => heard.push((place, time)),
            }
            passes < 3
        });
        let told: Vec<f64> = heard.iter().filter(|(place, _)| *place == 0).map(|(_, time)| *time).collect();
        assert_eq!(Some(told.as_slice()), times.first().map(Times::samples));
        assert_eq!(times.first().map(|times| times.samples().len()), Some(3));
        let mut batch = Batch::new(Box::new(|| std::hint::black_box(())), Duration::from_micros(50));
        assert!(batch.sample() < 1e6 && batch.count > 1, "{batch:?}");
    }

    #[test]
    fn quantiles_are_those_of_the_passes() {
        let times = Times { passes: vec![4.0, 1.0, 2.0, 3.0, 5.0], instructions: None };
        assert!((times.minimum() - 1.0).abs() < f64::EPSILON);
        assert!((times.median() - 3.0).abs() < f64::EPSILON);
        assert!((times.spread() - 1.0 / 3.0).abs() < 1e-9);
    }
}
