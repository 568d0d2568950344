//! Where a server is full: the fewest requests at a time that give nearly all of its best rate.

/// What a number of requests at a time gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Requests at a time.
    pub concurrency: usize,
    /// Requests a second.
    pub rate: f64,
    /// The slow end of the latencies, in milliseconds.
    pub p99: f64,
    /// Share of the requests that failed.
    pub errors: f64,
}

/// What is within this share of the best rate is as good: more is a longer queue.
const NEARLY: f64 = 0.95;
/// A step that gives less than this more is no growth.
const GROWTH: f64 = 1.05;
/// So many steps without growth in a row end the ramp.
const FLAT: usize = 2;
/// A slow end that is so many times that of the first step, and ...
const EXPLOSION: f64 = 100.0;
/// ... longer than this, in milliseconds: no user waits for it.
const LONG_MS: f64 = 2000.0;
/// Share of failures past which a server is beyond what it can do.
pub const ERRORS: f64 = 0.05;

/// Why a ramp ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// More at a time give no higher rate.
    Flat,
    /// The slow end of the latencies has exploded.
    Slow,
    /// Too many fail.
    Errors,
}

/// Whether a ramp is over after these steps, each with more at a time than the one before.
#[must_use]
pub fn is_over(steps: &[Step]) -> Option<End> {
    let (first, last) = (steps.first()?, steps.last()?);
    if last.errors > ERRORS {
        return Some(End::Errors);
    }
    if last.p99 > LONG_MS && last.p99 > first.p99 * EXPLOSION {
        return Some(End::Slow);
    }
    let (before, recent) = steps.split_at_checked(steps.len().checked_sub(FLAT)?)?;
    let best = before.iter().map(|step| step.rate).fold(0.0, f64::max);
    let grown = recent.iter().any(|step| step.rate > best * GROWTH);
    (!before.is_empty() && !grown).then_some(End::Flat)
}

/// The saturation point: of the steps without too many failures, the first that gives nearly the best rate.
#[must_use]
pub fn saturation_point(steps: &[Step]) -> Option<Step> {
    let good = || steps.iter().filter(|step| step.errors <= ERRORS && step.rate > 0.0);
    let best = good().map(|step| step.rate).fold(0.0, f64::max);
    good().find(|step| step.rate >= best * NEARLY).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What a server gives that has so many places and takes so long for each request.
    fn ramp(places: usize, milliseconds: f64) -> Vec<Step> {
        let mut steps = Vec::new();
        for power in 0..10 {
            let concurrency = 1_usize << power;
            let busy = f64::from(u32::try_from(concurrency.min(places)).unwrap());
            let wait = f64::from(u32::try_from(concurrency).unwrap()) / busy;
            steps.push(Step {
                concurrency,
                rate: busy / milliseconds * 1e3,
                p99: milliseconds * wait,
                errors: 0.0,
            });
            if is_over(&steps).is_some() {
                break;
            }
        }
        steps
    }

    #[test]
    fn the_saturation_point_is_where_all_places_are_taken() {
        for (places, full_at) in [(1, 1), (4, 4), (16, 16), (6, 8)] {
            let steps = ramp(places, 2.0);
            assert_eq!(is_over(&steps), Some(End::Flat), "{places}");
            assert_eq!(saturation_point(&steps).unwrap().concurrency, full_at, "{places}: {steps:?}");
            // Two steps beyond, and no more.
            assert_eq!(steps.last().unwrap().concurrency, full_at * 4);
        }
    }

    #[test]
    fn a_little_noise_is_no_growth_and_no_saturation() {
        let rates = [100.0, 190.0, 196.0, 201.0];
        let steps: Vec<Step> = rates
            .into_iter()
            .enumerate()
            .map(|(power, rate)| Step { concurrency: 1 << power, rate, p99: 1.0, errors: 0.0 })
            .collect();
        assert_eq!(is_over(&steps[..3]), None);
        assert_eq!(saturation_point(&steps).unwrap().concurrency, 4);
        assert_eq!(is_over(&[]), None);
        assert_eq!(saturation_point(&[]), None);
    }

    #[test]
    fn failures_and_explosions_end_a_ramp_and_are_no_saturation() {
        let step = |concurrency, rate, p99, errors| Step { concurrency, rate, p99, errors };
        let failing = [step(1, 100.0, 1.0, 0.0), step(2, 900.0, 1.0, 0.2)];
        assert_eq!(
            (is_over(&failing), saturation_point(&failing).unwrap().concurrency),
            (Some(End::Errors), 1)
        );
        let slow = [step(1, 100.0, 1.0, 0.0), step(2, 190.0, 3000.0, 0.0)];
        assert_eq!(is_over(&slow), Some(End::Slow));
        assert_eq!(saturation_point(&[step(1, 0.0, 0.0, 1.0)]), None);
    }
}
