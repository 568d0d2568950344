//! Bounds of a tunnel.

use std::time::Duration;

use crate::tunnel::memory::Memory;

/// Bounds of a tunnel. Both sides must agree on `initial_window`, which is part of the protocol version.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes that may be sent on a stream before the first credit arrives. Fixed by the protocol: 256 KiB.
    pub initial_window: u32,
    /// The most credit that a stream may grow to: 16 MiB, a second at 100 ms and 1 Gbit/s with some to spare.
    pub max_window: u32,
    /// The most credit that all streams together may have been given beyond their initial one: 48 MiB.
    pub max_growth: u64,
    /// What bytes that readers have not taken yet may cost: 96 MiB. Beyond, the stream with the most of them is ended.
    pub received: Memory,
    /// What bytes that are not on the connection yet may cost: 32 MiB. Beyond, writers wait sooner.
    pub sent: Memory,
    /// Bytes that a writer may run ahead of the connection, for each stream: 256 KiB.
    pub send_buffer: usize,
    /// Streams that may be open at a time: 16,384.
    pub max_streams: usize,
    /// Streams that the other side opened and that are not taken yet: 1,024.
    pub max_pending: usize,
    /// Silence after which the peer is asked whether it is there: 15 s.
    pub ping_after: Duration,
    /// Silence after which the peer is taken for dead: 45 s.
    pub dead_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            initial_window: 256 * 1024,
            max_window: 16 * 1024 * 1024,
            max_growth: 48 * 1024 * 1024,
            received: Memory::new(MAX_RECEIVED),
            sent: Memory::new(MAX_SENT),
            send_buffer: 256 * 1024,
            max_streams: 16_384,
            max_pending: 1_024,
            ping_after: Duration::from_secs(15),
            dead_after: Duration::from_secs(45),
        }
    }
}

/// What the bytes that wait in the tunnels of one host may cost: towards readers here, a few streams with all the credit that
/// there is, or some hundreds with what they begin with;
pub const MAX_RECEIVED: u64 = 96 * 1024 * 1024;
/// and towards the host.
pub const MAX_SENT: u64 = 32 * 1024 * 1024;
