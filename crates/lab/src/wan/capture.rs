//! Every packet that the emulator saw, and the connections among them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::captured::CapturedPacket;
use super::packet::{Carries, Packet};
use super::round_trips::{self, Journey};

/// Most packets that are kept: past so many they are only counted. About 100 bytes each.
pub const PACKETS_MOST: usize = 1_000_000;

/// The packets of a while.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capture {
    /// The hosts, by number.
    pub hosts: Vec<String>,
    /// Every packet, in the order of sending.
    pub packets: Vec<CapturedPacket>,
    /// Packets past [`PACKETS_MOST`], which are not among them.
    pub missed: usize,
}

/// Packets of a connection in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Direction {
    /// All packets.
    pub packets: usize,
    /// Those with payload.
    pub with_data: usize,
    /// Bytes of payload, repeated ones as often as they were sent.
    pub bytes: usize,
    /// Packets that were lost or dropped on the way.
    pub lost: usize,
}

/// A connection of TCP, or datagrams of UDP between the same two ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The number of the host that began it, and of the other one.
    pub hosts: (usize, usize),
    /// The end that sent the first packet.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// Whether its beginning was seen: the SYN of TCP.
    pub whole: bool,
    /// From the client.
    pub up: Direction,
    /// From the server.
    pub down: Direction,
    /// From the first packet to the last payload that arrived.
    pub took: Duration,
    /// The longest chain of its packets in which each waited for the one before.
    pub journey: Option<Journey>,
}

impl Flow {
    /// Round trips from its beginning to the last byte that the client got, or to the last one at all where it got none.
    #[must_use]
    pub fn round_trips(&self) -> usize {
        self.journey.as_ref().map_or(0, |journey| journey.trips.len().div_ceil(2))
    }
}

/// Which flow a packet is of: its protocol and its ends, the lesser first.
type Key = (&'static str, SocketAddr, SocketAddr);

/// The flow that a packet is of.
pub(super) fn key(packet: &Packet) -> Option<Key> {
    let (source, destination) = packet.ends()?;
    let protocol = if matches!(packet.carries, Carries::Tcp(_)) { "tcp" } else { "udp" };
    Some((protocol, source.min(destination), source.max(destination)))
}

impl Capture {
    /// The number of a host.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host == name)
    }

    /// The longest chain of packets from what this host sent first to the last payload that it got by then.
    #[must_use]
    pub fn journey(&self, client: usize, until: Duration) -> Option<Journey> {
        round_trips::journey(&self.packets.iter().collect::<Vec<_>>(), client, until)
    }

    /// The packets between these hosts alone.
    #[must_use]
    pub fn among(mut self, hosts: &[usize]) -> Self {
        self.packets.retain(|captured| hosts.contains(&captured.from) && hosts.contains(&captured.to));
        self
    }

    /// Every connection, in the order in which they began.
    #[must_use]
    pub fn flows(&self) -> Vec<Flow> {
        let mut by_key: BTreeMap<Key, Vec<&CapturedPacket>> = BTreeMap::new();
        for captured in &self.packets {
            if let Some(key) = key(&captured.packet) {
                by_key.entry(key).or_default().push(captured);
            }
        }
        let mut flows: Vec<(Duration, Flow)> =
            by_key.into_iter().filter_map(|(key, packets)| flow(key.0, &packets)).collect();
        flows.sort_by_key(|(began, _)| *began);
        flows.into_iter().map(|(_, flow)| flow).collect()
    }
}

fn flow(protocol: &'static str, packets: &[&CapturedPacket]) -> Option<(Duration, Flow)> {
    let first = packets.first()?;
    let (client, server) = first.packet.ends()?;
    let (mut up, mut down) = (Direction::default(), Direction::default());
    for captured in packets {
        let direction = if captured.packet.ends()?.0 == client { &mut up } else { &mut down };
        let payload = captured.packet.payload();
        direction.packets += 1;
        direction.with_data += usize::from(payload > 0);
        direction.bytes += payload;
        direction.lost += usize::from(captured.lost);
    }
    let last = packets
        .iter()
        .filter(|captured| captured.packet.payload() > 0)
        .filter_map(|captured| captured.arrived)
        .max();
    let whole = match first.packet.carries {
        Carries::Tcp(segment) => segment.syn,
        _ => true,
    };
    let flow = Flow {
        protocol,
        hosts: (first.from, first.to),
        client,
        server,
        whole,
        up,
        down,
        took: last.unwrap_or(first.sent).saturating_sub(first.sent),
        journey: round_trips::journey(packets, first.from, Duration::MAX)
            .or_else(|| round_trips::one_way(packets, first.from)),
    };
    Some((first.sent, flow))
}
