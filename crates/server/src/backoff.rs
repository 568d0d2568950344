//! Pauses between attempts: doubling, bounded, and different on every machine.

use std::time::Duration;

/// Of its step a pause is never less: whoever fails at once would be back at once.
const LEAST_SHARE: f64 = 0.25;

/// A growing pause. After an outage of the proxy a thousand agents come back; jitter keeps them from coming at once. All
/// began to wait when it went, so after a few seconds without it their attempts are still close together where pauses
/// differ by half; where they differ by three quarters, the fullest second is half as full.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// Forgets past failures.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause, between a quarter and the whole of the current step; `chance` is in `0.0..1.0`.
    pub(crate) fn pause(&mut self, chance: f64) -> Duration {
        let step = self.next;
        self.next = step.saturating_mul(2).min(self.most);
        step.mul_f64(LEAST_SHARE + (1.0 - LEAST_SHARE) * chance.clamp(0.0, 1.0))
    }

    /// Waits for the next pause.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.pause(chance())).await;
    }
}

/// A number in `0.0..1.0` for spreading load; not for secrets.
pub(crate) fn chance() -> f64 {
    let (random, ..) = uuid::Uuid::new_v4().as_fields();
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENTS: usize = 1_000;

    /// How many come in each second after a proxy is back that was away for so long. All lost it at the same moment, and
    /// every one that tries meanwhile fails at once.
    fn arrivals(outage: Duration) -> [usize; 32] {
        let mut arrivals = [0_usize; 32];
        for _ in 0..AGENTS {
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
            let mut now = Duration::ZERO;
            while now < outage {
                now += backoff.pause(chance());
            }
            let second = usize::try_from((now - outage).as_secs()).unwrap();
            arrivals[second] += 1;
        }
        assert_eq!(arrivals.iter().sum::<usize>(), AGENTS);
        arrivals
    }

    #[test]
    fn a_thousand_agents_do_not_come_back_at_once() {
        // Spread over the longest pause, the fullest second has about a tenth of them. After a few seconds pauses are still
        // short, and so is the time that they are spread over.
        for (outages, most) in [(3..15, AGENTS / 2), (600..601, AGENTS / 7)] {
            for outage in outages {
                let arrivals = arrivals(Duration::from_secs(outage));
                assert!(arrivals.iter().all(|second| *second < most), "{outage}: {arrivals:?}");
            }
        }
    }

    #[test]
    fn pauses_double_up_to_the_bound_and_keep_their_jitter() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let pauses: Vec<u128> = (0..4).map(|_| backoff.pause(0.999_999).as_millis()).collect();
        assert_eq!(pauses, [99, 199, 349, 349]);
        backoff.reset();
        assert_eq!(backoff.pause(0.0).as_millis(), 25);
        for _ in 0..100 {
            assert!((0.0..1.0).contains(&chance()));
        }
    }
}
