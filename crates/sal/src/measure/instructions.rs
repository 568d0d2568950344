//! Instructions that work takes, where the kernel counts them (perf_event_open(2)).
//!
//! They do not depend on what else the machine is doing, nor on its frequency. Many virtual machines have no counter, and
//! `kernel.perf_event_paranoid` may keep others from it.

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

use super::MeasureError;

/// How often work is counted; the median is taken.
const RUNS: usize = 5;

/// Counts instructions of this thread in user space.
#[derive(Debug)]
pub struct Instructions(Counter);

impl Instructions {
    /// A counter for this thread.
    ///
    /// # Errors
    /// Why there is none.
    pub fn of_this_thread() -> Result<Self, MeasureError> {
        Self::counting(Hardware::INSTRUCTIONS)
    }

    fn counting(event: impl Event) -> Result<Self, MeasureError> {
        let mut counter = Builder::new(event).build().map_err(MeasureError::NoCounter)?;
        // Some machines open a counter and never run it.
        let mut sum = 0_u64;
        let mut probe = || {
            for number in 0..10_000_u64 {
                sum = std::hint::black_box(sum.wrapping_add(number));
            }
        };
        match count(&mut counter, &mut probe) {
            Some(1..) => Ok(Self(counter)),
            _ => Err(MeasureError::StillCounter),
        }
    }

    /// Of one run: the median of some.
    pub fn count(&mut self, work: &mut dyn FnMut()) -> Option<u64> {
        let mut counts: Vec<u64> = (0..RUNS).filter_map(|_| count(&mut self.0, work)).collect();
        counts.sort_unstable();
        counts.get(counts.len() / 2).copied()
    }
}

fn count(counter: &mut Counter, work: &mut dyn FnMut()) -> Option<u64> {
    counter.reset().ok()?;
    counter.enable().ok()?;
    work();
    counter.disable().ok()?;
    counter.read().ok()
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::*;

    fn spin(rounds: u64) -> impl FnMut() {
        move || {
            let mut sum = 0_u64;
            for round in 0..rounds {
                sum = std::hint::black_box(sum.wrapping_add(round));
            }
        }
    }

    #[test]
    fn more_work_takes_more_instructions_or_there_is_a_reason() {
        match Instructions::of_this_thread() {
            Ok(mut counter) => {
                let (few, many) = (counter.count(&mut spin(1000)), counter.count(&mut spin(100_000)));
                let ratio = many.unwrap_or_default() / few.unwrap_or(1).max(1);
                assert!((50..=110).contains(&ratio), "{few:?} {many:?}");
            }
            Err(reason) => assert!(!reason.to_string().is_empty()),
        }
        // What every kernel counts, where it lets us: the same path with another event.
        if let Ok(mut clock) = Instructions::counting(Software::TASK_CLOCK) {
            let (few, many) = (clock.count(&mut spin(10_000)), clock.count(&mut spin(1_000_000)));
            assert!(many > few && few > Some(0), "{few:?} {many:?}");
        }
    }
}
