//! What is remembered of a path: its rate, and its shortest round trip.

use std::time::{Duration, Instant};

/// For how many round trips a rate counts.
const ROUNDS: usize = 10;
/// For how long the shortest round trip counts, until it is looked for again.
const SHORTEST_FOR: Duration = Duration::from_secs(10);

/// The highest of the rates of the last [`ROUNDS`] round trips, in bytes/s.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rates([u64; ROUNDS]);

impl Rates {
    pub(super) fn best(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// A rate that was reached in the round trip that runs. One that the sender's lack of data kept low says nothing
    /// unless it is higher than all others.
    pub(super) fn add(&mut self, rate: u64, app_limited: bool) {
        if app_limited && rate <= self.best() {
            return;
        }
        if let Some(current) = self.0.first_mut() {
            *current = rate.max(*current);
        }
    }

    /// The next round trip begins.
    pub(super) fn advance(&mut self) {
        self.0.rotate_right(1);
        if let Some(current) = self.0.first_mut() {
            *current = 0;
        }
    }

    /// The path has become another: only the round trip that just ended counts.
    pub(super) fn forget(&mut self) {
        for old in self.0.iter_mut().skip(1) {
            *old = 0;
        }
    }
}

/// The shortest round trip of the last [`SHORTEST_FOR`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Shortest {
    value: Option<Duration>,
    since: Instant,
}

impl Shortest {
    pub(super) fn new(now: Instant) -> Self {
        Self { value: None, since: now }
    }

    pub(super) fn value(&self) -> Option<Duration> {
        self.value
    }

    pub(super) fn add(&mut self, now: Instant, round_trip: Duration) {
        if self.value.is_none_or(|value| round_trip <= value) {
            self.renew(now, round_trip);
        }
    }

    /// Puts a new one in the place of one that counts no longer.
    pub(super) fn renew(&mut self, now: Instant, round_trip: Duration) {
        // Nothing is as near as that; a path without any length would have no window.
        self.value = Some(round_trip.max(Duration::from_micros(1)));
        self.since = now;
    }

    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.value.is_some() && now.saturating_duration_since(self.since) > SHORTEST_FOR
    }
}

/// How much a path of this rate in bytes/s takes up in `time`, in bytes.
pub(super) fn carried(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate).saturating_mul(time.as_nanos()) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The rate in bytes/s at which `bytes` came in `time`.
pub(super) fn rate(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}
