//! Round trips, counted and not timed: how long the chain is of "this was sent, so that came, so this was sent".

use std::time::Duration;

/// On a quicker link than this, the time does not tell an answer from what was on its way already: the scheduler takes as
/// long.
pub const TELLING: Duration = Duration::from_millis(5);

/// The chain so far.
///
/// Bytes that come are an answer when something was sent after the last answer. What comes sooner than half a round trip
/// after that cannot be one: it was on its way before.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    /// So many so far.
    count: u32,
    /// When the first bytes after the last answer went out.
    asked: Option<Duration>,
    dialled: Option<Duration>,
    shortest: Option<Duration>,
}

impl RoundTrips {
    /// TCP is there: one round trip, which nothing but the network took part in.
    pub(super) fn dialled(&mut self, took: Duration) {
        self.count += 1;
        self.dialled = Some(took);
        self.asked = None;
    }

    /// Bytes went out, at this time since the beginning.
    pub(super) fn sent(&mut self, now: Duration) {
        self.asked.get_or_insert(now);
    }

    /// Bytes came in.
    pub(super) fn came(&mut self, now: Duration) {
        let Some(asked) = self.asked else { return };
        let took = now.saturating_sub(asked);
        let least = self.round_trip().filter(|known| *known >= TELLING).map(|known| known / 2);
        if least.is_none_or(|least| took >= least) {
            self.count += 1;
            self.asked = None;
            self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// What a round trip takes, as far as known: as long as TCP took to connect, or else the quickest answer.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.dialled.or(self.shortest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_round_trip_is_an_answer_to_what_was_sent_since_the_last_one() {
        let mut trips = RoundTrips::default();
        trips.dialled(at(100));
        assert_eq!((trips.count(), trips.round_trip()), (1, Some(at(100))));
        trips.sent(at(100));
        trips.sent(at(101));
        trips.came(at(201));
        trips.came(at(202));
        assert_eq!(trips.count(), 2, "two pieces each way are one flight each way");
        trips.came(at(250));
        assert_eq!(trips.count(), 2, "nothing was asked");
    }

    #[test]
    fn what_was_on_its_way_already_answers_nothing() {
        let mut trips = RoundTrips::default();
        trips.dialled(at(100));
        trips.sent(at(100));
        trips.came(at(200));
        trips.sent(at(201));
        trips.came(at(210));
        assert_eq!(trips.count(), 2, "10 ms after the question");
        trips.came(at(301));
        assert_eq!(trips.count(), 3);
    }

    #[test]
    fn on_a_quick_link_every_change_of_direction_counts() {
        let mut trips = RoundTrips::default();
        trips.dialled(Duration::from_micros(4_000));
        for turn in 0..4 {
            trips.sent(Duration::from_micros(turn * 100));
            trips.came(Duration::from_micros(turn * 100 + 50));
        }
        assert_eq!(trips.count(), 5);
    }

    #[test]
    fn without_a_dial_the_quickest_answer_tells_the_round_trip() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.round_trip(), None);
        trips.sent(at(0));
        trips.came(at(120));
        trips.sent(at(121));
        trips.came(at(130));
        trips.came(at(225));
        assert_eq!((trips.count(), trips.round_trip()), (2, Some(at(104))));
    }
}
