//! What comes on a channel whose reader is the user of this library: sessions, and streams.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use crate::client::Exit;
use crate::native::frame::{Frame, Lacks};
use crate::native::mux::{Taker, WeakMux};

/// Small pieces of the same output are put together up to this.
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
    Gathered(BytesMut),
    Whole(Bytes),
}

#[derive(Default)]
struct State {
    started: Option<Lacks>,
    opened: bool,
    pieces: VecDeque<(bool, Piece)>,
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn next(&mut self) -> Option<Event> {
        if let Some(lacks) = self.started.take() {
            return Some(Event::Started(lacks));
        }
        if std::mem::take(&mut self.opened) {
            return Some(Event::Opened);
        }
        if let Some((errors, piece)) = self.pieces.pop_front() {
            let bytes = match piece {
                Piece::Gathered(bytes) => bytes.freeze(),
                Piece::Whole(bytes) => bytes,
            };
            return Some(Event::Data { errors, bytes });
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
        self.set(|state| match state.pieces.back_mut() {
            Some((of, Piece::Gathered(last))) if *of == errors && last.len() + bytes.len() <= PIECE_BYTES => {
                last.extend_from_slice(&bytes);
            }
            _ if bytes.len() < PIECE_BYTES => {
                state.pieces.push_back((errors, Piece::Gathered(BytesMut::from(bytes.as_ref()))));
            }
            _ => state.pieces.push_back((errors, Piece::Whole(bytes))),
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
