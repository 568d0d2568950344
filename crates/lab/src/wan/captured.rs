//! A packet that the emulator carried or lost.

use std::time::Duration;

use super::packet::Packet;

/// A packet on its way between two hosts, or lost there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// The number of the host that sent it.
    pub from: usize,
    /// The number of the host that it is for.
    pub to: usize,
    /// When it was sent, since the capture began.
    pub sent: Duration,
    /// When it arrived; none for one that was lost, or was under way when the capture ended.
    pub arrived: Option<Duration>,
    /// Whether it was lost on the way, or dropped before a full queue.
    pub lost: bool,
    /// What it is.
    pub packet: Packet,
}
