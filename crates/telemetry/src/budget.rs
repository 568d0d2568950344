//! So many a second, and a few more at once.

use std::time::Instant;

use parking_lot::Mutex;

/// A bucket of tokens.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: f64,
    most: f64,
    left: Mutex<(f64, Instant)>,
}

impl Budget {
    pub(crate) fn new(per_second: f64, most: f64, now: Instant) -> Self {
        Self { per_second, most, left: Mutex::new((most, now)) }
    }

    /// Takes one, where there is one.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let mut left = self.left.lock();
        let (tokens, then) = *left;
        let grown =
            (tokens + self.per_second * now.saturating_duration_since(then).as_secs_f64()).min(self.most);
        let granted = grown >= 1.0;
        *left = (if granted { grown - 1.0 } else { grown }, now.max(then));
        granted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let begin = Instant::now();
        let budget = Budget::new(2.0, 3.0, begin);
        let took = |at: Duration| (0..10).filter(|_| budget.take(begin + at)).count();
        assert_eq!(took(Duration::ZERO), 3);
        assert_eq!(took(Duration::from_millis(499)), 0);
        assert_eq!(took(Duration::from_millis(1_000)), 2);
        assert_eq!(took(Duration::from_secs(3_600)), 3, "no more than at once");
        assert_eq!(took(Duration::ZERO), 0, "a clock that goes back gives nothing");
    }
}
