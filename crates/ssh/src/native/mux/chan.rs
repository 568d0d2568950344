//! What is kept of one channel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};

use super::batch::Batch;
use super::ports::Taker;
use super::window::Window;
use crate::native::frame::{Frame, MAX_DATA, data_head};

/// Data that waits on a channel to be sent, past which the sender waits.
pub(super) const QUEUE_BYTES: usize = 128 * 1024;
/// Frames that pass the data of a channel by.
pub(super) const MAX_URGENT: usize = 256;

/// What waits to be sent on a channel, in order.
pub(super) enum Out {
    Data {
        errors: bool,
        bytes: Bytes,
    },
    Frame(Bytes),
    /// The last one.
    Close(Bytes),
}

/// One channel.
pub(super) struct Chan {
    pub(super) taker: Arc<dyn Taker>,
    pub(super) queue: VecDeque<Out>,
    pub(super) queued: usize,
    /// What passes the queue by: the opening first of all.
    pub(super) urgent: VecDeque<Bytes>,
    /// What may be sent.
    pub(super) credit: u64,
    /// It is in the list of those that have something to send.
    pub(super) listed: bool,
    /// Who waits to send.
    pub(super) waiting: Vec<Waker>,
    pub(super) window: Window,
    /// Nothing more is sent by us; and that was said.
    pub(super) closed_here: bool,
    pub(super) close_sent: bool,
    pub(super) closed_there: bool,
}

impl Chan {
    pub(super) fn new(taker: Arc<dyn Taker>, first_in: u32, first_out: u32) -> Self {
        Self {
            taker,
            queue: VecDeque::new(),
            queued: 0,
            urgent: VecDeque::new(),
            credit: u64::from(first_out),
            listed: false,
            waiting: Vec::new(),
            window: Window::new(first_in),
            closed_here: false,
            close_sent: false,
            closed_there: false,
        }
    }

    pub(super) fn can_send(&self) -> bool {
        if self.close_sent {
            return false;
        }
        !self.urgent.is_empty()
            || self.window.is_due()
            || match self.queue.front() {
                Some(Out::Data { .. }) => self.credit > 0,
                Some(Out::Frame(_) | Out::Close(_)) => true,
                None => false,
            }
    }

    /// Drops the data that was to be sent.
    pub(super) fn forget_queue(&mut self) {
        self.queue.retain(|out| !matches!(out, Out::Data { .. }));
        self.queued = 0;
    }

    /// Puts what is its turn into the batch. True when that was the last of the channel.
    pub(super) fn send(&mut self, id: u32, batch: &mut Batch) -> bool {
        for frame in self.urgent.drain(..) {
            batch.put(frame);
        }
        if let Some(more) = self.window.grant() {
            let mut frame = BytesMut::new();
            // A number always fits.
            let _ = Frame::Window(id, more).encode(&mut frame);
            batch.put(frame.freeze());
        }
        let mut turn = MAX_DATA;
        while let Some(out) = self.queue.front_mut() {
            match out {
                Out::Frame(frame) => {
                    batch.put(std::mem::take(frame));
                    self.queue.pop_front();
                }
                Out::Close(frame) => {
                    batch.put(std::mem::take(frame));
                    self.queue.pop_front();
                    self.close_sent = true;
                    return true;
                }
                Out::Data { errors, bytes } => {
                    let most = usize::try_from(self.credit).unwrap_or(usize::MAX).min(turn);
                    if most == 0 {
                        return false;
                    }
                    let piece = bytes.split_to(bytes.len().min(most));
                    batch.put_data(&data_head(id, *errors, piece.len()), &piece);
                    self.credit = self.credit.saturating_sub(piece.len() as u64);
                    self.queued = self.queued.saturating_sub(piece.len());
                    turn -= piece.len();
                    if bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
            }
        }
        false
    }
}
