//! How much may be under way: by what the path has shown to carry, and not by single losses.
//!
//! CUBIC and NewReno halve, nearly, at every loss. Where packets get lost without any link being full, they stand still:
//! at 100 ms and 1 % of loss some 0.4 MiB/s are left, whatever the links can do. This goes by a model of the path, in the
//! spirit of BBR (draft-ietf-ccwg-bbr): the highest rate at which packets arrived lately, and the shortest round trip. What
//! the path holds is one times the other; that, and a little, is the window.
//!
//! * quinn paces by 1.25 windows a round trip, and asks for nothing but the window, so that all is said by the window.
//! * A queue of a quarter of a round trip (5 ms at least) is kept standing, so that the link is never idle, and a link that
//!   becomes faster is noticed: rates grow by a quarter each round trip.
//! * Every few round trips one goes a quarter further, and the next one makes good for it. By that, connections
//!   that share a link come to share it alike, and the bound below rises again. Where the rate grows with the window for
//!   two round trips, and no queue does, it doubles as in the beginning.
//! * Heavy loss, more than 2 % of a round trip's packets, lowers a bound of the window to what came through, by no
//!   more than three tenths a round trip. So does a mark by the network (ECN), by 15 %.
//! * Every 10 s in which no shorter round trip was seen, the window goes to half of what the path holds for a moment, and
//!   shows how long a round trip is without our queue.
//! * When everything is lost for three probe timeouts (RFC 9002 §7.6), it begins anew with four packets.

mod delivery;
mod estimates;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delivery::{Delivery, Sample};
use estimates::{Rates, Shortest, carried};
use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

/// Ten packets (RFC 9002 §7.2), the smallest that QUIC may use (RFC 9000 §14).
const INITIAL_BYTES: u64 = 10 * 1_200;
/// Fewer packets can not be repaired in one round trip: a loss shows by three that are newer (RFC 9002 §6.1.1).
const LEAST_PACKETS: u64 = 4;
/// No queue shorter than this is worth a thought (RFC 8289 §4.3), and timers and processors are about as exact.
const QUEUE: Duration = Duration::from_millis(5);
/// Who has less of the window under way has nothing more to send.
const FILLED_PERCENT: u64 = 75;
/// As much as round trips that differ from each other may widen the window, where the way is short.
const QUEUE_FOR_JITTER: Duration = Duration::from_millis(25);
/// In the beginning, what is under way grows by all that is acknowledged, up to so many times (hundredths) what the path
/// has shown to hold: enough to double each round trip (4 ln 2).
const STARTUP_PERCENT: u64 = 277;
/// The rate stands still where it does not grow by so many percent
const GROWTH_PERCENT: u64 = 25;
/// in so many round trips.
const STANDS_STILL: u8 = 3;
/// Growing by so many percent, without a queue,
const GROWS_PERCENT: u64 = 15;
/// in so many round trips, there is room.
const GROWS_ROUNDS: u8 = 2;
/// Loss is heavy from one packet in so many,
const HEAVY_ONE_IN: u64 = 50;
/// and so many packets: a few may go together by accident.
const HEAVY_PACKETS: u64 = 8;
/// What heavy loss leaves of the bound, in percent, where less came through,
const LOSS_LEAVES_PERCENT: u64 = 70;
/// and a mark (RFC 8511 §3).
const MARK_LEAVES_PERCENT: u64 = 85;
/// Heavy loss does not lower the bound below so much of what the path holds: it would never be found again where packets
/// are lost at any rate. When there is less room, the rate falls, and this with it.
const BOUND_HOLDS_PERCENT: u64 = 92;
/// Longer than most pauses of a processor.
const LONG_ROUND: Duration = Duration::from_millis(500);
/// Round trips between one look for more and the next.
const CRUISE_ROUNDS: u8 = 4;
/// A look for more goes further by so many packets, too, however little was under way before: it is by this that who has
/// little of a link comes to have as much as others.
const FURTHER_PACKETS: u64 = 64;
/// How long the window is small, to see the shortest round trip.
const SHORT_LOOK: Duration = Duration::from_millis(200);

/// Makes a [`RateBased`] for each path.
#[derive(Debug)]
pub(super) struct RateBasedConfig {
    /// The largest window, in bytes.
    pub(super) most: u64,
}

impl ControllerFactory for RateBasedConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(RateBased::new(now, current_mtu, self.most))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Doubles until the rate stands still.
    Startup {
        fullest: u64,
        still: u8,
    },
    /// Lets the queue go that came of that.
    Drain {
        rounds: u8,
    },
    /// A quarter more, to see what happens.
    Up,
    /// What happened shows here, and the queue goes.
    Down,
    Cruise {
        left: u8,
    },
}

/// A look at the shortest round trip.
#[derive(Debug, Clone, Copy)]
struct Look {
    shortest: Option<Duration>,
    /// Since when so little is under way.
    small_since: Option<Instant>,
    rounds: u8,
}

/// The round trip that runs.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    delivered_before: u64,
    lost: u64,
    lost_packets: u64,
    marked: bool,
    /// The best rate, and whether any was not kept low by the sender.
    rate: u64,
    full: bool,
    shortest: Option<Duration>,
    sum: Duration,
    samples: u32,
}

/// A congestion controller that goes by the rate of the path.
#[derive(Debug, Clone)]
pub(super) struct RateBased {
    most: u64,
    packet: u64,
    delivery: Delivery,
    rates: Rates,
    shortest: Shortest,
    /// The best rate when the last round trip ended, and how many in a row have made it grow.
    best_before: u64,
    growing: u8,
    /// In this batch, in bytes.
    acknowledged: u64,
    phase: Phase,
    /// The window in [`Phase::Startup`].
    startup: u64,
    /// What heavy loss left.
    bound: Option<u64>,
    /// The last round trip was one of [`RateBased::follow_a_fall`].
    fell: bool,
    /// Heavy loss since the look for more began.
    refused: bool,
    look: Option<Look>,
    round: Round,
    /// By how much round trips differ within one, smoothed.
    jitter: Duration,
}

impl RateBased {
    pub(super) fn new(now: Instant, mtu: u16, most: u64) -> Self {
        Self {
            most,
            packet: u64::from(mtu),
            delivery: Delivery::new(now),
            rates: Rates::default(),
            shortest: Shortest::new(now),
            best_before: 0,
            growing: 0,
            acknowledged: 0,
            phase: Phase::Startup { fullest: 0, still: 0 },
            startup: INITIAL_BYTES,
            bound: None,
            fell: false,
            refused: false,
            look: None,
            round: Round::default(),
            jitter: Duration::ZERO,
        }
    }

    fn acknowledged(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivery.acknowledged(now, sent, bytes);
        self.acknowledged = self.acknowledged.saturating_add(bytes);
        if matches!(self.phase, Phase::Startup { .. }) {
            let enough = percent(self.holds(), STARTUP_PERCENT).max(2 * INITIAL_BYTES);
            if self.startup < enough {
                self.startup = self.startup.saturating_add(bytes).min(self.most);
            }
        }
    }

    fn batch_over(&mut self, now: Instant, in_flight: u64, app_limited: bool) {
        // quinn holds a sender that waits for its pacing to be one that has enough to send. One who really has, fills the window.
        let filled = in_flight.saturating_add(std::mem::take(&mut self.acknowledged));
        let app_limited = app_limited || filled < percent(self.bytes(), FILLED_PERCENT);
        let Some(sample) = self.delivery.batch_over(now, in_flight, app_limited) else { return };
        self.shortest.add(now, sample.round_trip);
        self.round.shortest =
            Some(self.round.shortest.map_or(sample.round_trip, |least| least.min(sample.round_trip)));
        self.round.sum = self.round.sum.saturating_add(sample.round_trip);
        self.round.samples = self.round.samples.saturating_add(1);
        if let Some(rate) = sample.rate {
            self.rates.add(rate, sample.app_limited);
            self.round.rate = self.round.rate.max(rate);
            self.round.full |= !sample.app_limited;
        }
        if sample.round_over {
            self.round_over();
        }
        if let Phase::Drain { rounds } = self.phase
            && (in_flight <= self.holds() || rounds >= STANDS_STILL)
        {
            self.phase = Phase::Cruise { left: CRUISE_ROUNDS };
        }
        self.look_at_the_shortest(now, in_flight, &sample);
    }

    fn round_over(&mut self) {
        let round = std::mem::take(&mut self.round);
        self.round.delivered_before = self.delivery.delivered();
        let delivered = self.delivery.delivered().saturating_sub(round.delivered_before);
        let heavy = round.lost_packets >= HEAVY_PACKETS
            && round.lost.saturating_mul(HEAVY_ONE_IN) > round.lost.saturating_add(delivered);
        // Only now: else the queues that come and go by our own doing would widen the window, and so themselves.
        if matches!(self.phase, Phase::Cruise { .. })
            && let Some(mean) = round.sum.checked_div(round.samples)
        {
            let jitter = mean.saturating_sub(round.shortest.unwrap_or_default());
            self.jitter = self.jitter.saturating_mul(7).saturating_add(jitter.saturating_mul(2)) / 8;
        }
        self.follow_a_fall(&round, heavy);
        if heavy || round.marked {
            self.refused = true;
        }
        if heavy {
            let window = self.unbounded().min(self.bound.unwrap_or(u64::MAX));
            let left = delivered.min(window).max(percent(window, LOSS_LEAVES_PERCENT));
            self.lower(left.max(percent(self.holds(), BOUND_HOLDS_PERCENT)));
        }
        self.next_phase(&round, heavy);
        self.notice_room(&round);
        if round.full {
            self.rates.advance();
        }
    }

    /// A rate of less than half, behind a queue or with heavy loss, is a path that has changed: it need not be waited for
    /// until ten round trips are over, each of which may be ten times as long as before.
    fn follow_a_fall(&mut self, round: &Round, heavy: bool) {
        let queued = match (round.shortest, self.shortest.value()) {
            (Some(now), Some(ever)) => now > ever.saturating_mul(2).max(QUEUE),
            _ => false,
        };
        let fell = round.full && round.rate < self.rates.best() / 2 && (heavy || queued);
        // A short one alone may be a processor that was busy, here or there.
        let long = round.shortest.is_some_and(|shortest| shortest > LONG_ROUND);
        if fell && (self.fell || long) {
            self.rates.forget();
        }
        self.fell = fell;
    }

    fn next_phase(&mut self, round: &Round, heavy: bool) {
        self.phase = match self.phase {
            Phase::Startup { .. } if heavy || round.marked => Phase::Drain { rounds: 0 },
            Phase::Startup { fullest, still } if round.full => {
                let best = self.rates.best();
                if best >= percent(fullest, 100 + GROWTH_PERCENT) {
                    Phase::Startup { fullest: best, still: 0 }
                } else if !self.has_queue(round) && round.lost == 0 {
                    // A full path shows it: twice what it holds is under way. This is a sender that has little.
                    Phase::Startup { fullest, still }
                } else if still + 1 < STANDS_STILL {
                    Phase::Startup { fullest, still: still + 1 }
                } else {
                    Phase::Drain { rounds: 0 }
                }
            }
            startup @ Phase::Startup { .. } => startup,
            Phase::Drain { rounds } => Phase::Drain { rounds: rounds.saturating_add(1) },
            Phase::Cruise { left: 0 } => {
                self.refused = false;
                Phase::Up
            }
            Phase::Cruise { left } => Phase::Cruise { left: left.saturating_sub(1) },
            Phase::Up => Phase::Down,
            Phase::Down => {
                if !self.refused {
                    self.raise();
                }
                // Connections that share a link shall not all look for more at the same time.
                let apart = u8::try_from(self.delivery.delivered() % 4).unwrap_or_default();
                Phase::Cruise {
                    left: if self.bound.is_some() && !self.refused { 0 } else { CRUISE_ROUNDS + apart },
                }
            }
        };
    }

    /// A rate that grows with the window, round trip by round trip, without a queue, is not the path's: it was taken for
    /// that when there was little to send.
    fn notice_room(&mut self, round: &Round) {
        let best = self.rates.best();
        let grows = round.full
            && self.bound.is_none()
            && !self.has_queue(round)
            && best >= percent(self.best_before, 100 + GROWS_PERCENT);
        self.best_before = best;
        self.growing = if grows { self.growing.saturating_add(1) } else { 0 };
        if self.growing >= GROWS_ROUNDS && !matches!(self.phase, Phase::Startup { .. }) {
            self.startup = self.bytes();
            self.phase = Phase::Startup { fullest: best, still: 0 };
        }
    }

    /// Whether every packet of the round trip has waited.
    fn has_queue(&self, round: &Round) -> bool {
        match (round.shortest, self.shortest.value()) {
            (Some(now), Some(ever)) => now > ever.saturating_add((ever / 8).max(QUEUE / 2)),
            _ => false,
        }
    }

    fn lower(&mut self, bytes: u64) {
        let bytes = bytes.max(self.least());
        self.bound = Some(self.bound.map_or(bytes, |bound| bound.min(bytes)));
    }

    /// The look for more found some.
    fn raise(&mut self) {
        let enough = self.holds().saturating_add(self.queue());
        self.bound = self.bound.map(|bound| self.further(bound)).filter(|bound| *bound < enough);
    }

    fn look_at_the_shortest(&mut self, now: Instant, in_flight: u64, sample: &Sample) {
        if self.look.is_none()
            && self.shortest.is_old(now)
            && !matches!(self.phase, Phase::Startup { .. } | Phase::Drain { .. })
        {
            self.look = Some(Look { shortest: None, small_since: None, rounds: 0 });
        }
        let small = self.while_looking();
        let Some(look) = &mut self.look else { return };
        if look.small_since.is_none() && in_flight <= small {
            look.small_since = Some(now);
        }
        if look.small_since.is_some() {
            look.shortest =
                Some(look.shortest.map_or(sample.round_trip, |least| least.min(sample.round_trip)));
            look.rounds = look.rounds.saturating_add(u8::from(sample.round_over));
        }
        let long_enough =
            look.small_since.is_some_and(|since| now.saturating_duration_since(since) >= SHORT_LOOK);
        if let Some(shortest) = look.shortest
            && long_enough
            && look.rounds >= 2
        {
            self.look = None;
            self.shortest.renew(now, shortest);
            self.phase = Phase::Cruise { left: CRUISE_ROUNDS };
        }
    }

    fn congested(&mut self, persistent: bool, lost: u64) {
        if persistent {
            self.begin_anew();
        } else if lost > 0 {
            self.round.lost = self.round.lost.saturating_add(lost);
            self.round.lost_packets =
                self.round.lost_packets.saturating_add(lost.div_ceil(self.packet.max(1)));
        } else if !self.round.marked {
            self.round.marked = true;
            let window = self.unbounded().min(self.bound.unwrap_or(u64::MAX));
            self.lower(percent(window, MARK_LEAVES_PERCENT));
            if self.phase == Phase::Up {
                self.phase = Phase::Down;
            }
        }
    }

    fn begin_anew(&mut self) {
        self.rates = Rates::default();
        self.phase = Phase::Startup { fullest: 0, still: 0 };
        self.startup = self.least();
        self.bound = None;
        self.look = None;
    }

    /// What is under way when the link is full and no queue stands before it.
    fn holds(&self) -> u64 {
        carried(self.rates.best(), self.shortest.value().unwrap_or_default())
    }

    /// What may stand in a queue.
    fn queue(&self) -> u64 {
        let round_trip = self.shortest.value().unwrap_or_default();
        let jitter = self.jitter.min((round_trip / 2).max(QUEUE_FOR_JITTER));
        carried(self.rates.best(), (round_trip / 4).max(QUEUE).max(jitter))
    }

    fn least(&self) -> u64 {
        self.packet.saturating_mul(LEAST_PACKETS)
    }

    fn unbounded(&self) -> u64 {
        match self.phase {
            Phase::Startup { .. } => self.startup,
            Phase::Drain { .. } => self.holds(),
            Phase::Up => self.further(self.holds().saturating_add(self.queue())),
            Phase::Down => self.holds().saturating_add(self.queue() / 8),
            Phase::Cruise { .. } => self.holds().saturating_add(self.queue()),
        }
    }

    /// How far a look for more goes.
    fn further(&self, window: u64) -> u64 {
        let packets = self.packet.saturating_mul(FURTHER_PACKETS).min(window / 2);
        percent(window, 100 + GROWTH_PERCENT).saturating_add(packets)
    }

    fn while_looking(&self) -> u64 {
        (self.holds() / 2).max(self.least())
    }

    fn bytes(&self) -> u64 {
        let mut window = self.unbounded();
        if self.bound.is_none() && !matches!(self.phase, Phase::Startup { .. }) {
            window = window.max(INITIAL_BYTES);
        }
        if let Some(bound) = self.bound {
            window = window.min(if self.phase == Phase::Up { self.further(bound) } else { bound });
        }
        if self.look.is_some() {
            window = window.min(self.while_looking());
        }
        window.min(self.most).max(self.least())
    }
}

fn percent(bytes: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

impl Controller for RateBased {
    fn on_sent(&mut self, now: Instant, _bytes: u64, _last_packet_number: u64) {
        self.delivery.sent(now, self.shortest.value());
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _app_limited: bool, _rtt: &RttEstimator) {
        self.acknowledged(now, sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _largest: Option<u64>) {
        self.batch_over(now, in_flight, app_limited);
    }

    fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.congested(is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.packet = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        self.bytes()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL_BYTES
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
