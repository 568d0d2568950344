//! One direction between two hosts: when a packet arrives, or why it does not. Pure: time comes in, a fate comes out.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::plan::Conditions;

/// Bytes under way on one line, past which packets are dropped: a second of a Gbit/s. It bounds the memory.
const UNDER_WAY_MOST: usize = 128 << 20;
/// How long the queue before a line of limited rate may be, in nanoseconds of that rate.
const QUEUE_NANOSECONDS: u64 = 100_000_000;
/// And at least so many bytes, or a slow line would take no packet at all.
const QUEUE_LEAST: u64 = 64 << 10;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at this time.
    Arrives(u64),
    /// It is lost on the way, as the conditions have it.
    Lost,
    /// The queue before the line is full.
    Full,
}

/// One direction. Times are nanoseconds since any one moment, and never go back.
#[derive(Debug, Clone)]
pub struct Line {
    conditions: Conditions,
    numbers: Numbers,
    /// When the last packet has left the queue.
    free: u64,
    /// When the last packet arrives: packets do not overtake each other.
    last: u64,
    under_way: usize,
}

impl Line {
    /// A line with nothing on it.
    #[must_use]
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self { conditions, numbers: Numbers::new(seed), free: 0, last: 0, under_way: 0 }
    }

    /// From now on. What is under way arrives as it was going to.
    pub fn change(&mut self, conditions: Conditions) {
        self.conditions = conditions;
        // A line that got faster takes packets at once: its old queue has left the reckoning.
        self.free = 0;
    }

    /// What becomes of a packet of so many bytes that is sent now.
    pub fn admit(&mut self, now: u64, bytes: usize) -> Fate {
        // Drawn for every packet, so that the fate of the n-th one depends on nothing but the seed.
        let (lost, shift) = (self.numbers.share(), self.numbers.share());
        if self.under_way.saturating_add(bytes) > UNDER_WAY_MOST {
            return Fate::Full;
        }
        let mut leaves = now;
        if let Some(rate) = self.conditions.rate {
            let waits = self.free.saturating_sub(now);
            if waits > QUEUE_NANOSECONDS.max(transmission(QUEUE_LEAST, rate)) {
                return Fate::Full;
            }
            leaves = now.max(self.free).saturating_add(transmission(bytes as u64, rate));
            self.free = leaves;
        }
        if lost < self.conditions.loss {
            return Fate::Lost;
        }
        let arrives = leaves.saturating_add(self.delay(shift)).max(self.last);
        self.last = arrives;
        self.under_way += bytes;
        Fate::Arrives(arrives)
    }

    /// A packet of so many bytes has arrived.
    pub fn arrived(&mut self, bytes: usize) {
        self.under_way = self.under_way.saturating_sub(bytes);
    }

    /// Half a round trip, moved by up to the jitter either way.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "seconds of nanoseconds"
    )]
    fn delay(&self, shift: f64) -> u64 {
        let half = self.conditions.round_trip.as_nanos() as f64 / 2.0;
        let moved = half + self.conditions.jitter.as_nanos() as f64 * (2.0 * shift - 1.0);
        moved.max(0.0) as u64
    }
}

/// Nanoseconds that so many bytes take at this rate, bits a second.
fn transmission(bytes: u64, rate: u64) -> u64 {
    let nanoseconds = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate.max(1));
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// Numbers from a seed: the same ones for the same seed (SplitMix64), and good ones for seeds that are alike.
#[derive(Debug, Clone)]
pub(super) struct Numbers(SplitMix64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From 0 up to but not including 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits")]
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn conditions(rtt_ms: u64) -> Conditions {
        Conditions { round_trip: Duration::from_millis(rtt_ms), ..Conditions::default() }
    }

    #[test]
    fn a_packet_takes_half_a_round_trip() {
        let mut line = Line::new(conditions(100), 1);
        assert_eq!(line.admit(7, 1500), Fate::Arrives(7 + 50 * MS));
        line.change(conditions(0));
        assert_eq!(line.admit(8, 60), Fate::Arrives(7 + 50 * MS), "no packet overtakes");
    }

    #[test]
    fn a_rate_spaces_packets_and_its_queue_is_bounded() {
        let mut line = Line::new(Conditions { rate: Some(12_000_000), ..conditions(0) }, 1);
        // 1500 bytes at 12 Mbit/s: one millisecond each.
        assert_eq!(line.admit(0, 1500), Fate::Arrives(MS));
        assert_eq!(line.admit(0, 1500), Fate::Arrives(2 * MS));
        let taken = (0..1000).filter(|_| line.admit(0, 1500) != Fate::Full).count();
        assert!((95..105).contains(&taken), "a queue of 100 ms, not {taken} packets");
        assert_ne!(line.admit(50 * MS, 1500), Fate::Full, "it empties with time");
    }

    #[test]
    fn what_is_under_way_is_bounded_without_a_rate_too() {
        let mut line = Line::new(conditions(1000), 1);
        let taken = (0..200_000).filter(|_| line.admit(0, 1500) != Fate::Full).count();
        assert_eq!(taken, UNDER_WAY_MOST / 1500);
        line.arrived(1500);
        assert_ne!(line.admit(0, 1500), Fate::Full);
    }

    #[test]
    fn loss_is_what_was_asked_for_and_the_same_every_time() {
        let fates = |seed| {
            let mut line = Line::new(Conditions { loss: 0.05, ..conditions(10) }, seed);
            (0..20_000).map(|packet| line.admit(packet, 100)).collect::<Vec<_>>()
        };
        let lost = fates(7).iter().filter(|fate| **fate == Fate::Lost).count();
        assert!((900..1100).contains(&lost), "{lost} of 20000");
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
    }

    #[test]
    fn a_seed_gives_the_published_numbers() {
        // The first ones of Vigna's splitmix64.c from the seed 1234567.
        let mut numbers = Numbers::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| numbers.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    proptest! {
        #[test]
        fn packets_arrive_in_order_and_not_too_soon(
            sends in prop::collection::vec((0_u64..20_000_000, 20_usize..1500), 1..200),
            rtt in 0_u64..300, jitter in 0_u64..50, rate in prop::option::of(100_000_u64..1_000_000_000), seed: u64,
        ) {
            let all = Conditions { jitter: Duration::from_millis(jitter), rate, loss: 0.1, ..conditions(rtt) };
            let mut line = Line::new(all, seed);
            let (mut now, mut last) = (0, 0);
            for (pause, bytes) in sends {
                now += pause;
                if let Fate::Arrives(at) = line.admit(now, bytes) {
                    prop_assert!(at >= last && at >= now + (rtt * MS / 2).saturating_sub(jitter * MS));
                    last = at;
                }
            }
        }
    }
}
