//! What comes on a channel whose reader is the user of this library: sessions, and streams.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};

use crate::client::Exit;
use crate::native::frame::{Frame, Lacks};
use crate::native::mux::{Taker, WeakMux};

/// Small pieces are put together up to this.
const PIECE_BYTES: usize = 4096;

/// The next thing on a channel.
pub(in crate::client) enum Event {
    Started(Lacks),
    Opened,
    Data {
        errors: bool,
        bytes: Bytes,
    },
    Eof,
    /// With how the program has ended, when that was told.
    Closed(Option<Exit>),
    Refused(String),
    Gone(Option<Exit>),
}

enum Piece {
    /// Small ones, and how much of which output follows on which: a host that says both in turn, a byte at a time, costs four
    /// bytes more for each and not an allocation.
    Gathered {
        bytes: BytesMut,
        runs: VecDeque<(bool, u16)>,
    },
    Whole {
        errors: bool,
        bytes: Bytes,
    },
}

impl Piece {
    /// Adds small data, if there is room.
    fn gather(&mut self, of: bool, more: &[u8]) -> bool {
        let Self::Gathered { bytes, runs } = self else { return false };
        let Some(length) = u16::try_from(more.len()).ok().filter(|_| bytes.len() + more.len() <= PIECE_BYTES)
        else {
            return false;
        };
        bytes.extend_from_slice(more);
        match runs.back_mut() {
            Some((errors, run)) if *errors == of => *run += length,
            _ => runs.push_back((of, length)),
        }
        true
    }
}

#[derive(Default)]
struct State {
    started: Option<Lacks>,
    opened: bool,
    pieces: VecDeque<Piece>,
    eof: bool,
    exit: Option<Exit>,
    closed: bool,
    refused: Option<String>,
    gone: bool,
    waker: Option<Waker>,
}

/// What has come and was not read. The window bounds it; whatever is no data has one place.
pub(in crate::client) struct Queue {
    state: Mutex<State>,
    mux: WeakMux,
    id: u32,
}

impl Queue {
    pub(super) fn new(mux: WeakMux, id: u32) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), mux, id })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for the next thing; one task does.
    pub(in crate::client) async fn next(&self) -> Event {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Event> {
        let mut state = self.state();
        let Some(event) = state.next() else {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        if let (Event::Data { bytes, .. }, Some(mux)) = (&event, self.mux.upgrade()) {
            mux.taken(self.id, bytes.len());
        }
        Poll::Ready(event)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    fn data(&mut self) -> Option<Event> {
        match self.pieces.pop_front()? {
            Piece::Whole { errors, bytes } => Some(Event::Data { errors, bytes }),
            Piece::Gathered { mut bytes, mut runs } => {
                let (errors, length) = runs.pop_front()?;
                let first = bytes.split_to(usize::from(length).min(bytes.len())).freeze();
                if !runs.is_empty() {
                    self.pieces.push_front(Piece::Gathered { bytes, runs });
                }
                Some(Event::Data { errors, bytes: first })
            }
        }
    }

    fn next(&mut self) -> Option<Event> {
        if let Some(lacks) = self.started.take() {
            return Some(Event::Started(lacks));
        }
        if std::mem::take(&mut self.opened) {
            return Some(Event::Opened);
        }
        if let Some(event) = self.data() {
            return Some(event);
        }
        if std::mem::take(&mut self.eof) {
            return Some(Event::Eof);
        }
        if let Some(reason) = self.refused.take() {
            self.gone = true;
            return Some(Event::Refused(reason));
        }
        match (self.closed, self.gone) {
            (true, _) => Some(Event::Closed(self.exit.take())),
            (_, true) => Some(Event::Gone(self.exit.take())),
            _ => None,
        }
    }
}

impl Taker for Queue {
    fn data(&self, errors: bool, bytes: Bytes) {
        self.set(|state| {
            if bytes.len() >= PIECE_BYTES {
                return state.pieces.push_back(Piece::Whole { errors, bytes });
            }
            if !state.pieces.back_mut().is_some_and(|last| last.gather(errors, &bytes)) {
                let mut piece = Piece::Gathered { bytes: BytesMut::new(), runs: VecDeque::new() };
                piece.gather(errors, &bytes);
                state.pieces.push_back(piece);
            }
        });
    }

    fn eof(&self) {
        self.set(|state| state.eof = true);
    }

    fn closed(&self) {
        self.set(|state| state.closed = true);
    }

    fn gone(&self, refused: Option<String>) {
        self.set(|state| match refused {
            Some(reason) => state.refused = Some(reason),
            None => state.gone = true,
        });
    }

    fn frame(&self, frame: Frame) {
        self.set(|state| match frame {
            Frame::Started(_, lacks) => state.started = Some(lacks),
            Frame::Opened(_) => state.opened = true,
            Frame::ExitStatus(_, status) => state.exit = Some(Exit::Status(status)),
            Frame::ExitSignal { name, core, .. } => {
                state.exit = Some(Exit::Signal { name, core_dumped: core, message: String::new() });
            }
            _ => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::mux::{Mux, Side};

    #[test]
    fn small_pieces_of_both_outputs_come_in_order_and_cost_little() {
        let mux = Mux::new(Side::Client, 1 << 20, 1 << 20, false);
        let queue = Queue::new(mux.weak(), 1);
        let said: Vec<(bool, Vec<u8>)> = (0..50_000_u32)
            .map(|number| match number % 1000 {
                999 => (false, vec![b'w'; PIECE_BYTES + 1]),
                500 => (true, vec![b'x'; PIECE_BYTES - 1]),
                _ => (number % 2 == 0, number.to_le_bytes()[..1].to_vec()),
            })
            .collect();
        for (errors, bytes) in &said {
            queue.data(*errors, Bytes::copy_from_slice(bytes));
        }
        {
            let state = queue.state();
            assert!(state.pieces.len() < 1000, "{} pieces for 50,000", state.pieces.len());
        }
        let (mut wanted, mut got) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let (mut order, mut heard) = (Vec::new(), Vec::new());
        for (errors, bytes) in &said {
            wanted[usize::from(*errors)].extend_from_slice(bytes);
            order.extend(std::iter::repeat_n(*errors, bytes.len()));
        }
        while let Some(Event::Data { errors, bytes }) = queue.state().next() {
            got[usize::from(errors)].extend_from_slice(&bytes);
            heard.extend(std::iter::repeat_n(errors, bytes.len()));
        }
        assert!(wanted == got && order == heard);
    }
}
