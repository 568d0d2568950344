//! One stream of a tunnel.

use std::task::Waker;
use std::time::Duration;

use super::Config;
use crate::tunnel::TunnelError;
use crate::tunnel::chunks::Chunks;

/// One stream.
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) received: Chunks,
    /// Credit that the peer has left.
    pub(super) peer_credit: u32,
    /// Credit that the peer has when everything is read.
    pub(super) window: u32,
    /// Bytes read since credit was last given back.
    pub(super) consumed: u32,
    /// When credit was last given back, since the tunnel began.
    pub(super) granted_at: Duration,
    pub(super) received_fin: bool,
    pub(super) to_send: Chunks,
    /// Credit that we have left.
    pub(super) credit: u32,
    pub(super) fin: Fin,
    pub(super) queued: bool,
    /// Set when the stream is over before its time.
    pub(super) failed: Option<TunnelError>,
    /// Its handle is gone; it lives only until its end is sent.
    pub(super) released: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fin {
    Open,
    Wanted,
    Sent,
}

impl StreamState {
    pub(super) fn new(config: &Config, now: Duration) -> Self {
        Self {
            received: Chunks::new(config.received.clone()),
            peer_credit: config.initial_window,
            window: config.initial_window,
            consumed: 0,
            granted_at: now,
            received_fin: false,
            to_send: Chunks::new(config.sent.clone()),
            credit: config.initial_window,
            fin: Fin::Open,
            queued: false,
            failed: None,
            released: false,
            reader: None,
            writer: None,
        }
    }

    pub(super) fn wake(&mut self) {
        wake(&mut self.reader);
        wake(&mut self.writer);
    }

    /// Whether there is something that the credit allows to be sent.
    pub(super) fn ready(&self) -> bool {
        // A stream that has failed sends nothing more; taken for ready it would be scheduled for ever.
        self.failed.is_none()
            && if self.to_send.is_empty() { self.fin == Fin::Wanted } else { self.credit > 0 }
    }
}

/// Wakes who waits, once.
pub(super) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
