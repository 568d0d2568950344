//! Pauses between attempts: doubling, bounded, and different on every machine.

use std::error::Error;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Where no process listens, as while a proxy is started anew, a try costs one packet each way: pauses stay this short,
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// for so long.
const REFUSED_LONGEST: Duration = Duration::from_secs(5 * 60);

/// Of its step a pause is never less: an agent whose attempts fail at once would be back at once.
const LEAST_SHARE: f64 = 0.25;

/// A growing pause. After an outage of the proxy a thousand agents come back; jitter keeps them from coming at once. All
/// began to wait when it went, so after a few seconds without it their attempts are still close together where pauses
/// differ by half; where they differ by three quarters, the fullest second is half as full.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
    refused_since: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first, refused_since: None }
    }

    /// Forgets past failures.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
        self.refused_since = None;
    }

    /// The next pause, between a quarter and the whole of the current step; `chance` is in `0.0..1.0`.
    pub(crate) fn pause(&mut self, chance: f64) -> Duration {
        self.refused_since = None;
        self.pause_within(self.most, chance)
    }

    /// The same after a connection that failed. Where no process listens, the next attempt comes
    /// soon: agents are back within a second of the proxy's start. A proxy that is there and overwhelmed is given time.
    pub(crate) fn pause_after(
        &mut self,
        error: &(dyn Error + 'static),
        now: Instant,
        chance: f64,
    ) -> Duration {
        if !is_refused(error) {
            return self.pause(chance);
        }
        let since = *self.refused_since.get_or_insert(now);
        if now.duration_since(since) < REFUSED_LONGEST {
            self.pause_within(self.most.min(REFUSED_PAUSE), chance)
        } else {
            self.pause_within(self.most, chance)
        }
    }

    fn pause_within(&mut self, most: Duration, chance: f64) -> Duration {
        let step = self.next.min(most);
        self.next = step.saturating_mul(2).min(most);
        step.mul_f64(LEAST_SHARE + (1.0 - LEAST_SHARE) * chance.clamp(0.0, 1.0))
    }

    /// Waits for the next pause.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.pause(chance())).await;
    }

    /// Waits for the pause after a connection that failed.
    pub(crate) fn wait_after(&mut self, error: &(dyn Error + 'static)) -> Sleep {
        tokio::time::sleep(self.pause_after(error, Instant::now(), chance()))
    }
}

/// Whether the error, or one behind it, says that no process listened there.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        // An io::Error gives its content away here only; its source() skips it.
        next = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
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
    fn agents_are_back_within_a_second_of_a_proxy_that_did_not_listen() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let began = Instant::now();
        for outage in [1, 5, 10, 60, 299] {
            let outage = Duration::from_secs(outage);
            let mut arrivals = [0_usize; 10];
            for _ in 0..AGENTS {
                let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
                let mut now = Duration::ZERO;
                while now < outage {
                    now += backoff.pause_after(&refused, began + now, chance());
                    assert!(now > Duration::ZERO);
                }
                let tenth = usize::try_from((now - outage).as_millis() / 100).unwrap();
                arrivals[tenth] += 1;
            }
            // At random within that second, not all at its beginning.
            assert!(arrivals.iter().all(|tenth| *tenth < AGENTS / 3), "{outage:?}: {arrivals:?}");
        }
    }

    #[test]
    fn a_proxy_that_is_away_for_long_or_is_overwhelmed_is_left_in_peace() {
        let (began, refused) = (Instant::now(), io::Error::from(io::ErrorKind::ConnectionRefused));
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
        // As a call tells of it.
        let refused = tonic::Status::from_error(Box::new(io::Error::other(refused)));
        let after = |backoff: &mut Backoff, error: &(dyn Error + 'static), seconds| {
            backoff.pause_after(error, began + Duration::from_secs(seconds), 1.0).as_millis()
        };
        let first: Vec<u128> = (0..6).map(|second| after(&mut backoff, &refused, second)).collect();
        assert_eq!(first, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!((after(&mut backoff, &refused, 400), after(&mut backoff, &refused, 401)), (1000, 2000));
        // There again, and too busy to answer.
        let busy = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!((after(&mut backoff, &busy, 402), after(&mut backoff, &busy, 403)), (4000, 8000));
        // Away again: that is another outage.
        assert_eq!(after(&mut backoff, &refused, 404), 1000);
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
