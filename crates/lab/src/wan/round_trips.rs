//! Round trips, counted: the longest chain of packets in which each was sent after the one before had arrived.
//!
//! A packet may have been sent because of anything that its sender had got by then. Of all chains from what the client sent
//! first to what it got last, the one that was on the wire for longest is what the client waited for: its length is how
//! often one side had to wait for the other, a number that does not depend on how fast the machine is. The sum of its
//! ways is never more than the time that passed, so it never counts a wait that did not take place; where programs take
//! longer than packets, it may count one that did while something else went on, so count where the way is long.
//!
//! What lets a packet go is what has arrived at the same host on any connection: data, and beginnings and ends of
//! connections. A bare acknowledgement lets go only of what had to wait for it (a small packet behind one that is not
//! acknowledged, by Nagle's algorithm (RFC 896), or a full one behind the window), which shows in that it is sent as soon as
//! the acknowledgement is there. Acknowledgements of QUIC are encrypted: a packet that has no room for anything else counts
//! as one, and lets nothing go. Neither does one that tries out how long a packet may be (RFC 8899), which neither side waits for:
//! nothing else of its direction can be longer than all before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::captured::CapturedPacket;
use super::packet::{Carries, Packet, Segment};

/// How soon after an acknowledgement the kernel sends what waited for it, at most. A busy machine takes a while.
const RELEASE: Duration = Duration::from_millis(2);
/// And at most so small a part of the acknowledgement's way, or any packet of a quick link would count.
const RELEASE_SHARE: u32 = 4;
/// Payload of the first packets of QUIC, which no other packets are longer than until longer ones have got through
/// (RFC 9000 §14.1).
const QUIC_FIRST: usize = 1_200;
/// Payload of a packet that is full, on links with packets of 1,500 bytes.
const FULL: usize = 1_000;

/// What a packet waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Nothing: the client began with it.
    Start,
    /// Data, or the beginning or end of a connection, from the other side.
    Data,
    /// A bare acknowledgement: Nagle's algorithm, or a window.
    Acknowledgement,
}

/// One way of one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// The number of the host that sent it.
    pub from: usize,
    /// The number of the host that got it.
    pub to: usize,
    /// When it was sent, since the capture began.
    pub sent: Duration,
    /// When it arrived.
    pub arrived: Duration,
    /// What it waited for.
    pub cause: Cause,
    /// What it is.
    pub packet: Packet,
}

/// A chain of packets, each sent after the one before had arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    /// The ways, from the first to the last.
    pub trips: Vec<Trip>,
}

impl Journey {
    /// How many of its ways lead from one of these hosts to the other, either way.
    #[must_use]
    pub fn between(&self, one: usize, other: usize) -> usize {
        let pair =
            |trip: &&Trip| (trip.from == one && trip.to == other) || (trip.from == other && trip.to == one);
        self.trips.iter().filter(pair).count()
    }

    /// How many of its packets waited for a bare acknowledgement.
    #[must_use]
    pub fn stalls(&self) -> usize {
        self.trips.iter().filter(|trip| trip.cause == Cause::Acknowledgement).count()
    }

    /// How long it was on the wire.
    #[must_use]
    pub fn on_the_wire(&self) -> Duration {
        self.trips.iter().map(|trip| trip.arrived.saturating_sub(trip.sent)).sum()
    }

    /// From the first packet's sending to the last one's arrival.
    #[must_use]
    pub fn took(&self) -> Duration {
        let began = self.trips.first().map(|trip| trip.sent).unwrap_or_default();
        self.trips.last().map(|trip| trip.arrived).unwrap_or_default().saturating_sub(began)
    }
}

/// The chain that ends with a payload for the client.
pub(super) fn journey(packets: &[&CapturedPacket], client: usize, until: Duration) -> Option<Journey> {
    let packets = without_probes(packets);
    let sweep = Sweep::over(&packets, client, until);
    let in_time = |captured: &CapturedPacket| captured.arrived.is_some_and(|at| at <= until);
    let got = |captured: &CapturedPacket| {
        captured.to == client && captured.packet.says_something() && in_time(captured)
    };
    sweep.chain(sweep.longest(got)?)
}

/// The chain that ends anywhere, for a client that gets nothing back.
pub(super) fn one_way(packets: &[&CapturedPacket], client: usize) -> Option<Journey> {
    let packets = without_probes(packets);
    let sweep = Sweep::over(&packets, client, Duration::MAX);
    sweep.chain(sweep.longest(|captured| captured.packet.says_something())?)
}

/// All but those by which QUIC finds out how long a packet may be, of connections whose beginning is there.
fn without_probes<'a>(packets: &[&'a CapturedPacket]) -> Vec<&'a CapturedPacket> {
    // By direction, the longest so far; none where the beginning was not seen.
    let mut longest: BTreeMap<Ends, Option<usize>> = BTreeMap::new();
    let mut is_probe = |captured: &CapturedPacket| {
        let (Carries::Udp { payload, .. }, Some(ends)) = (captured.packet.carries, captured.packet.ends())
        else {
            return false;
        };
        if !longest.contains_key(&ends) {
            let begins = (payload == QUIC_FIRST).then_some(QUIC_FIRST);
            longest.insert(ends, begins);
            longest.insert((ends.1, ends.0), begins);
        }
        match longest.get_mut(&ends) {
            Some(Some(most)) if payload > *most => {
                *most = payload;
                true
            }
            _ => false,
        }
    };
    packets.iter().copied().filter(|captured| !is_probe(captured)).collect()
}

/// How long a chain was on the wire, and how many ways it has.
type Cost = (Duration, usize);

/// The longest chain that ends with a packet.
#[derive(Debug, Clone, Copy)]
struct Reached {
    cost: Cost,
    /// The packet before it, and what it was to this one.
    before: Option<usize>,
    cause: Cause,
}

/// An acknowledgement that may let something go.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    by: usize,
    at: Duration,
    number: u32,
    within: Duration,
}

/// One direction of a connection: the sender's end and the receiver's.
type Ends = (SocketAddr, SocketAddr);

/// All packets in the order of time: when one is sent, what may have caused it is what has arrived by then.
struct Sweep<'a> {
    packets: &'a [&'a CapturedPacket],
    /// By packet.
    reached: Vec<Option<Reached>>,
}

#[derive(Default)]
struct State {
    /// By host: the packet at the end of the longest chain that has arrived.
    best: BTreeMap<usize, usize>,
    /// By the direction that waits for it: the last acknowledgement that has arrived.
    acknowledged: BTreeMap<Ends, Acknowledged>,
    /// By direction: the number after the last byte sent.
    next: BTreeMap<Ends, u32>,
    /// Directions on which the next packet without payload completes the opening of a connection.
    opening: BTreeSet<Ends>,
    /// By direction: the highest acknowledgement that it sent.
    highest: BTreeMap<Ends, u32>,
}

impl<'a> Sweep<'a> {
    fn over(packets: &'a [&'a CapturedPacket], client: usize, until: Duration) -> Self {
        let mut sweep = Self { packets, reached: vec![None; packets.len()] };
        let mut events: Vec<(Duration, bool, usize)> = Vec::with_capacity(packets.len() * 2);
        for (index, captured) in packets.iter().enumerate() {
            events.push((captured.sent, true, index));
            events.extend(captured.arrived.map(|at| (at, false, index)));
        }
        // At the same moment, arrivals first.
        events.sort_unstable();
        let mut state = State::default();
        // What acknowledgements moved things on is known when they are sent, and used when they arrive.
        let mut advances = vec![false; packets.len()];
        let mut moves = vec![false; packets.len()];
        for (at, is_sent, index) in events {
            if at > until {
                break;
            }
            let Some(captured) = packets.get(index) else { continue };
            let ends = captured.packet.ends();
            if is_sent {
                let reached = sweep.sent(captured, client, &state);
                if let Some(slot) = sweep.reached.get_mut(index) {
                    *slot = reached;
                }
                let (moved, advanced) = state.note(&captured.packet, ends);
                if let (Some(a), Some(b)) = (moves.get_mut(index), advances.get_mut(index)) {
                    (*a, *b) = (moved, advanced);
                }
                continue;
            }
            let Some(cost) = sweep.cost(index) else { continue };
            if moves.get(index) == Some(&true) {
                let best = state.best.get(&captured.to).and_then(|best| sweep.cost(*best));
                if best.is_none_or(|best| cost > best) {
                    state.best.insert(captured.to, index);
                }
            }
            if let (true, Carries::Tcp(segment), Some((from, to))) =
                (advances.get(index) == Some(&true), captured.packet.carries, ends)
            {
                let within = RELEASE.min(at.saturating_sub(captured.sent) / RELEASE_SHARE);
                let number = segment.acknowledged.unwrap_or_default();
                state.acknowledged.insert((to, from), Acknowledged { by: index, at, number, within });
            }
        }
        sweep
    }

    fn cost(&self, index: usize) -> Option<Cost> {
        self.reached.get(index).copied().flatten().map(|reached| reached.cost)
    }

    /// The longest chain to a packet that is being sent.
    fn sent(&self, captured: &CapturedPacket, client: usize, state: &State) -> Option<Reached> {
        let data = state.best.get(&captured.from).map(|best| (*best, Cause::Data));
        let released = state.released(&captured.packet, captured.sent).map(|by| (by, Cause::Acknowledgement));
        let before = [data, released]
            .into_iter()
            .flatten()
            .filter_map(|(by, cause)| self.cost(by).map(|cost| (cost, by, cause)))
            // Where both come to the same, it is data that counts.
            .max_by_key(|(cost, _, cause)| (*cost, *cause == Cause::Data));
        let wire = captured.arrived.map_or(Duration::ZERO, |at| at.saturating_sub(captured.sent));
        match before {
            Some(((on_the_wire, trips), by, cause)) => {
                Some(Reached { cost: (on_the_wire + wire, trips + 1), before: Some(by), cause })
            }
            None if captured.from == client => {
                Some(Reached { cost: (wire, 1), before: None, cause: Cause::Start })
            }
            None => None,
        }
    }

    /// The packet at the end of the longest chain, among those that arrived and are meant.
    fn longest(&self, meant: impl Fn(&CapturedPacket) -> bool) -> Option<usize> {
        let indices = self.packets.iter().enumerate();
        let arrived = indices.filter(|(_, captured)| captured.arrived.is_some() && meant(captured));
        arrived.filter_map(|(index, _)| Some((self.cost(index)?, index))).max().map(|(_, index)| index)
    }

    fn chain(&self, last: usize) -> Option<Journey> {
        let mut trips = Vec::new();
        let mut at = Some(last);
        while let Some(index) = at {
            let (captured, reached) = (self.packets.get(index)?, self.reached.get(index).copied().flatten()?);
            trips.push(Trip {
                from: captured.from,
                to: captured.to,
                sent: captured.sent,
                arrived: captured.arrived?,
                cause: reached.cause,
                packet: captured.packet,
            });
            at = reached.before;
        }
        trips.reverse();
        Some(Journey { trips })
    }
}

impl State {
    /// Takes in what was sent: whether it moves the other side on, and whether it acknowledges something new.
    fn note(&mut self, packet: &Packet, ends: Option<Ends>) -> (bool, bool) {
        let (Carries::Tcp(segment), Some(ends)) = (packet.carries, ends) else {
            return (packet.says_something() || matches!(packet.carries, Carries::Other { .. }), false);
        };
        let back = (ends.1, ends.0);
        if segment.syn && segment.acknowledged.is_some() {
            self.opening.insert(back);
        }
        let bare = segment.payload == 0 && !segment.syn && !segment.fin && !segment.reset;
        // Servers that speak first do so when the client's acknowledgement of their SYN is there.
        let opens = !segment.syn && self.opening.remove(&ends);
        let after = segment.next_sequence();
        let newest = self.next.entry(ends).or_insert(after);
        if is_after(after, *newest) {
            *newest = after;
        }
        let advances = segment.acknowledged.is_some_and(|number| {
            let highest = self.highest.insert(ends, number);
            highest.is_none_or(|highest| is_after(number, highest))
        });
        (!bare || opens, bare && advances)
    }

    /// The acknowledgement that let this packet go, when it was one.
    fn released(&self, packet: &Packet, sent: Duration) -> Option<usize> {
        let (Carries::Tcp(segment), ends) = (packet.carries, packet.ends()?) else { return None };
        let acknowledged = self.acknowledged.get(&ends)?;
        let at_once = sent.saturating_sub(acknowledged.at) <= acknowledged.within;
        let waited = segment.payload > 0 && self.waited(&segment, ends, acknowledged.number);
        (at_once && waited).then_some(acknowledged.by)
    }

    /// Whether a packet had to wait for an acknowledgement: of everything before it, or of a full window.
    fn waited(&self, segment: &Segment, ends: Ends, number: u32) -> bool {
        segment.payload >= FULL || self.next.get(&ends) == Some(&number)
    }
}

/// Whether a sequence number is after another; they wrap (RFC 9293 §3.4).
fn is_after(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::capture::Capture;
    use super::super::packet::tests::tcp;
    use super::*;

    const CLIENT: &str = "10.0.0.1:40000";
    const SERVER: &str = "10.0.0.2:22";
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    const DATA: u8 = 0x18;

    /// A conversation over links of 50 ms each way, written down as its packets.
    #[derive(Default)]
    struct Story(Vec<CapturedPacket>);

    impl Story {
        /// The host that an address belongs to is its last number less one.
        fn add(&mut self, at: f64, from: &str, to: &str, flags: u8, numbers: (u32, u32), payload: usize) {
            let packet = Packet::parse(&tcp(from, to, flags, numbers, payload)).unwrap();
            let host = |text: &str| {
                usize::from(
                    text.split(':').next().unwrap().rsplit('.').next().unwrap().parse::<u8>().unwrap(),
                ) - 1
            };
            let sent = Duration::from_secs_f64(at / 1e3);
            let arrived = Some(sent + Duration::from_millis(50));
            self.0.push(CapturedPacket {
                from: host(from),
                to: host(to),
                sent,
                arrived,
                lost: false,
                packet,
            });
        }

        fn up(&mut self, at: f64, flags: u8, numbers: (u32, u32), payload: usize) {
            self.add(at, CLIENT, SERVER, flags, numbers, payload);
        }

        fn down(&mut self, at: f64, flags: u8, numbers: (u32, u32), payload: usize) {
            self.add(at, SERVER, CLIENT, flags, numbers, payload);
        }

        /// The client opens a connection at 0; it is open there at 100.
        fn open() -> Self {
            let mut story = Self::default();
            story.up(0.0, SYN, (0, 0), 0);
            story.down(50.1, SYN | ACK, (0, 1), 0);
            story.up(100.1, ACK, (1, 1), 0);
            story
        }

        fn capture(mut self) -> Capture {
            self.0.sort_by_key(|captured| captured.sent);
            Capture { hosts: vec!["client".into(), "server".into()], packets: self.0, missed: 0 }
        }

        fn flow(self) -> super::super::capture::Flow {
            let flows = self.capture().flows();
            assert_eq!(flows.len(), 1);
            flows.into_iter().next().unwrap()
        }
    }

    #[test]
    fn what_quic_tries_out_is_no_flight() {
        let says = |at: u64, from: usize, payload: usize| {
            let ends = if from == 0 { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
            let [source, destination] = [ends.0, ends.1].map(|end| end.parse::<SocketAddr>().unwrap());
            let (source_port, destination_port) = (source.port(), destination.port());
            let carries = Carries::Udp { source_port, destination_port, payload, bare: payload < 40 };
            let packet = Packet { source: source.ip(), destination: destination.ip(), carries };
            let (sent, arrived) = (Duration::from_millis(at), Some(Duration::from_millis(at + 50)));
            CapturedPacket { from, to: 1 - from, sent, arrived, lost: false, packet }
        };
        // A handshake, a question and its answer, which takes its time; meanwhile both sides try longer packets.
        let mut all = vec![says(0, 0, 1_200), says(51, 1, 1_200), says(102, 0, 300)];
        all.extend([says(102, 1, 1_326), says(153, 0, 1_326), says(204, 1, 1_389), says(255, 0, 1_389)]);
        all.extend([says(306, 1, 1_420), says(357, 0, 35), says(400, 1, 700)]);
        let trips = |all: &[CapturedPacket]| {
            journey(&all.iter().collect::<Vec<_>>(), 0, Duration::from_secs(1)).unwrap().trips.len()
        };
        assert_eq!(trips(&all), 4);
        // Later packets may be as long as what was tried.
        all.extend([says(451, 0, 1_389), says(502, 1, 1_420)]);
        assert_eq!(trips(&all), 6);
        // Nothing is known of a connection that was there before.
        assert_eq!(trips(&[says(0, 0, 1_389), says(51, 1, 1_420)]), 2);
    }

    #[test]
    fn a_question_and_an_answer_are_two_round_trips_with_the_opening() {
        let mut story = Story::open();
        story.up(100.2, DATA, (1, 1), 10);
        story.down(150.3, ACK, (1, 11), 0);
        story.down(155.0, DATA, (1, 11), 2000);
        story.down(155.1, DATA, (2001, 11), 500);
        let flow = story.flow();
        assert_eq!((flow.round_trips(), flow.whole), (2, true));
        assert_eq!((flow.up.bytes, flow.down.bytes, flow.down.with_data), (10, 2500, 2));
        assert_eq!(flow.took, Duration::from_secs_f64(0.2051));
        assert_eq!(flow.journey.unwrap().stalls(), 0);
    }

    #[test]
    fn a_server_that_speaks_first_waits_for_the_opening_alone() {
        let mut story = Story::open();
        // It takes its time, but no other packet is waited for.
        story.down(162.0, DATA, (1, 1), 40);
        assert_eq!(story.flow().round_trips(), 2);
    }

    #[test]
    fn what_is_sent_together_is_one_flight() {
        let mut story = Story::open();
        for packet in 0..5_u32 {
            story.up(100.2 + f64::from(packet), DATA, (1 + packet * 10, 1), 10);
        }
        story.down(160.0, DATA, (1, 51), 10);
        story.down(190.0, DATA, (11, 51), 10);
        assert_eq!(story.flow().round_trips(), 2);
    }

    #[test]
    fn waiting_by_nagles_algorithm_is_a_round_trip_and_is_called_one() {
        let mut story = Story::open();
        story.up(100.2, DATA, (1, 1), 10);
        story.down(150.3, ACK, (1, 11), 0);
        // The rest of the question, held back until what went before is acknowledged.
        story.up(200.4, DATA, (11, 1), 10);
        story.down(251.0, DATA, (1, 21), 10);
        let flow = story.flow();
        assert_eq!(flow.round_trips(), 3);
        assert_eq!(flow.journey.unwrap().stalls(), 1);
        // The same, but the client thought about it for a while: nothing was held back.
        let mut story = Story::open();
        story.up(100.2, DATA, (1, 1), 10);
        story.down(150.3, ACK, (1, 11), 0);
        story.up(230.0, DATA, (11, 1), 10);
        story.down(281.0, DATA, (1, 21), 10);
        assert_eq!(story.flow().round_trips(), 2);
    }

    #[test]
    fn a_lost_packet_carries_nothing_on() {
        let mut story = Story::open();
        story.up(100.2, DATA, (1, 1), 10);
        story.down(150.3, DATA, (1, 11), 10);
        let packet = story.0.last_mut().unwrap();
        (packet.arrived, packet.lost) = (None, true);
        story.down(400.0, DATA, (1, 11), 10);
        let flow = story.flow();
        assert_eq!((flow.round_trips(), flow.down.lost, flow.down.bytes), (2, 1, 20));
    }

    #[test]
    fn a_way_over_a_proxy_is_one_chain_over_both_connections() {
        let (proxy, inner, host) = ("10.0.0.2:22", "10.0.0.2:50000", "10.0.0.3:9");
        let mut story = Story::open();
        story.up(100.2, DATA, (1, 1), 10);
        story.add(150.4, inner, host, DATA, (5, 5), 10);
        // A heartbeat of its own, which answers nothing.
        story.add(120.0, host, inner, DATA, (1, 5), 4);
        story.add(201.0, host, inner, DATA, (5, 15), 10);
        story.add(251.5, proxy, CLIENT, DATA, (1, 11), 10);
        let capture = story.capture();
        let journey = capture.journey(0, Duration::MAX).unwrap();
        assert_eq!((journey.between(0, 1), journey.between(1, 2), journey.between(0, 2)), (4, 2, 0));
        assert_eq!(journey.trips.first().unwrap().cause, Cause::Start);
        assert_eq!(journey.on_the_wire(), Duration::from_millis(300));
        assert_eq!(capture.flows().len(), 2);
        let before = capture.journey(0, Duration::from_millis(290));
        assert_eq!(before, None, "nothing had come back by then");
    }

    #[test]
    fn ping_is_a_round_trip_and_a_client_that_gets_nothing_has_a_way() {
        let mut story = Story::default();
        story.up(0.0, DATA, (1, 1), 10);
        assert_eq!(story.flow().round_trips(), 1);
        assert_eq!(Capture::default().flows(), []);
    }

    proptest! {
        #[test]
        fn a_chain_is_in_order_and_no_longer_than_the_time(
            packets in prop::collection::vec((0_u32..2000, 0_usize..3, 1_usize..3, 0_u32..3000, 0_u8..0x20), 0..80),
        ) {
            let mut story = Story::default();
            for (at, from, step, payload, flags) in packets {
                let end = |host: usize| format!("10.0.0.{}:{}", host + 1, 7 + host);
                let (from, to) = (end(from), end((from + step) % 3));
                story.add(f64::from(at), &from, &to, flags, (payload, payload), payload as usize % 1400);
            }
            let capture = story.capture();
            for flow in capture.flows() {
                prop_assert!(flow.round_trips() <= flow.up.packets + flow.down.packets);
            }
            if let Some(journey) = capture.journey(0, Duration::MAX) {
                for pair in journey.trips.windows(2) {
                    prop_assert!(pair[0].arrived <= pair[1].sent && pair[0].to == pair[1].from);
                }
                prop_assert!(journey.on_the_wire() <= journey.took());
                prop_assert_eq!(journey.trips[0].from, 0);
                prop_assert_eq!(journey.trips.last().unwrap().to, 0);
            }
        }
    }
}
