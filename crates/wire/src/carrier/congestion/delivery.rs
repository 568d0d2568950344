//! How fast what is sent arrives (draft-ietf-ccwg-bbr, "Delivery Rate Samples"), and when a round trip is over.
//!
//! A packet's record says how much had been delivered when it left. When it is acknowledged, what has been delivered since
//! then, by the time since then, is a rate that the path has carried.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::estimates::rate;

/// Records kept. When there are more, every second goes: a record stands for all packets until the next one.
const RECORDS: usize = 128;
/// So many records a round trip are enough.
const PER_ROUND_TRIP: u32 = 32;

/// What was known when packets left.
#[derive(Debug, Clone, Copy)]
struct Departure {
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: bool,
}

/// What one batch of acknowledgements says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Bytes/s; `None` where nothing is known of the packet's departure.
    pub(super) rate: Option<u64>,
    /// The sender had not enough to send for this to be all that the path carries.
    pub(super) app_limited: bool,
    pub(super) round_trip: Duration,
    /// Something that was sent after the last round trip had ended is acknowledged.
    pub(super) round_over: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Delivery {
    departures: VecDeque<Departure>,
    /// Bytes, of all packets ever acknowledged.
    delivered: u64,
    delivered_at: Instant,
    /// When the newest of the packets left that were acknowledged last.
    first_sent: Instant,
    /// When the newest packet of this batch left.
    newest: Option<Instant>,
    /// Until this much is delivered, packets show what the sender had, not what the path carries.
    limited_until: u64,
    round_ends: u64,
    /// Nothing is under way.
    idle: bool,
}

impl Delivery {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            departures: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            newest: None,
            limited_until: 0,
            round_ends: 0,
            idle: true,
        }
    }

    /// All that was ever acknowledged, in bytes.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn sent(&mut self, now: Instant, shortest: Option<Duration>) {
        if self.idle {
            // The time in which nothing was sent is not the path's.
            self.idle = false;
            self.delivered_at = now;
            self.first_sent = now;
        }
        let apart = shortest.unwrap_or_default() / PER_ROUND_TRIP;
        if self.departures.back().is_some_and(|last| now.saturating_duration_since(last.at) < apart) {
            return;
        }
        if self.departures.len() >= RECORDS {
            let mut keep = false;
            self.departures.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.departures.push_back(Departure {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.delivered < self.limited_until,
        });
    }

    pub(super) fn acknowledged(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_at = now;
        self.newest = Some(self.newest.map_or(sent, |newest| newest.max(sent)));
    }

    /// The batch is complete. `None` when nothing in it counts.
    pub(super) fn batch_over(&mut self, now: Instant, in_flight: u64, app_limited: bool) -> Option<Sample> {
        self.idle = in_flight == 0;
        if app_limited {
            self.limited_until = self.delivered.saturating_add(in_flight).max(1);
        }
        let sent = self.newest.take()?;
        let round_trip = now.saturating_duration_since(sent);
        let departed = self.departures.partition_point(|departure| departure.at <= sent);
        // What left before is not needed any more: a packet acknowledged later has left later, or came out of order.
        self.departures.drain(..departed.saturating_sub(1));
        let departure = self.departures.front().filter(|departure| departure.at <= sent).copied();
        let Some(departure) = departure else {
            return Some(Sample { rate: None, app_limited: true, round_trip, round_over: false });
        };
        let sending = sent.saturating_duration_since(departure.first_sent);
        let arriving = now.saturating_duration_since(departure.delivered_at);
        self.first_sent = self.first_sent.max(sent);
        let round_over = departure.delivered >= self.round_ends;
        if round_over {
            self.round_ends = self.delivered;
        }
        Some(Sample {
            // Acknowledgements that come in a heap seem to be fast, and packets that leave in one, too: the slower counts.
            rate: Some(rate(self.delivered.saturating_sub(departure.delivered), sending.max(arriving))),
            app_limited: departure.app_limited,
            round_trip,
            round_over,
        })
    }
}
