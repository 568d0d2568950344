//! Senders behind one link: a rate, a queue that drops what does not fit, a way of some length, and losses by chance.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use super::RateBased;
use crate::carrier::WINDOW_BYTES;

pub(super) const PACKET: u64 = 1_200;

/// What lies between.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bytes/s.
    pub(super) rate: u64,
    /// There and back.
    pub(super) round_trip: Duration,
    /// Bytes that wait at most.
    pub(super) queue: u64,
    /// Of 1,000,000 packets so many are lost.
    pub(super) lost: u64,
    /// Acknowledgements are later by up to this.
    pub(super) jitter: Duration,
}

impl Link {
    /// What it holds without a queue, in bytes.
    pub(super) fn holds(&self) -> u64 {
        super::carried(self.rate, self.round_trip)
    }
}

/// One connection that always has something to send, but where `has` says otherwise.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) controller: RateBased,
    pub(super) starts: Instant,
    /// Bytes/s that the application has at most.
    pub(super) has: Option<u64>,
    offered: u64,
    under_way: UnderWay,
    next: u64,
    srtt: Duration,
    tokens: f64,
    filled: Instant,
    wakes: Option<Instant>,
    last_heard: Instant,
    app_limited: bool,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) sent: u64,
}

/// When each packet that is neither acknowledged nor lost was sent. Their numbers follow each other, so the place of each is
/// known: an ordered map took most of the time of these tests.
#[derive(Debug, Default)]
struct UnderWay {
    /// The number of the first place.
    first: u64,
    places: VecDeque<Option<Instant>>,
    packets: u64,
}

impl UnderWay {
    fn sent(&mut self, number: u64, when: Instant) {
        if self.places.is_empty() {
            self.first = number;
        }
        assert_eq!(self.first + self.places.len() as u64, number, "packets are numbered in order");
        self.places.push_back(Some(when));
        self.packets += 1;
    }

    fn arrived(&mut self, number: u64) -> Option<Instant> {
        let place = usize::try_from(number.checked_sub(self.first)?).unwrap();
        let sent = self.places.get_mut(place)?.take()?;
        self.packets -= 1;
        Some(sent)
    }

    /// Gives all before this number up, and says how many they were.
    fn lose_before(&mut self, number: u64) -> u64 {
        let before = self.packets;
        while self.first < number
            && let Some(place) = self.places.pop_front()
        {
            self.first += 1;
            self.packets -= u64::from(place.is_some());
        }
        before - self.packets
    }

    fn lose_all(&mut self) -> u64 {
        self.places.clear();
        std::mem::take(&mut self.packets)
    }

    fn bytes(&self) -> u64 {
        self.packets * PACKET
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Acknowledged { flow: usize, number: u64 },
    Wake { flow: usize },
}

/// What happens when, in the order in which it was said where that is the same.
type Timed = (Instant, u64, Event);

pub(super) struct Simulation {
    pub(super) link: Link,
    pub(super) now: Instant,
    pub(super) flows: Vec<Flow>,
    wakes: BinaryHeap<Reverse<Timed>>,
    /// Packets leave the link in their order: no heap has to sort them, which took a third of the time of these tests.
    arrivals: VecDeque<Timed>,
    order: u64,
    free_at: Instant,
    last_arrival: Instant,
    random: u64,
    /// The longest queue, in bytes, since it was last asked for.
    pub(super) queued: u64,
}

impl Simulation {
    pub(super) fn new(link: Link, starts: &[Duration]) -> Self {
        let now = Instant::now();
        let mut simulation = Self {
            link,
            now,
            flows: Vec::new(),
            wakes: BinaryHeap::new(),
            arrivals: VecDeque::new(),
            order: 0,
            free_at: now,
            last_arrival: now,
            random: 0x9e37_79b9_7f4a_7c15,
            queued: 0,
        };
        for (index, start) in starts.iter().enumerate() {
            let starts = now + *start;
            simulation.flows.push(Flow {
                controller: RateBased::new(starts, 1_200, u64::from(WINDOW_BYTES)),
                starts,
                has: None,
                offered: 0,
                under_way: UnderWay::default(),
                next: 0,
                srtt: link.round_trip,
                tokens: 0.0,
                filled: starts,
                wakes: None,
                last_heard: starts,
                app_limited: false,
                delivered: 0,
                lost: 0,
                sent: 0,
            });
            simulation.wake_at(starts, index);
        }
        simulation
    }

    fn wake_at(&mut self, time: Instant, flow: usize) {
        self.order += 1;
        self.wakes.push(Reverse((time, self.order, Event::Wake { flow })));
    }

    /// The next of all, where it comes no later.
    fn next(&mut self, until: Instant) -> Option<(Instant, Event)> {
        let arrival = self.arrivals.front().copied();
        let wake = self.wakes.peek().map(|Reverse(wake)| *wake);
        let arrives = match (arrival, wake) {
            (Some(arrival), Some(wake)) => (arrival.0, arrival.1) < (wake.0, wake.1),
            (arrival, _) => arrival.is_some(),
        };
        let (when, _, event) = if arrives { arrival? } else { wake? };
        if when > until {
            return None;
        }
        if arrives {
            self.arrivals.pop_front();
        } else {
            self.wakes.pop();
        }
        Some((when, event))
    }

    fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000_000
    }

    /// Runs for so long, and says what each flow delivered in it, in bytes/s.
    pub(super) fn run(&mut self, time: Duration) -> Vec<u64> {
        let until = self.now + time;
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        while let Some((when, event)) = self.next(until) {
            self.now = when;
            match event {
                Event::Acknowledged { flow, number } => self.acknowledged(flow, number),
                Event::Wake { flow } => {
                    self.flows[flow].wakes = None;
                    self.silence(flow);
                }
            }
            let flow = match event {
                Event::Acknowledged { flow, .. } | Event::Wake { flow } => flow,
            };
            self.send(flow);
        }
        self.now = until;
        self.flows
            .iter()
            .zip(before)
            .map(|(flow, before)| super::estimates::rate(flow.delivered - before, time))
            .collect()
    }

    fn acknowledged(&mut self, index: usize, number: u64) {
        let now = self.now;
        let flow = &mut self.flows[index];
        flow.last_heard = now;
        let Some(sent) = flow.under_way.arrived(number) else { return };
        flow.delivered += PACKET;
        flow.controller.acknowledged(now, sent, PACKET);
        flow.controller.batch_over(now, flow.under_way.bytes(), flow.app_limited);
        flow.srtt = (flow.srtt * 7 + now.duration_since(sent)) / 8;
        let lost = flow.under_way.lose_before(number.saturating_sub(2)) * PACKET;
        if lost > 0 {
            flow.lost += lost;
            flow.controller.congested(false, lost);
        }
    }

    /// Nothing heard for three probe timeouts: all of it is lost.
    fn silence(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let silent = self.now.saturating_duration_since(flow.last_heard);
        if flow.under_way.packets > 0 && silent > flow.srtt * 6 {
            let lost = flow.under_way.lose_all() * PACKET;
            flow.lost += lost;
            flow.last_heard = self.now;
            flow.controller.congested(true, lost);
        }
    }

    fn send(&mut self, index: usize) {
        loop {
            let now = self.now;
            let flow = &mut self.flows[index];
            if let Some(has) = flow.has {
                let allowed = super::carried(has, now.saturating_duration_since(flow.starts));
                if flow.offered + PACKET > allowed {
                    flow.app_limited = true;
                    self.wake(index, Duration::from_millis(5));
                    return;
                }
            }
            flow.app_limited = false;
            let window = flow.controller.bytes();
            if flow.under_way.bytes() + PACKET > window {
                self.wake(index, Duration::from_secs(1));
                return;
            }
            // As quinn paces: 1.25 windows a round trip, by heaps of ten packets or what comes in 2 ms.
            let rate = window as f64 * 1.25 / flow.srtt.as_secs_f64();
            let most = (rate / 1.25 * 0.002).max(10.0 * PACKET as f64);
            flow.tokens = (flow.tokens + rate * now.duration_since(flow.filled).as_secs_f64()).min(most);
            flow.filled = now;
            if flow.tokens < PACKET as f64 {
                let wait = Duration::from_secs_f64((most - flow.tokens) / rate);
                self.wake(index, wait);
                return;
            }
            flow.tokens -= PACKET as f64;
            flow.controller.delivery.sent(now, flow.controller.shortest.value());
            if flow.under_way.packets == 0 {
                flow.last_heard = now;
            }
            let number = flow.next;
            flow.next += 1;
            flow.sent += PACKET;
            flow.offered += PACKET;
            flow.under_way.sent(number, now);
            self.enter(index, number);
        }
    }

    fn wake(&mut self, index: usize, wait: Duration) {
        let when = self.now + wait;
        let flow = &mut self.flows[index];
        if flow.wakes.is_none_or(|wakes| when < wakes) {
            flow.wakes = Some(when);
            self.wake_at(when, index);
        }
    }

    fn enter(&mut self, flow: usize, number: u64) {
        let waits = super::carried(self.link.rate, self.free_at.saturating_duration_since(self.now));
        if self.chance() < self.link.lost || waits + PACKET > self.link.queue {
            return;
        }
        self.queued = self.queued.max(waits);
        self.free_at =
            self.free_at.max(self.now) + Duration::from_secs_f64(PACKET as f64 / self.link.rate as f64);
        let late = self.link.jitter.mul_f64(self.chance() as f64 / 1e6);
        let arrival = (self.free_at + self.link.round_trip + late).max(self.last_arrival);
        self.last_arrival = arrival;
        self.order += 1;
        self.arrivals.push_back((arrival, self.order, Event::Acknowledged { flow, number }));
    }
}
